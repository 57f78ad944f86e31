"""Decoding: one value that checks itself, records itself, reads itself back and fills what was left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import softdlm
from softdlm import Canvas, Decoding, Dual, EntropyBound, Euclidean, Mask, Slerp, Threshold, TopN
from softdlm.decoding import DEFAULTS, PARAMETERS
from softdlm.errors import CheckpointError, UsageError
from softdlm.models.own_settings import OwnSettings
from softdlm.registry import build
from tests.conftest import tiny
from tests.test_registry import commits, feedbacks

decodings = st.builds(
    Decoding,
    commit=st.one_of(st.none(), commits),
    feedback=st.one_of(st.none(), feedbacks),
    block_length=st.one_of(st.none(), st.integers(1, 64)),
    cache=st.sampled_from([None, Dual(), Dual(refresh=2)]),
    max_new_tokens=st.one_of(st.none(), st.integers(1, 512)),
    eos=st.sampled_from([None, "allow", "last", "forbid", "forbid-first"]),
    forbid=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    temperature=st.one_of(st.none(), st.just(0.0), st.floats(1e-6, 2)),
    confidence=st.sampled_from([None, "tempered", "untempered"]),
    last_candidates=st.sampled_from([None, True, False]),
    seed=st.one_of(st.none(), st.integers(0, 2**40)),
    stop=st.sampled_from([(), ("\n",), ("a", "b c")]),
    early_finish=st.sampled_from([None, True, False, "block"]),
)


@given(decodings)
def test_it_reads_itself_back(decoding: Decoding) -> None:
    assert Decoding.from_json(json.loads(json.dumps(decoding.to_json()))) == decoding


@given(decodings)
def test_settled_it_has_no_gap_and_settling_again_changes_nothing(decoding: Decoding) -> None:
    settled = decoding.settled()
    assert all(getattr(settled, name) is not None for name in DEFAULTS)
    assert settled.settled(OwnSettings(7, "slerp", "topn(9)", 1, 0.9)) == settled
    assert Decoding.from_json(settled.to_json()) == settled
    for each in fields(decoding):
        given = getattr(decoding, each.name)
        assert given is None or getattr(settled, each.name) == given


def test_sources_fill_in_order_and_never_replace_what_was_given() -> None:
    own = OwnSettings(max_new_tokens=64, feedback="slerp", k=1, lam=0.5)
    assert Decoding().settled(own) == Decoding(TopN(1), Slerp(1, 0.5), max_new_tokens=64).settled()
    assert Decoding(feedback="euclidean").settled(own).feedback == Euclidean(1, 0.5)
    assert Decoding(feedback="euclidean(k=2)").settled({"lam": 0.1}, own).feedback == Euclidean(2, 0.1)
    assert Decoding(feedback="slerp", lam=0.2).settled(own).feedback == Slerp(1, 0.2)
    assert Decoding(feedback=Slerp()).settled(own).feedback == Slerp(3, 0.3), "a value is explicit"
    assert Decoding(lam=0.2).settled(own).feedback == Slerp(1, 0.2), "the checkpoint's rule at another strength"
    assert Decoding(commit="topn(4)").settled({"rank": "entropy"}).commit == TopN(4, "entropy")
    assert Decoding().settled() == Decoding(**DEFAULTS)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ({"tokens_per_step": 4}, {"commit": TopN(4)}),
        ({"tokens_per_step": "4", "rank": "margin"}, {"commit": TopN(4, "margin")}),
        ({"rank": "entropy"}, {"commit": TopN(1, "entropy")}),
        ({"threshold": 0.9}, {"commit": Threshold(0.9)}),
        ({"threshold": 0.9, "rank": "margin"}, {"commit": Threshold(0.9, floor=TopN(1, "margin"))}),
        ({"entropy_bound": "0.1"}, {"commit": EntropyBound(0.1)}),
        ({"method": "slerp", "k": 1, "lam": 0.5}, {"feedback": Slerp(1, 0.5)}),
        ({"cache": "dual", "refresh": 2}, {"cache": Dual(2)}),
        ({"renew": 1}, {}),
        (
            {"last_candidates": "false", "confidence": "untempered"},
            {"last_candidates": False, "confidence": "untempered"},
        ),
        ({"last_candidates": True, "confidence": "none"}, {}),
        ({"temperature": "0.7", "top_p": 0.9, "seed": 3.0}, {"temperature": 0.7, "top_p": 0.9, "seed": 3}),
        ({"stop": "\n", "eos": "none", "forbid": "3; 4"}, {"stop": ("\n",), "forbid": (3, 4)}),
    ],
)
def test_short_words(words: dict[str, Any], fields: dict[str, Any]) -> None:
    assert Decoding.of(**words).settled() == Decoding(**fields).settled()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"lambda_": 1}, "unknown decoding field lambda_; known are commit"),
        ({"tokens_per_step": 2, "threshold": 0.9}, "tokens_per_step and threshold exclude each other"),
        ({"commit": "topn(2)", "factor": 1.0}, "commit and factor exclude each other"),
        ({"method": "slerp", "feedback": "slerp"}, "method and feedback exclude each other"),
        ({"factor": 1.0, "rank": "margin"}, "the factor rule ranks by confidence, not by margin"),
        ({"refresh": 2}, "refresh 2 belongs to a cache"),
        ({"cache": "dual(refresh=2)", "renew": 2}, "already says when to refresh"),
        ({"cache": 3}, "cache must be a cache policy or its spelling"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
        ({"max_new_tokens": "many"}, "max_new_tokens must be a number, not 'many'"),
        ({"block_length": 2.5}, "block_length must be a whole number, not 2.5"),
        ({"temperature": True}, "temperature must be a number, not True"),
        ({"top_p": 0}, r"top_p must lie in \(0, 1\], not 0"),
        ({"eos": "never"}, "eos must be one of allow, last, forbid, forbid-first, not 'never'"),
        ({"early_finish": "soon"}, "early_finish must be true, false or block, not 'soon'"),
        ({"confidence": "cold"}, "confidence must be one of tempered, untempered, not 'cold'"),
        ({"last_candidates": "no"}, "last_candidates must be true or false, not 'no'"),
        ({"stop": [""]}, "stop must be text that is not empty"),
        ({"commit": 3}, "commit must be a rule or its spelling, not 3"),
        ({"feedback": "slurp"}, "unknown feedback rule 'slurp'"),
        ({"feedback": len}, "must say how many candidates it needs"),
    ],
)
def test_what_cannot_be_is_refused_at_once(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Decoding.of(**words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"feedback": "vanilla", "k": 3}, "k 3 has no effect on the feedback rule vanilla"),
        ({"feedback": "slerp(k=1)", "k": 3}, r"k 3 has no effect on the feedback rule slerp\(k=1"),
        ({"commit": "threshold(0.9)", "rank": "margin"}, "rank margin has no effect"),
    ],
)
def test_what_would_have_no_effect_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Decoding.of(**words).settled()


@given(decodings, st.integers(0, 9), st.integers(1, 99))
def test_requests_of_one_cohort_may_differ_in_seed_length_and_stops(one: Decoding, seed: int, length: int) -> None:
    settled = one.settled()
    assert replace(settled, seed=seed, max_new_tokens=length, stop=("x",)).cohort == settled.cohort
    assert replace(settled, temperature=(settled.temperature or 0) + 1).cohort != settled.cohort
    assert replace(settled, feedback=Slerp(9, 0.99)).cohort != settled.cohort
    assert replace(settled, block_length=77).cohort != settled.cohort


def test_the_record_holds_what_can_change_a_token(tmp_path: Path) -> None:
    settled = Decoding(feedback="slerp").settled()
    assert settled.record() == {
        "commit": "topn(1)",
        "feedback": "slerp(k=3, lam=0.3)",
        "max_new_tokens": 128,
        "eos": "allow",
        "temperature": 0,
        "seed": 0,
    }
    for change in ({"early_finish": False}, {"candidates": 9}, {"stop": ("x",)}):
        assert replace(settled, **change).record() == settled.record()
    for change in ({"confidence": "untempered"}, {"last_candidates": False}):
        assert replace(settled, **change).record() == settled.record() | change
    for change in ({"seed": 1}, {"forbid": (3,)}, {"top_k": 4}, {"cache": Dual()}, {"block_length": 8}):
        assert replace(settled, **change).record() != settled.record()
    assert replace(settled, cache=Dual()).record() != replace(settled, cache=Dual(refresh=2)).record()
    file = tmp_path / "rules.py"
    file.write_text("def first(prediction, open, context):\n    return open & (open.cumsum(1) == 1)\n")
    mine = Decoding(commit=f"{file}:first").settled().record()
    assert mine["commit"] == "rules.py:first", "where the file lies changes no answer"
    file.write_text(file.read_text() + "# edited\n")
    assert Decoding(commit=f"{file}:first").settled().record()["commit_source"] != mine["commit_source"]


@pytest.mark.parametrize(
    "bad", [3, {"strength": 1}, {"k": "3"}, {"k": 0}, {"lam": 1.5}, {"max_new_tokens": 0}, {"feedback": 3}, {"k": True}]
)
def test_a_checkpoints_own_settings_are_checked(bad: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json says decoding"):
        OwnSettings.read(bad)


def test_every_entry_point_takes_the_checkpoints_own_settings() -> None:
    model = softdlm.load("builtin", device="cpu")
    answer = softdlm.generate(model, "What is 17 + 25?", commit=TopN(8))
    assert len(answer.canvas_ids) == 64
    assert answer.trace.method["feedback"] == model.own.feedback
    assert Decoding().settled(model.own).feedback == build("feedback", str(model.own.feedback))
    assert Decoding(feedback="slerp").settled(model.own).feedback == Slerp(3, 0.5)


def test_one_decoding_per_prompt_gives_what_each_gives_alone() -> None:
    model = tiny("llada")
    prompts = [[3, 4, 5], [6, 7], [8, 9, 10, 11], [12, 13]]
    each = [
        Decoding(commit=TopN(2), feedback=Slerp(), max_new_tokens=9),
        Decoding(commit=TopN(2), feedback=Slerp(), max_new_tokens=12, seed=4),
        Decoding(commit="entropy(0.5)", max_new_tokens=8, temperature=0.8, seed=5),
        Decoding(commit="entropy(0.5)", max_new_tokens=10, temperature=0.8, seed=6),
    ]
    together = softdlm.generate(model, prompts, decoding=each, requests=[4, 5, 6, 7])
    for number, prompt, how, answer in zip((4, 5, 6, 7), prompts, each, together, strict=True):
        assert softdlm.generate(model, [prompt], decoding=how, requests=[number])[0] == answer
    with pytest.raises(UsageError, match="4 prompts but 2 decodings"):
        softdlm.generate(model, prompts, decoding=each[:2])
    with pytest.raises(UsageError, match="give decoding, or fields such as seed, not both"):
        softdlm.generate(model, prompts, decoding=each[0], seed=3)


@dataclass(frozen=True)
class Patient:
    """Commits the surest position in every third pass; remembers per row and per position."""

    may_wait: int = 2

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> dict[str, torch.Tensor]:
        return {"passes": torch.zeros(rows, 1, device=device), "seen": torch.zeros(rows, length, device=device)}

    def update(self, state: Any, prediction: Any, context: Any) -> dict[str, torch.Tensor]:
        return {"passes": state["passes"] + 1, "seen": state["seen"] + 1}

    def __call__(self, prediction: Any, open: Any, context: Any) -> torch.Tensor:
        turn = context.state["passes"] % 3 == 0
        assert (context.state["seen"][open] == context.passes.expand_as(open)[open] + 1).all()
        return TopN(1)(prediction, open, context) & turn


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_a_rule_may_remember(engine: Any) -> None:
    """State is carried per row: rows of different lengths commit in every third pass of their own."""
    model = tiny("llada")
    canvas = Canvas.pack([[3, 4, 5], [6, 7]], [7, 9], model.mask_id, 0)
    steps = list(softdlm.denoise(model, canvas, commit=Patient(), feedback=Slerp(), engine=engine))
    assert len(steps) == 3 * 7
    assert [bool(step.committed.any()) for step in steps] == [index % 3 == 2 for index in range(21)]


@dataclass(frozen=True, eq=False)
class Counting:
    """Commits the surest position; its memory counts the row's passes and each position's predictions."""

    kept: list[Any] = field(default_factory=list)
    """The memory in each pass, for a test to read."""

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> dict[str, torch.Tensor]:
        return {"passes": torch.zeros(rows, 1, device=device), "seen": torch.zeros(rows, length, device=device)}

    def update(self, state: Any, prediction: Any, context: Any) -> dict[str, torch.Tensor]:
        return {name: value + 1 for name, value in state.items()}

    def __call__(self, prediction: Any, open: Any, context: Any) -> torch.Tensor:
        self.kept.append(context.state)
        return TopN(1)(prediction, open, context)


@dataclass(frozen=True)
class Fading:
    """A soft token that moves away from [MASK] with every prediction; its memory is not the commit rule's."""

    k: int = 1

    def init(self, rows: int, length: int, device: torch.device, vocabulary: int) -> dict[str, torch.Tensor]:
        return {"seen": torch.full((rows, length), 100.0, device=device)}

    def update(self, state: Any, prediction: Any, context: Any) -> dict[str, torch.Tensor]:
        return {"seen": state["seen"] + 1}

    def __call__(self, prediction: Any, embeddings: Any, context: Any) -> torch.Tensor:
        assert (context.state["seen"] >= 100).all()
        return embeddings.mask * (1 - context.state["seen"][:, None] / 1000)


