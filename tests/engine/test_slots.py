"""Passes of fixed shape do what the passes of `denoise` do, and ask the device for nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import softdlm
from softdlm import (
    Additive,
    Alternate,
    Canvas,
    EntropyBound,
    Euclidean,
    Factor,
    HardOnly,
    LeadIn,
    Mask,
    NormMix,
    Slerp,
    Step,
    Steps,
    Threshold,
    TopN,
    UsageError,
)
from softdlm.cache import Shape, compact
from softdlm.engine.census import RowCensus, next_reach, rounded
from softdlm.engine.graphs import Graphs, Way
from softdlm.engine.one_pass import view_pass
from softdlm.engine.pick_engine import pick_engine
from softdlm.engine.slot_store import KEPT_BYTES, borrowed_slots
from softdlm.engine.slots import AHEAD, Slots
from softdlm.engine.state import Buffers
from softdlm.engine.tensor_records import tensors
from softdlm.models.toy import harry_potter
from softdlm.types import ids_on
from tests.conftest import DATA, plan_of
from tests.strategies import generator
from tests.test_cache import model_of, with_gaps

COMMITS = (
    *(TopN(2), Threshold(0.4), EntropyBound(0.5), Factor(1.2), Steps(3), Steps(4, schedule="eps")),
    *(LeadIn(Threshold(0.4)), Threshold(0.3, budget=4), HardOnly(EntropyBound(0.5)), Steps(4, schedule="cosine")),
)
FEEDBACKS = (Mask(), Slerp(), Euclidean(k=2), Additive(), NormMix(), Alternate(Slerp(), 3, 2))
CACHES: tuple[dict[str, Any], ...] = (
    *({}, {"cache": "prefix"}, {"cache": "dual"}, {"cache": "prefix", "refresh": 3}, {"cache": "dual", "refresh": 2}),
    *({"cache": "dual", "refresh": 1}, {"cache": "dual", "renew": 2}, {"cache": "prefix", "renew": 3}),
    {"cache": "dual", "renew": 9},
)
RAGGED = ((6, 19), (9, 25), (14, 22))
"""Of each row, the prompt's length and the canvas's."""


def canvas_of(model: Any, rows: Sequence[tuple[int, int]], seed: int = 0) -> Canvas:
    prompts = [torch.randint(3, 140, (n,), generator=generator(seed + 7 * n)).tolist() for n, _ in rows]
    return Canvas.pack(prompts, [length for _, length in rows], model.mask_id, 0)


def stories(steps: Sequence[Step]) -> list[list[tuple[Any, ...]]]:
    """Of each row, the passes it took part in."""
    rows = range(len(steps[0].canvas.ids))
    return [[_told(step, row) for step in steps if step.running[row]] for row in rows]


def _told(step: Step, row: int) -> tuple[Any, ...]:
    masks = (step.requested, step.active, step.committed)
    context = [value[row].tolist() for name, value in vars(step.context).items() if name != "state"]
    return step.canvas.ids[row].tolist(), *(mask[row].tolist() for mask in masks), context


def slots_for(model: Any, canvas: Canvas, **options: Any) -> Slots:
    batch, length = canvas.ids.shape
    slots = Slots(plan_of(model, **options), batch, length)
    slots.admit(canvas)
    return slots


@settings(max_examples=16, phases=(Phase.explicit, Phase.generate))  # to shrink a decode takes too long
@given(
    st.sampled_from(["llada", "dream", "llada2 full", "llada2"]),
    st.sampled_from([RAGGED, ((8, 20),), ((8, 20), (5, 20))]),
    st.integers(0, 99),
    st.sampled_from(COMMITS),
    st.sampled_from(FEEDBACKS),
    st.sampled_from(CACHES),
    st.sampled_from([None, 1, 5, 8]),
    st.sampled_from([False, True, "block"]),
)
@example("dream", RAGGED, 0, TopN(2), Slerp(), {"cache": "prefix"}, 5, False)
@example("llada", RAGGED, 0, Threshold(0.4), Slerp(), {"cache": "dual"}, 5, True)
@example("dream", RAGGED, 0, Threshold(0.3), Slerp(), {"cache": "dual", "renew": 2}, 3, False)
@example("dream", RAGGED, 1, HardOnly(TopN(2)), Alternate(Slerp()), {"cache": "dual", "refresh": 3}, 5, True)
@example("llada", RAGGED, 2, HardOnly(EntropyBound(0.5)), Alternate(Additive(), 3, 2), {"cache": "prefix"}, 5, False)
@example("llada", RAGGED, 1, EntropyBound(0.5), Slerp(), {"cache": "prefix", "renew": 9}, 3, True)
def test_each_row_has_the_passes_that_denoise_gives_it(
    network: str, rows: Any, seed: int, commit: Any, feedback: Any, cache: Any, block: int | None, early: Any
) -> None:
    model = model_of(network)
    none = network == "llada2" or (not block and (network == "llada2 full" or "renew" in cache))
    options: Any = {"commit": commit, "feedback": feedback, **({} if none else cache)}
    options |= {"block_length": block, "early_finish": early, "eos": ("allow", "last", "forbid")[seed % 3]}
    canvas = canvas_of(model, rows, seed)
    dynamic = list(softdlm.denoise(model, canvas, **options))
    static = list(softdlm.denoise(model, canvas, engine="static", **options))
    assert stories(static) == stories(dynamic)
    assert torch.equal(static[-1].canvas.ids, dynamic[-1].canvas.ids)
    assert torch.equal(static[-1].canvas.open, dynamic[-1].canvas.open)
    assert [step.index for step in static] == list(range(1, len(static) + 1))


@pytest.mark.parametrize("feedback", [Mask(), Slerp()], ids=str)
@pytest.mark.parametrize("cache", [None, "prefix", "dual"])
def test_predictions_agree_where_they_were_asked_for(feedback: Any, cache: Any) -> None:
    model = model_of("dream")
    options: Any = {"commit": TopN(2), "feedback": feedback, "block_length": 5, "cache": cache}
    canvas = canvas_of(model, ((8, 20), (5, 20)))
    dynamic = softdlm.denoise(model, canvas, **options)
    static = softdlm.denoise(model, canvas, engine="static", **options)
    for one, other in zip(dynamic, static, strict=False):
        at, there = one.prediction.at(one.requested), other.prediction.at(one.requested)
        for name, value in vars(at).items():
            if value is not None:
                torch.testing.assert_close(getattr(there, name), value)
        elsewhere = ~other.requested
        assert (other.prediction.token[elsewhere] == -1).all()
        assert other.prediction.entropy[elsewhere].isnan().all()


@pytest.mark.parametrize("cache", [None, "prefix", "dual"])
@pytest.mark.parametrize("feedback", [Mask(), Slerp()], ids=str)
def test_room_is_never_too_small_and_shapes_are_few(cache: Any, feedback: Any) -> None:
    model = model_of("llada")
    canvas = canvas_of(model, ((8, 250), (20, 240)))
    slots = slots_for(model, canvas, commit=TopN(9), feedback=feedback, block_length=16, cache=cache)
    while slots.running:
        shape = slots.shape
        assert shape is not None
        step = slots.step()
        assert int(step.requested.sum()) <= shape.room <= canvas.ids.numel()
        assert shape.masked
        if cache == "dual" and shape.width is not None:
            assert shape[:3] == (2, 16, 32)
        if feedback == Mask():
            assert shape.room == 32
    assert len(slots.graphs.met) <= (16 if cache == "prefix" else 9)


def test_room_follows_what_is_open() -> None:
    """Also without feedback and blocks, where the answer is a small part of the canvas."""
    model = model_of("llada")
    for feedback in (Mask(), Slerp()):
        slots = slots_for(model, canvas_of(model, ((200, 300),)), commit=TopN(40), feedback=feedback)
        rooms = []
        while slots.running:
            assert slots.shape is not None
            rooms.append(slots.shape.room)
            slots.step()
        assert rooms == [128, 64, 64]


class Asked(Exception):
    """The device was asked for a value."""


ASK = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "_unique2", "unique_dim"}


class NoQuestions(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_", "_index_put_impl_") else ()
        by_mask = any(index is not None and index.dtype == torch.bool for index in indices)
        made_of_a_list = name == "lift_fresh" and args[0].ndim > 0  # would be copied to the device, which waits
        if name in ASK or by_mask or made_of_a_list:
            raise Asked(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("network", ["llada", "dream", "llada2 full"])
@pytest.mark.parametrize("cache", [None, "prefix", "dual"])
@pytest.mark.parametrize("rows", [RAGGED, ((8, 20), (5, 20))], ids=["ragged", "even"])
def test_a_pass_asks_the_device_for_nothing(network: str, cache: Any, rows: Any) -> None:
    model, block = model_of(network, torch.float32), 5
    for number, commit in enumerate(COMMITS):
        feedback = FEEDBACKS[number % len(FEEDBACKS)]
        eos = ("allow", "last", "forbid")[number % 3]
        options: Any = {"commit": commit, "feedback": feedback, "cache": cache, "block_length": block, "eos": eos}
        slots = slots_for(model, canvas_of(model, rows), early_finish=True, **options)
        kinds = set()
        while slots.running and len(kinds) < 1 + bool(cache):
            assert slots.shape is not None
            kinds.add(slots.shape.width is None)
            slots.step()  # what is made once is made here, as before a capture
            if slots.running:
                with NoQuestions():
                    slots.run(slots.shape)
                slots.rows = [type(row)(bool(a), *rest) for row, (a, *rest) in _census(slots)]


@pytest.mark.parametrize("cache", [*CACHES, {"cache": None, "early_finish": True}], ids=str)
@pytest.mark.parametrize("network", ["llada", "dream", "llada2 full"])
def test_what_the_host_foresees_is_what_the_device_counts(
    network: str, cache: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reads = model_of(network, torch.float32), []
    read = Slots.read
    monkeypatch.setattr(Slots, "read", lambda slots: (reads.append(slots.unread), read(slots)))
    for rule in (Mask(), Slerp()):
        canvas = canvas_of(model, RAGGED)
        slots = slots_for(model, canvas, commit=TopN(2), feedback=rule, block_length=7, **cache)
        reads.clear()
        for number in range(1000):
            slots.step()
            counted = [RowCensus(bool(running), *rest) for running, *rest in slots.census.tolist()]
            over = [slots.foresight.may_end and not row.running for row in counted]  # which is seen a pass later
            rows_now = zip(slots.rows, counted, over, strict=True)
            assert all(row == now for row, now, ended in rows_now if not ended and (row.running or now.running))
            if not slots.running:
                break
            if number == 2:  # a row comes in between two readings
                slots.leave(0)
                slots.admit(canvas_of(model, RAGGED[:1], seed=1))
        certain = "refresh" not in cache
        assert not slots.running
        assert max(reads) <= AHEAD
        assert (max(reads) > 1) == certain


class Hasty(TopN):
    """All of a block at once, whatever n says."""

    def __call__(self, prediction: Any, open: Any, context: Any) -> Any:
        return open


def test_of_a_rule_that_inherits_from_topn_the_host_foresees_nothing() -> None:
    model = model_of("llada", torch.float32)
    slots = slots_for(model, canvas_of(model, [(4, 30)]), commit=Hasty(1), block_length=6)
    passes = 0
    while slots.running:
        slots.step()
        passes += 1
        assert not slots.unread
    assert passes == 5


def test_the_host_reads_now_and_then() -> None:
    model = model_of("llada", torch.float32)
    slots = slots_for(model, canvas_of(model, [(4, 4 + 3 * AHEAD)]), commit=TopN(1))
    read = []
    for _ in range(3 * AHEAD):
        slots.step()
        read.append(not slots.unread)
    assert not slots.running
    assert [at for at, now in enumerate(read, 1) if now] == [1, 9, 17, 24]


def _census(slots: Slots) -> list[Any]:
    return list(zip(slots.rows, slots.census.tolist(), strict=True))


@pytest.mark.parametrize(
    "question", [lambda x: x.any().item(), lambda x: x[x > 0], lambda x: x.nonzero(), torch.isin, torch.sum]
)
def test_the_guard_notices_questions(question: Any) -> None:
    guess = torch.tensor([0.0, 1.0])
    with NoQuestions():
        if question is torch.sum:
            assert question(guess).shape == ()
        elif question is torch.isin:
            with pytest.raises(Asked):
                question(guess, torch.tensor([1.0]))
        else:
            with pytest.raises(Asked):
                question(guess)


def test_the_guard_notices_that_denoise_asks() -> None:
    model = model_of("llada", torch.float32)
    steps = softdlm.denoise(model, canvas_of(model, RAGGED))
    with NoQuestions(), pytest.raises(Asked):
        next(steps)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_compact_puts_the_wanted_first_and_none_twice(wanted: list[bool]) -> None:
    first = [place for place, want in enumerate(wanted) if want]
    rest = [place for place, want in enumerate(wanted) if not want]
    assert compact(torch.tensor(wanted)).tolist() == [*first, *rest]


@pytest.mark.parametrize("cache", [None, "dual"])
@pytest.mark.parametrize("feedback", [Slerp(), Additive()], ids=str)
def test_any_room_that_is_large_enough_does(monkeypatch: pytest.MonkeyPatch, cache: Any, feedback: Any) -> None:
    """Exactly full, a little larger, or all there is."""
    model = model_of("dream")
    canvas = canvas_of(model, ((8, 20), (5, 20)))
    options: Any = {"commit": TopN(2), "feedback": feedback, "block_length": 5, "cache": cache}
    expected = stories(list(softdlm.denoise(model, canvas, **options)))
    shape: Any = Slots.shape.fget
    for more in (0, 1, 1000):

        def tight(slots: Slots, more: int = more) -> Shape:
            wide = shape(slots)
            asked = int(view_pass(slots.plan, slots.state, wide.reach).requested.sum())
            return wide._replace(room=min(asked + more, 2 * (wide.width or 20)))

        monkeypatch.setattr(Slots, "shape", property(tight))
        assert stories(list(softdlm.denoise(model, canvas, engine="static", **options))) == expected


def test_sizes_are_few_and_near() -> None:
    sizes = [rounded(size) for size in range(1, 4097)]
    assert all(size <= up <= max(64, 1.25 * size, size + 63) for size, up in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert [up for up in dict.fromkeys(sizes) if up <= 1024] == [*range(64, 513, 64), 640, 768, 896, 1024]
    assert len(set(sizes)) == 20


@pytest.mark.parametrize(
    ("prompts", "masked"), [([[5, 6, 7]], False), ([[5, 6, 7], [8, 9, 5]], False), ([[5, 6, 7], [8, 9]], True)]
)
@pytest.mark.parametrize("watched", [False, True])
def test_only_prompts_of_several_lengths_are_padded(
    prompts: list[list[int]], masked: bool, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask makes attention slower, so nothing that needs none gets one."""
    seen, shape = set(), Slots.shape.fget
    assert shape

    def spy(slots: Slots) -> Any:
        seen.add(shape(slots).masked)
        return shape(slots)

    monkeypatch.setattr(Slots, "shape", property(spy))
    watching: Any = {"on_step": lambda step, requests: None} if watched else {}
    softdlm.generate(model_of("llada"), prompts, commit=TopN(4), max_new_tokens=9, engine="static", **watching)
    assert seen == {masked}


