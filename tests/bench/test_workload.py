"""The computed pass sizes are those of a decode: as many passes, over as many positions, as many through the head."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softdlm.bench.workload import NATS, Decode, nats, prompts
from softdlm.cache import CachePolicy, Dual, Prefix
from softdlm.commit import EntropyBound
from softdlm.feedback import FeedbackRule, Mask, Slerp
from softdlm.registry import spell
from softdlm.types import Context, Prediction
from tests.conftest import tiny


class Meter:
    """Counts what goes through a model's network and head."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.positions = self.rows = self.pairs = 0
        whole, window, head = model.hidden, model.hidden_in, model.head

        def hidden(embeds: Any, **sight: Any) -> Any:
            self.note(embeds, embeds.shape[1])
            return whole(embeds, **sight)

        def hidden_in(where: Any, memory: Any, embeds: Any, **sight: Any) -> Any:
            self.note(embeds, len(where.keys))
            return window(where, memory, embeds, **sight)

        def count(hidden: Any) -> Any:
            self.rows += len(hidden)
            return head(hidden)

        for name, spy in {"hidden": hidden, "hidden_in": hidden_in, "head": count}.items():
            monkeypatch.setattr(model, name, spy)

    def note(self, embeds: Any, keys: int) -> None:
        self.positions += embeds.shape[:2].numel()
        self.pairs += embeds.shape[:2].numel() * keys


@pytest.mark.parametrize("family", ["llada", "dream"])
@pytest.mark.parametrize("feedback", [Mask(), Slerp()], ids=spell)
@pytest.mark.parametrize(
    ("block", "cache"),
    [
        *((None, None), (5, None), (5, Prefix()), (5, Dual())),
        *((None, Prefix()), (5, Prefix(renew=9)), (5, Dual(renew=2)), (3, Dual(renew=3))),
    ],
)
def test_pass_sizes_are_those_of_a_decode(
    family: str,
    feedback: FeedbackRule,
    block: int | None,
    cache: CachePolicy | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny(family)
    meter = Meter(model, monkeypatch)
    decode = Decode(7, 12, 2, block, cache, feedback, batch=2)
    answers = decode.run(model)
    passes = decode.passes(model.first_open)
    assert [answer.forwards for answer in answers] == [len(passes)] * 2
    assert meter.positions == sum(each.batch * each.queries for each in passes)
    assert meter.pairs == sum(each.batch * each.queries * each.keys for each in passes)
    assert meter.rows == sum(each.batch * each.rows for each in passes)


def test_an_ending_keeps_the_canvas() -> None:
    decode = Decode(1024, 512, 4, 32, Dual())
    short = decode.ending(32, 8)
    assert (short.length, short.new, short.block, short.cache) == (1536, 32, 32, Dual())
    assert len(short.passes()) == 4


def test_prompts_are_the_same_at_every_call_and_hold_nothing_special() -> None:
    model = tiny("llada")
    rows = prompts(model, 3, 200)
    assert rows == prompts(model, 3, 200)
    assert rows[0] != rows[1]
    assert {len(row) for row in rows} == {200}
    assert not {model.mask_id, *model.eos_ids} & {token for row in rows for token in row}


@settings(max_examples=20)
@given(st.integers(1, 64))
def test_the_bound_commits_as_many_tokens_as_it_says(count: int) -> None:
    flat, ids, number = torch.zeros(1, 80), torch.zeros(1, 80, dtype=torch.long), torch.zeros(1, 1, dtype=torch.long)
    entropy = torch.full_like(flat, NATS)
    prediction = Prediction(ids, flat, entropy, flat, ids[..., None], flat[..., None])
    rule, open = EntropyBound(nats(count)), torch.ones(1, 80, dtype=torch.bool)
    assert rule(prediction, open, Context(*[number] * 5)).sum() == count