@pytest.mark.parametrize("feedback", [Mask(), Fading()])
@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_memory_changes_where_a_row_took_part_and_a_position_was_predicted(engine: Any, feedback: Any) -> None:
    """With blocks a pass predicts a part of the canvas; with a cache the rows of a static batch wait for each other."""
    model, commit = tiny("llada"), Counting()
    canvas = Canvas.pack([[3, 4, 5], [6, 7]], [8, 12], model.mask_id, 0)
    fields: Any = {"block_length": 3, "cache": Dual(), "engine": engine}
    steps = list(softdlm.denoise(model, canvas, commit=commit, feedback=feedback, **fields))
    seen, passes = torch.zeros(canvas.ids.shape), torch.zeros(len(canvas.ids), 1)
    for state, step in zip(commit.kept, steps, strict=True):
        seen, passes = seen + step.requested, passes + step.requested.any(1, keepdim=True)
        assert torch.equal(state["seen"], seen)
        assert torch.equal(state["passes"], passes)
    assert len(set(passes.flatten().tolist())) == 2, "one row took part more often than the other"


def test_a_memory_that_changes_its_names_is_refused() -> None:
    class Forgetful(Counting):
        def update(self, state: Any, prediction: Any, context: Any) -> dict[str, torch.Tensor]:
            return {"passes": state["passes"] + 1}

    with pytest.raises(UsageError, match=r"update gave \['passes'\], but init gave \['passes', 'seen'\]"):
        softdlm.generate(tiny("llada"), [3, 4], commit=Forgetful(), max_new_tokens=4, engine="dynamic")


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_a_rule_that_waits_longer_than_it_declares_is_stopped(engine: Any) -> None:
    model = tiny("llada")
    canvas = Canvas.pack([[3, 4, 5]], [9], model.mask_id, 0)
    with pytest.raises(UsageError, match=r"rule Patient\(may_wait=1\) committed nothing in 2 passes in a row"):
        list(softdlm.denoise(model, canvas, commit=Patient(may_wait=1), engine=engine))

    def nothing(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        return torch.zeros_like(open)

    with pytest.raises(UsageError, match="rule nothing committed nothing in 1 pass and declares may_wait = 0"):
        softdlm.generate(model, [3, 4], commit=nothing, max_new_tokens=4, engine=engine)


@dataclass(frozen=True)
class FullMean:
    """The full-vocabulary mean, made from the distribution that a rule may ask for."""

    k: int = 1
    needs: ClassVar[str] = "probs"

    def __call__(self, prediction: Any, embeddings: Any, context: Any) -> torch.Tensor:
        assert prediction.probs is not None
        assert (prediction.probs.sum(-1) <= 1 + 1e-5).all()
        return embeddings.mask + 0.2 * (prediction.probs @ embeddings.table)


def test_a_rule_may_ask_for_the_full_distribution() -> None:
    model = tiny("llada")
    options: Any = {"commit": TopN(2), "max_new_tokens": 8}
    mine = softdlm.generate(model, [3, 4, 5], feedback=FullMean(), **options)
    additive = softdlm.generate(model, [3, 4, 5], feedback=softdlm.Additive(0.2, 0.0, 0.2), **options)
    assert mine.canvas_ids == additive.canvas_ids
    with pytest.raises(UsageError, match="a rule needs the full distribution"):
        softdlm.generate(model, [3, 4, 5], feedback=FullMean(), engine="static", **options)


@pytest.mark.parametrize("engine", ["dynamic", "static"])
def test_context_says_where_a_position_is_and_whether_it_was_soft(engine: Any) -> None:
    model = tiny("llada")
    canvas = Canvas.pack([[3, 4, 5], [6, 7]], [7, 9], model.mask_id, 0)
    first, second, *_ = softdlm.denoise(model, canvas, commit=TopN(1), feedback=Slerp(), engine=engine)
    assert first.context.index[0].tolist() == [-3, -2, -1, 0, 1, 2, 3, 4, 5]
    assert first.context.index[1].tolist() == [-2, -1, 0, 1, 2, 3, 4, 5, 6]
    assert not first.context.soft.any(), "the first pass sees hard masks"
    assert torch.equal(second.context.soft, first.canvas.open), "then every open position is soft"
    *_, last = softdlm.denoise(model, canvas, commit=TopN(1), feedback=Mask(), engine=engine)
    assert not last.context.soft.any()


def test_denoise_decodes_to_the_end_unless_told_otherwise() -> None:
    """The first position commits EOS at once: with an early finish that is all, without it the canvas is closed."""
    model = tiny("llada")
    canvas = Canvas.pack([[3, 4]], [10], model.mask_id, 0)

    def from_the_left(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        prediction.token[:, 2] = model.eos_ids[0]
        return open & (open.cumsum(1) == 1)

    plain = Decoding(commit=from_the_left)
    assert len(list(softdlm.denoise(model, canvas, decoding=plain))) == 8
    assert len(list(softdlm.denoise(model, canvas, commit=from_the_left))) == 8
    assert len(list(softdlm.denoise(model, canvas, decoding=replace(plain, early_finish=True)))) == 1


def test_parameters_of_rules_are_fields_of_a_decoding() -> None:
    assert set(PARAMETERS) < {each.name for each in fields(Decoding)}