def test_a_row_that_waits_is_left_alone() -> None:
    """The first row closes its block in one pass; until the second has closed its own, nothing of it changes."""
    model = model_of("llada")

    def in_turn(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        return open & ((torch.arange(2)[:, None] == 0) | (open.cumsum(1) == 1))

    canvas = canvas_of(model, ((8, 20), (5, 20)))
    slots = slots_for(model, canvas, commit=in_turn, feedback=Slerp(), block_length=4, cache="dual")
    slots.step()
    assert [row.reach for row in slots.rows] == [0, 1]
    memory = slots.buffers.memory
    assert memory is not None

    def first_row() -> list[torch.Tensor]:
        state = (slots.state.canvas.ids, slots.state.embeds, slots.state.clock.passes, slots.state.clock.block_passes)
        return [value[0].clone() for value in (*state, *memory.keys, *memory.values)]

    before = first_row()
    for _ in range(3):
        step = slots.step()
        assert step.running.tolist() == [False, True]
        assert all(map(torch.equal, before, first_row()))
    assert [row.reach for row in slots.rows] == [0, 0]
    assert slots.step().running.tolist() == [True, True]


@pytest.mark.parametrize(
    ("wanted", "reach"),
    [({0}, 0), ({1}, 1), ({2}, 2), ({0, 1}, 1), ({0, 2}, 0), ({1, 2}, 2), ({0, 1, 2}, 1)],
)
def test_who_goes_next(wanted: set[int], reach: int) -> None:
    """A row that is due for everything never waits longer than a block."""
    assert next_reach(wanted) == reach


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_text_with_gaps(cache: Any) -> None:
    """Where the next block does not follow on the last, a window of two would not hold both."""
    for network, renew in (("llada", 1), ("dream", 2), ("llada", 9)):
        model = model_of(network)
        options: Any = {"commit": TopN(1), "feedback": Slerp(), "block_length": 5, "cache": cache, "renew": renew}
        dynamic = list(softdlm.denoise(model, with_gaps(model, 3), **options))
        static = list(softdlm.denoise(model, with_gaps(model, 3), engine="static", **options))
        assert stories(static) == stories(dynamic)


def test_a_block_that_renews_has_a_shape_of_its_own() -> None:
    model = model_of("dream")
    slots = slots_for(model, canvas_of(model, ((8, 100),)), commit=TopN(4), block_length=16, cache="dual", renew=3)
    widths = []
    while slots.running:
        assert slots.shape is not None
        widths.append(slots.shape.width)
        slots.step()
    whole, pair = [None, 17, 17, 17], [33, 17, 17, 17]
    assert widths == [*whole, *pair, *pair, *whole, *pair, 33, 17, 17]
    assert len(slots.graphs.met) == 3


def test_steps_outlive_the_buffers() -> None:
    model = model_of("llada")
    steps = list(softdlm.denoise(model, canvas_of(model, RAGGED), commit=TopN(3), engine="static"))
    opened = [int(step.canvas.open.sum()) for step in steps]
    assert opened == sorted(opened, reverse=True)
    assert opened[0] > opened[-1] == 0


def test_until_stops_rows() -> None:
    model = model_of("llada")

    def second_after_two(step: Step) -> torch.Tensor:
        return torch.tensor([False, step.index >= 2, False])

    options: Any = {"commit": TopN(3), "feedback": Slerp(), "until": second_after_two}
    canvas = canvas_of(model, RAGGED)
    dynamic = list(softdlm.denoise(model, canvas, **options))
    static = list(softdlm.denoise(model, canvas, engine="static", **options))
    assert stories(static) == stories(dynamic)
    assert len(stories(static)[1]) == 2


def test_captured_the_second_time_a_shape_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU with a graph that runs its work when it is replayed: each pass happens once."""
    model = model_of("llada")
    canvas = canvas_of(model, ((8, 20),))
    options: Any = {"commit": TopN(2), "feedback": Slerp(), "block_length": 4, "cache": "dual"}
    expected = list(softdlm.denoise(model, canvas, **options))[-1]
    slots = slots_for(model, canvas, **options)
    captured: list[Shape] = []

    @dataclass
    class Graph:
        shape: Shape

        def replay(self) -> Step:
            return slots.run(self.shape)

    def capture(way: Way, work: Any, reads: Any) -> Any:
        assert work == slots._run
        captured.append(way.shape)
        return Graph(way.shape)

    slots.graphs.capture = True
    monkeypatch.setattr(slots.graphs, "_captured", capture)
    while slots.running:
        slots.step()
    assert torch.equal(slots.state.canvas.ids, expected.canvas.ids)
    assert len(captured) == len(set(captured)) == 2
    assert {way.shape for way in slots.graphs.met} == set(captured)
    assert int(slots.state.clock.passes[0]) + 1 == expected.index


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("most", [1, 2])
def test_the_graph_that_was_not_used_for_longest_goes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softdlm.engine.graphs.MOST_GRAPHS", most)
    graphs, captured = Graphs(False), []
    graphs.capture = True
    shapes = [Way(Shape(1, width, 64, False, 0)) for width in (1, 2, 3)]
    replayed = type("Graph", (), {"replay": lambda self: None})
    monkeypatch.setattr(graphs, "_captured", lambda way, work, reads: captured.append(way.shape.width) or replayed())
    for number in (0, 1, 2, 0, 1, 0, 2, 0, 1):
        graphs.run(shapes[number], lambda way: None, lambda way: [])  # type: ignore[arg-type, return-value]
        assert len(graphs.captured) <= most
    assert captured == ([1, 2, 1, 3, 1, 2] if most == 1 else [1, 2, 3, 2])


def test_slots_are_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llada")
    model.slot_cache.clear()
    plan = plan_of(model, commit=TopN(2))
    with borrowed_slots(plan, 1, 16, "static") as first:
        assert not model.slot_cache
        first.admit(canvas_of(model, ((5, 16),)))
        first.step()
    assert not first.running
    with borrowed_slots(plan_of(model, commit=TopN(2)), 1, 16, "static") as second:
        assert second is first
        with borrowed_slots(plan, 1, 16, "static") as beside:
            assert beside is not second
    for other in (plan_of(model, commit=TopN(3)), plan_of(model, commit=TopN(2), early_finish=True)):
        with borrowed_slots(other, 1, 16, "static") as third:
            assert third is not first
    assert len(model.slot_cache) == 4
    assert sum(slots.bytes for _, slots in model.slot_cache) < KEPT_BYTES
    monkeypatch.setattr("softdlm.engine.slot_store.KEPT_BYTES", 1)
    with borrowed_slots(plan, 2, 16, "static") as last:
        pass
    assert [slots for _, slots in model.slot_cache] == [last]
    with pytest.raises(ZeroDivisionError), borrowed_slots(plan, 2, 16, "static"):
        raise ZeroDivisionError
    assert not model.slot_cache


def test_closing_a_decode_early_gives_its_slots_back() -> None:
    model = model_of("llada")
    model.slot_cache.clear()
    steps = softdlm.denoise(model, canvas_of(model, ((5, 16),)), commit=TopN(2), engine="static")
    next(steps)
    assert not model.slot_cache
    steps.close()  # type: ignore[attr-defined]
    ((_, slots),) = model.slot_cache
    assert not slots.running
    steps = list(softdlm.denoise(model, canvas_of(model, ((5, 16),)), commit=TopN(2), engine="static"))
    assert [each for _, each in model.slot_cache] == [slots]
    assert len(steps) == 6


def test_what_is_lent_is_of_one_renew() -> None:
    """Captured passes have the clock's arithmetic in them."""
    model = model_of("llada")
    model.slot_cache.clear()
    keys = {plan_of(model, block_length=4, cache="dual", renew=renew).key for renew in (1, 2, 3)}
    assert len(keys) == 3


class Unhashable(TopN):
    __hash__ = None  # type: ignore[assignment]


def test_rules_without_a_hash_are_found_again() -> None:
    model = model_of("llada")
    model.slot_cache.clear()
    for _ in range(2):
        steps = list(softdlm.denoise(model, canvas_of(model, ((5, 9),)), commit=Unhashable(2), engine="static"))
        assert len(steps) == 2
        assert len(model.slot_cache) == 1


def test_exact_shapes_leave_nothing_behind() -> None:
    model = model_of("llada")
    model.slot_cache.clear()
    list(softdlm.denoise(model, canvas_of(model, ((5, 9),))))
    assert not model.slot_cache


class Reads(TorchDispatchMode):
    """The storages that an operation reads although nothing inside this mode made them."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []
        self.read: dict[int, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = {each.data_ptr() for each in self.made}
        for tensor in tree_iter((args, kwargs)):
            number = func.overloadpacket.__name__ == "lift_fresh" and tensor.ndim == 0  # becomes part of the graph
            if isinstance(tensor, torch.Tensor) and not number and tensor.untyped_storage().data_ptr() not in own:
                self.read.setdefault(tensor.untyped_storage().data_ptr(), str(func))
        result = func(*args, **(kwargs or {}))
        self.made += [
            each.untyped_storage()
            for each in tree_iter(result)
            if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() not in self.read
        ]
        return result


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("network", ["llada", "dream", "llada2 full"])
@pytest.mark.parametrize("cache", [None, "dual"])
def test_a_graph_keeps_alive_everything_that_a_pass_reads(network: str, cache: Any) -> None:
    """A graph holds addresses. Whatever a pass reads of what existed before it must be among the tensors that are kept
    with the graph; token ids that are made once per process live for ever.
    """
    model = model_of(network, torch.float32)
    options: Any = {"commit": EntropyBound(0.5), "block_length": 5, "cache": cache, "eos": "last", "temperature": 0.7}
    slots = slots_for(model, canvas_of(model, RAGGED), feedback=Additive(), early_finish=True, **options)
    for _ in range(2):
        slots.step()
    kept = {tensor.untyped_storage().data_ptr() for tensor in slots.reads()}
    always = {ids_on(model.device, ids).untyped_storage().data_ptr() for ids in ids_of(model)}
    with Reads() as reads:
        slots.run(slots.shape)
    assert {name for place, name in reads.read.items() if place not in kept | always} == set()
    assert len(reads.read) > 10


def ids_of(model: Any) -> list[tuple[int, ...]]:
    return [model.eos_ids, (model.mask_id,)]


def test_a_captured_pass_outlives_the_parameters_it_read() -> None:
    """Weights that are replaced after a capture stay in memory while the graph lives; and slots whose model's weights
    have moved are not used again.
    """
    model: Any = softdlm.load(DATA / "llada", dtype="float64", device="cpu")
    canvas, options = canvas_of(model, ((8, 20),)), {"commit": TopN(2), "engine": "static"}
    list(softdlm.denoise(model, canvas, **options))
    ((_, slots),) = model.slot_cache
    weight = model.network.model.layers[0].self_attn.q_proj.weight
    values = weight.detach().clone()
    slots.plan = plan_of(model, commit=TopN(2))
    kept = tuple(tensor.detach() for tensor in slots.reads())
    slots.plan = None  # type: ignore[assignment]
    before = weight.data_ptr()
    weight.data = weight.data.clone()
    assert weight.data_ptr() != before
    weight.data.zero_()
    assert any(tensor.data_ptr() == before and torch.equal(tensor, values) for tensor in kept)
    weight.data.copy_(values)
    list(softdlm.denoise(model, canvas, **options))
    ((_, again),) = model.slot_cache
    assert again is not slots
    model.settle_weights()
    first = model.weight_addresses()
    model.settle_weights()
    model.compiled(backend="eager")
    assert model.weight_addresses() == first, "compiling moves nothing that was settled before"


def test_slots_are_freed_with_the_model() -> None:
    """At once, by reference counts alone: what is kept must not refer back to the model."""
    model = softdlm.load(DATA / "llada", dtype="float64", device="cpu")
    list(softdlm.denoise(model, canvas_of(model, ((8, 20),)), engine="static", block_length=4, cache="dual"))
    softdlm.generate(model, [[5, 6], [7, 8, 9]], max_new_tokens=6, engine="static")
    assert len(model.slot_cache) >= 2
    gone = [weakref.ref(model.embedding), *(weakref.ref(slots) for _, slots in model.slot_cache)]
    gc.collect()
    gc.disable()
    try:
        del model
        assert [each() for each in gone[1:]] == [None] * (len(gone) - 1)
        assert gone[0]() is None
    finally:
        gc.enable()


def test_rows_that_leave_make_the_pass_smaller() -> None:
    model = model_of("llada")
    rows = ((8, 20), (5, 20), (6, 20), (7, 20), (4, 20))
    slots = slots_for(model, canvas_of(model, rows), commit=TopN(1))
    seen = []
    for row in (1, 0, 2, 0):
        assert slots.shape is not None
        seen.append(slots.shape.rows)
        slots.step()
        slots.leave(row)
    assert seen == [5, 4, 4, 2]
    assert slots.used == 1


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("options", [{}, {"cache": "dual", "block_length": 4}, {"temperature": 0.8}], ids=str)
def test_rows_may_move_and_buffers_may_grow(exact: bool, options: Any) -> None:
    """Whatever row a request is in, and however large the buffers become meanwhile, its tokens are the same."""
    model = model_of("dream")
    rows = ((8, 20), (5, 18), (6, 21))
    plan = plan_of(model, commit=TopN(2), feedback=Slerp(), **options)
    canvases = [canvas_of(model, (each,)) for each in rows]
    alone = []
    for number, canvas in enumerate(canvases):
        slots = Slots(plan, 1, 21, exact=exact)
        slots.admit(canvas, [5], [number])
        while slots.running:
            slots.step()
        alone.append(slots.state.canvas.ids[0].tolist())
    slots = Slots(plan, 2, 20, exact=exact)
    for number in (0, 1):
        slots.admit(canvases[number], [5], [number])
    slots.step()
    slots.grow(3, 21)
    slots.admit(canvases[2], [5], [2])
    slots.step()
    slots.leave(0)
    assert slots.used == 2
    while slots.running:
        slots.step()
    assert slots.state.canvas.ids[0, :21].tolist() == alone[2]
    assert slots.state.canvas.ids[1, :18].tolist() == alone[1][:18]


def test_buffers_are_mapped_whole() -> None:
    """Every tensor of a State stands in `tensors`: one that is left out would not be admitted, moved or kept."""
    plan = plan_of(model_of("llada"), block_length=4, cache="dual")
    buffers = Buffers.empty(plan, 3, 12)
    state = buffers.state
    listed = {id(tensor) for tensor in tensors(buffers)}
    every = [*vars(state.canvas).values(), *vars(state.clock).values(), state.embeds, state.running, state.idle]
    every += [state.broken, state.seeds, state.requests, *vars(buffers.history).values(), buffers.census]
    assert buffers.memory is not None
    assert {id(tensor) for tensor in (*every, *buffers.memory.tensors)} == listed
    assert all(len(tensor) == 2 for tensor in tensors(buffers.first(2)))
    assert buffers.first(3) is buffers


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("network", "options", "words"),
    [
        ("llada2", {"cache": "dual", "block_length": 4}, "cache 'dual' under block-causal attention"),
        ("toy", {}, "Harry Potter or Star Wars may synchronise with the device"),
    ],
)
def test_what_static_cannot_do_is_said(network: str, options: dict[str, Any], words: str) -> None:
    model = harry_potter() if network == "toy" else model_of(network)
    plan = plan_of(model, **options)
    with pytest.raises(UsageError, match=words):
        pick_engine(plan, "static")
    with pytest.raises(UsageError, match=words):
        softdlm.denoise(model, canvas_of(model, ((3, 9),)), engine="static", **options)
    assert pick_engine(plan, "dynamic") == pick_engine(plan, "auto") == "dynamic"
    with pytest.raises(UsageError, match="engine must be one of auto, dynamic, static, compiled, not 'fast'"):
        pick_engine(plan, "fast")  # type: ignore[arg-type]


def test_auto_is_static_on_a_gpu_where_it_is_known_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(prediction: Any, open: Any, context: Any) -> Any:
        return open

    known: list[tuple[str, Any]] = [
        ("llada", {"temperature": 1.0}),
        ("llada", {}),
        ("dream", {"block_length": 4, "cache": "dual"}),
        ("llada", {"commit": LeadIn(Threshold(0.3)), "feedback": Additive()}),
    ]
    unknown: list[tuple[str, Any]] = [
        ("llada2 full", {}),  # not of bfloat16
        ("llada2", {"block_length": 4}),
        ("llada", {"commit": mine}),
        ("llada", {"commit": LeadIn(mine)}),
    ]
    static = [plan_of(model_of(network), **options) for network, options in known]
    static.append(plan_of(model_of("llada2 full", torch.bfloat16)))
    dynamic = [plan_of(model_of(network), **options) for network, options in unknown]
    assert {pick_engine(plan, "auto") for plan in (*static, *dynamic)} == {"dynamic"}
    monkeypatch.setattr(softdlm.Denoiser, "device", torch.device("cuda"))
    assert {pick_engine(plan, "auto") for plan in static} == {"auto"}
    assert {pick_engine(plan, "auto") for plan in dynamic} == {"dynamic"}


def test_compiled_needs_layers() -> None:
    with pytest.raises(UsageError, match="Harry Potter or Star Wars has no layers to compile"):
        harry_potter().compiled()


@pytest.mark.parametrize("exact", [False, True])
def test_soft_tokens_follow_the_passes_of_their_own_row(exact: bool) -> None:
    """The second row comes in two passes after the first."""
    model = model_of("llada")
    plan = plan_of(model, commit=TopN(1), feedback=Additive(0.1, 0.1, 0.9))
    first, second = (canvas_of(model, ((8, 20),), seed) for seed in (0, 1))
    alone, slots = Slots(plan, 1, 20, exact=exact), Slots(plan, 2, 20, exact=exact)
    slots.admit(first)
    for _ in range(2):
        slots.step()
    slots.admit(second)
    alone.admit(second)
    for _ in range(3):
        slots.step()
        alone.step()
    torch.testing.assert_close(slots.state.embeds[1], alone.state.embeds[0])


def test_slots_that_grow_longer_are_padded_and_captured_anew() -> None:
    """Captured passes have the addresses of the buffers in them."""
    model = model_of("llada")
    slots = slots_for(model, canvas_of(model, ((8, 20),)), commit=TopN(1))
    slots.step()
    assert slots.shape is not None
    assert not slots.shape.masked
    assert slots.graphs.met
    slots.grow(1, 30)
    assert slots.shape.masked
    assert not slots.graphs.met


def test_a_row_that_left_is_not_counted() -> None:
    """What its last pass counted stays in the buffer: passes over fewer rows do not overwrite it."""
    model = model_of("llada")
    slots = slots_for(model, canvas_of(model, ((8, 20), (5, 20), (6, 20))), commit=TopN(1))
    slots.step(read=True)
    slots.leave(0)
    slots.step(read=True)
    assert [row.running for row in slots.rows] == [True, True, False]


def test_a_shape_is_compiled_once_it_has_been_met_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softdlm.models.compiled.compile_fixed", lambda work, **_: work)
    model, runs = model_of("llada", torch.float32), []
    body = type(model)._states
    monkeypatch.setattr(
        type(model),
        "_states",
        lambda self, *given: (runs.append(self.compiled_body is not None), body(self, *given))[1],
    )
    canvas, plan = canvas_of(model, ((8, 20),)), plan_of(model, commit=TopN(2))
    expected = list(softdlm.denoise(model, canvas, commit=TopN(2), engine="static"))[-1].canvas.ids
    for patience, compiled in ((4, [False] * 4 + [True] * 2), (4, [True] * 6), (0, [True] * 6)):
        monkeypatch.setattr(model, "compile_after", patience)
        slots, compilers = Slots(plan, 1, 20, upgrade=lambda work: work), len(runs)
        slots.admit(canvas)
        while slots.running:
            slots.step()
        assert runs[compilers:] == compiled
        assert torch.equal(slots.state.canvas.ids, expected)


def test_a_shape_is_counted_for_each_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What surrounds the network is compiled for the rules: a rare Decoding would pay for it."""
    monkeypatch.setattr("softdlm.models.compiled.compile_fixed", lambda work, **_: work)
    model = model_of("llada", torch.float32)
    monkeypatch.setattr(model, "_compiled", None)
    monkeypatch.setattr(model, "due", set())
    monkeypatch.setattr(model, "compile_after", 2)
    for commit, count in ((TopN(5), 1), (TopN(4), 1), (TopN(5), 2)):
        slots = Slots(plan_of(model, commit=commit), 1, 20, upgrade=lambda work: work)
        slots.admit(canvas_of(model, ((8, 20),)))
        shape = slots.shape
        assert shape is not None
        for _ in range(count):
            slots.replay(shape)
    assert {shape[0][0] for shape in model.due} == {TopN(5)}


def test_warm_means_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llada", torch.float32)
    monkeypatch.setattr(model, "compile_after", 5)
    model.warm()
    assert model.compile_after == 0


def test_the_host_runs_ahead_of_an_early_finish_and_wastes_one_pass_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a row is seen while the next pass runs, which changes nothing of the row."""
    model = softdlm.load("builtin", device="cpu", dtype="float32")
    options: Any = {"tokens_per_step": 1, "early_finish": True, "feedback": "slerp", "eos": "last"}
    expected = softdlm.generate(model, "What is 17 + 25?", engine="dynamic", **options)
    reads, passes, read, run = [], [], Slots.read, Slots.run
    monkeypatch.setattr(Slots, "read", lambda slots: (reads.append(1), read(slots))[1])
    monkeypatch.setattr(Slots, "run", lambda slots, shape: (passes.append(1), run(slots, shape))[1])
    made = softdlm.generate(model, "What is 17 + 25?", engine="static", **options)
    assert (made.ids, made.forwards) == (expected.ids, expected.forwards)
    ours, theirs = ([(each.positions, each.tokens) for each in one.trace.passes] for one in (made, expected))
    assert ours == theirs
    assert expected.forwards < 64, "it did end early"
    assert len(passes) <= expected.forwards + 1
    assert len(reads) <= len(passes) / 4
    seen: list[Any] = []
    softdlm.generate(model, "What is 17 + 25?", engine="static", on_step=lambda step, _: seen.append(step), **options)
    assert len(seen) == expected.forwards, "who listens hears of no pass that does nothing"
