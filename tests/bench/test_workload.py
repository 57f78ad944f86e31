"""The passes counted by hand are those a decode makes: as many, over as many positions, as many through the head."""

from typing import Any

import pytest

from softdlm.bench.workload import Decode, engine_option, prompts
from softdlm.errors import UsageError
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
@pytest.mark.parametrize("method", ["vanilla", "slerp"])
@pytest.mark.parametrize(
    ("block", "cache", "refresh", "renew"),
    [
        *((None, None, None, 1), (5, None, None, 1), (5, "prefix", None, 1), (5, "dual", None, 1)),
        *(
            (5, "dual", 2, 1),
            (None, "prefix", 3, 1),
            (5, "prefix", None, 9),
            (5, "dual", None, 2),
            (3, "dual", None, 3),
        ),
    ],
)
def test_works_are_the_passes_of_a_decode(
    family: str,
    method: str,
    block: int | None,
    cache: Any,
    refresh: int | None,
    renew: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny(family)
    meter = Meter(model, monkeypatch)
    decode = Decode(7, 12, 2, block, cache, refresh, renew, method, batch=2)
    answers = decode.run(model)
    works = decode.works(model.first_open)
    assert [answer.forwards for answer in answers] == [len(works)] * 2
    assert meter.positions == sum(work.batch * work.queries for work in works)
    assert meter.pairs == sum(work.batch * work.queries * work.keys for work in works)
    assert meter.rows == sum(work.batch * work.rows for work in works)


def test_an_ending_keeps_the_canvas() -> None:
    decode = Decode(1024, 512, 4, 32, "dual")
    short = decode.ending(32, 8)
    assert (short.length, short.new, short.block, short.cache) == (1536, 32, 32, "dual")
    assert len(short.works()) == 4


def test_prompts_are_the_same_at_every_call_and_hold_nothing_special() -> None:
    model = tiny("llada")
    rows = prompts(model, 3, 200)
    assert rows == prompts(model, 3, 200)
    assert rows[0] != rows[1]
    assert {len(row) for row in rows} == {200}
    assert not {model.mask_id, *model.eos_ids} & {token for row in rows for token in row}


def test_an_engine_goes_through_only_where_there_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(model: Any) -> None: ...
    def choosing(model: Any, engine: str = "auto") -> None: ...

    monkeypatch.setattr("softdlm.bench.workload.generate", without)
    assert engine_option("auto") == {}
    with pytest.raises(UsageError, match="'static'"):
        engine_option("static")
    monkeypatch.setattr("softdlm.bench.workload.generate", choosing)
    assert engine_option("static") == {"engine": "static"}
