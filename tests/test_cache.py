"""What a cache may change and what not: which passes compute what, and where nothing can go stale."""

from __future__ import annotations

import copy
from functools import cache as remember
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import (
    Alternate,
    Canvas,
    EntropyBound,
    Euclidean,
    Factor,
    HardOnly,
    LeadIn,
    Mask,
    Slerp,
    Step,
    Steps,
    Threshold,
    TopN,
    UsageError,
)
from softdlm.models.kv_memory import Window
from softdlm.models.toy import harry_potter
from tests.conftest import DEVICE, tiny
from tests.strategies import generator

NETWORKS = ("llada", "dream", "llada2", "llada2 full")
FULL = ("llada", "dream", "llada2 full")
"""Under full attention; the other one is block-causal."""

networks = st.sampled_from(NETWORKS)
kinds = st.sampled_from(["prefix", "dual"])
seeds = st.integers(0, 999)
commits: Any = st.sampled_from(
    [
        TopN(1),
        TopN(3),
        Threshold(0.5),
        Factor(1.2),
        EntropyBound(0.5),
        Steps(4),
        LeadIn(Threshold(0.4)),
        HardOnly(TopN(2)),
    ]
)
feedbacks: Any = st.sampled_from([Mask(), Slerp(), Euclidean(k=2), Alternate(Slerp(), 3, 2)])
lengths = st.sampled_from([3, 4, 8])


def model_of(network: str, dtype: torch.dtype = torch.float64) -> Any:
    family, _, attention = network.partition(" ")
    return tiny(family, dtype, attention or "auto")


def canvas_for(model: Any, seed: int, prompt: int = 6, new: int = 13) -> Canvas:
    ids = torch.randint(3, 140, (prompt,), generator=generator(seed)).tolist()
    return Canvas.pack([ids], [prompt + new], model.mask_id, 0)


def with_gaps(model: Any, seed: int) -> Canvas:
    """Some blocks have nothing open, so that the next one does not follow on the last."""
    ids = torch.randint(3, 140, (1, 40), generator=generator(seed))
    ids[0, [5, 6, 17, 18, 19, 33, 38]] = model.mask_id
    return Canvas.of(ids, model.mask_id)


def story(model: Any, canvas: Canvas, **options: Any) -> list[list[int]]:
    return [step.canvas.ids.flatten().tolist() for step in softdlm.denoise(model, canvas, **options)]


class Watched:
    """A model that notes what it computes."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.windows: list[Window] = []
        self.inputs: list[torch.Tensor] = []
        run = model.hidden_in

        def noted(window: Window, memory: Any, embeds: torch.Tensor, **sight: Any) -> torch.Tensor:
            self.windows.append(window)
            self.inputs.append(embeds.clone())
            return run(window, memory, embeds, **sight)

        monkeypatch.setattr(model, "hidden_in", noted)

    @property
    def columns(self) -> list[list[int]]:
        return [window.columns[0].tolist() for window in self.windows]

    @property
    def written(self) -> list[list[int]]:
        return [
            columns if window.written is None else window.columns[0][window.written[0]].tolist()
            for columns, window in zip(self.columns, self.windows, strict=True)
        ]


@settings(max_examples=30)
@given(networks, seeds, commits, feedbacks, lengths, kinds, st.sampled_from([0.0, 0.7]))
def test_refreshed_at_every_pass_is_no_cache_to_the_bit(
    network: str, seed: int, commit: Any, feedback: Any, block: int, kind: Any, temperature: float
) -> None:
    model = model_of(network, torch.float32)
    canvas = canvas_for(model, seed)
    options: Any = {"commit": commit, "feedback": feedback, "block_length": block, "temperature": temperature}
    plain = list(softdlm.denoise(model, canvas, **options))
    cached = list(softdlm.denoise(model, canvas, cache=kind, refresh=1, **options))
    for one, other in zip(plain, cached, strict=True):
        assert torch.equal(one.canvas.ids, other.canvas.ids)
        assert torch.equal(one.requested, other.requested)
        assert torch.equal(one.prediction.topk_probs[one.requested], other.prediction.topk_probs[one.requested])


@settings(max_examples=20)
@given(networks, seeds, feedbacks, st.integers(1, 9), kinds)
def test_blocks_of_one_pass_are_no_cache(network: str, seed: int, feedback: Any, block: int, kind: Any) -> None:
    """Each pass begins a block, so each computes everything."""
    model = model_of(network)
    options: Any = {"commit": TopN(block), "feedback": feedback, "block_length": block}
    canvas = canvas_for(model, seed)
    assert story(model, canvas, cache=kind, **options) == story(model, canvas, **options)


@settings(max_examples=25)
@given(st.sampled_from(["llada2"]), seeds, commits, feedbacks, lengths, kinds, st.sampled_from([None, 2]))
def test_block_causal_attention_never_goes_stale(
    network: str, seed: int, commit: Any, feedback: Any, block: int, kind: Any, refresh: int | None
) -> None:
    """A closed block depends on nothing that comes later: any rule, any feedback, token for token."""
    model = model_of(network)
    canvas = canvas_for(model, seed)
    options: Any = {"commit": commit, "feedback": feedback, "block_length": block}
    assert story(model, canvas, cache=kind, refresh=refresh, **options) == story(model, canvas, **options)


@pytest.mark.parametrize("kind", ["prefix", "dual"])
def test_blocks_that_need_no_decoding_are_computed_too(kind: Any) -> None:
    """A text with gaps: the next open position may lie several blocks further."""
    model = model_of("llada2")
    for seed in range(4):
        canvas = with_gaps(model, seed)
        options: Any = {"commit": TopN(1), "feedback": Slerp(), "block_length": 4}
        assert story(model, canvas, cache=kind, **options) == story(model, canvas, **options)


@remember
def shallow(network: str) -> Any:
    """A network of one layer, whose keys and values depend on their own input alone."""
    model = copy.copy(model_of(network))
    model.network = copy.deepcopy(model.network)
    model.network.model.layers = model.network.model.layers[:1]
    model.network.config.num_hidden_layers = 1
    return model


@settings(max_examples=25)
@given(st.sampled_from(FULL), seeds, commits, feedbacks, lengths, st.sampled_from([1, 2, 9]), st.booleans())
def test_in_one_layer_nothing_that_stays_hard_goes_stale(
    network: str, seed: int, commit: Any, feedback: Any, block: int, renew: int, gaps: bool
) -> None:
    """So the prefix cache is exact; the dual cache too while what comes after the block stays [MASK]."""
    model = shallow(network)
    canvas = with_gaps(model, seed) if gaps else canvas_for(model, seed)
    options: Any = {"commit": commit, "feedback": feedback, "block_length": block}
    plain = story(model, canvas, **options)
    assert story(model, canvas, cache="prefix", renew=renew, **options) == plain
    if feedback == Mask():
        assert story(model, canvas, cache="dual", renew=renew, **options) == plain


@pytest.mark.parametrize("network", FULL)
def test_in_more_layers_they_do(network: str) -> None:
    """The laws above would hold if a cache did nothing."""

    def runs(model: Any, seed: int) -> set[str]:
        options: Any = {"commit": TopN(1), "feedback": Slerp(), "block_length": 4}
        canvas = canvas_for(model, seed, new=8)
        return {str(story(model, canvas, cache=kind, **options)) for kind in (None, "prefix", "dual")}

    def renewals(seed: int) -> set[str]:
        options: Any = {"commit": TopN(1), "block_length": 4, "cache": "dual"}
        canvas = canvas_for(model_of(network), seed)
        return {str(story(model_of(network), canvas, renew=renew, **options)) for renew in (1, 2, 4)}

    assert any(len(runs(model_of(network), seed)) == 3 for seed in range(8))
    assert any(len(runs(shallow(network), seed)) == 2 for seed in range(8))
    assert any(len(renewals(seed)) == 3 for seed in range(8))


@settings(max_examples=20)
@given(st.sampled_from(["llada", "dream"]), seeds, commits, feedbacks, st.sampled_from([None, 13, 40]))
def test_the_two_caches_coincide_in_the_last_block(
    network: str, seed: int, commit: Any, feedback: Any, block: int | None
) -> None:
    model = model_of(network, torch.float32)
    canvas = canvas_for(model, seed)
    options: Any = {"commit": commit, "feedback": feedback, "block_length": block}
    assert story(model, canvas, cache="prefix", **options) == story(model, canvas, cache="dual", **options)


@settings(max_examples=20)
@given(networks, seeds, commits, lengths, kinds, st.sampled_from([None, 2, 3]), st.sampled_from([Slerp, Euclidean]))
def test_strength_zero_is_vanilla(
    network: str, seed: int, commit: Any, block: int, kind: Any, refresh: int | None, rule: Any
) -> None:
    model = model_of(network)
    canvas = canvas_for(model, seed)
    options: Any = {"commit": commit, "block_length": block, "cache": kind, "refresh": refresh}
    assert story(model, canvas, feedback=rule(lam=0.0), **options) == story(model, canvas, **options)


@settings(max_examples=20)
@given(networks, seeds, commits, feedbacks, lengths, kinds)
def test_early_finish_changes_passes_never_text(
    network: str, seed: int, commit: Any, feedback: Any, block: int, kind: Any
) -> None:
    model = model_of(network, torch.float32)
    prompt = torch.randint(3, 140, (6,), generator=generator(seed)).tolist()
    options: Any = {"commit": commit, "feedback": feedback, "block_length": block, "cache": kind}
    whole = softdlm.generate(model, prompt, max_new_tokens=12, early_finish=False, **options)
    early = softdlm.generate(model, prompt, max_new_tokens=12, **options)
    assert early.ids == whole.ids
    assert early.forwards <= whole.forwards


@pytest.mark.parametrize("apart", [True, False], ids=["rows apart", "rows together"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", ["prefix", "dual"])
def test_unchanged_inputs_give_the_prediction_of_the_full_pass(
    network: str, kind: Any, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is committed in the first pass, which computes everything: the second, cached, must say the same."""
    monkeypatch.setattr("softdlm.cache.rows_apart", lambda device: apart)
    model = model_of(network)
    prompts = [torch.randint(3, 140, (n,), generator=generator(n)).tolist() for n in (9, 4, 15)]
    canvas = Canvas.pack(prompts, [24, 14, 29], model.mask_id, 0)

    def wait(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        return open & (context.passes > 0)

    wait.may_wait = 1  # type: ignore[attr-defined]
    close = 1e-5 if network.startswith("llada2") else 1e-10  # its router stays in float32
    first, second, *_ = softdlm.denoise(model, canvas, commit=wait, block_length=5, cache=kind)
    assert torch.equal(first.active, second.active)
    where = second.active
    for name in ("log_confidence", "entropy", "one_minus_margin", "topk_probs"):
        one, other = (getattr(step.prediction, name)[where] for step in (first, second))
        torch.testing.assert_close(one, other, atol=close, rtol=close)


@pytest.mark.parametrize("network", ["llada", "dream"])
@pytest.mark.parametrize("kind", ["prefix", "dual"])
@pytest.mark.parametrize("refresh", [None, 3])
def test_what_each_pass_computes(network: str, kind: Any, refresh: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything at the start of a block and at each refresh; Dream also looks at the state before the block."""
    model = model_of(network)
    watched = Watched(model, monkeypatch)
    canvas = canvas_for(model, 1, prompt=6, new=13)
    options: Any = {"commit": TopN(1), "block_length": 5, "feedback": Slerp()}
    list(softdlm.denoise(model, canvas, cache=kind, refresh=refresh, **options))
    everything, back = list(range(19)), model.first_open
    expected = []
    for start, length in ((6, 5), (11, 5), (16, 3)):
        end = start + length if kind == "dual" else 19
        near = list(range(start, end))
        expected += [
            (everything, everything) if n % (refresh or length) == 0 else (range(start - back, end), near)
            for n in range(length)
        ]
    assert watched.columns == [list(columns) for columns, _ in expected]
    assert watched.written == [list(written) for _, written in expected]


@pytest.mark.parametrize("network", ["llada", "dream"])
@pytest.mark.parametrize("kind", ["prefix", "dual"])
@pytest.mark.parametrize("renew", [1, 2, 3, 9])
def test_a_block_begins_with_what_changed(network: str, kind: Any, renew: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every n-th with everything; the others with the block just closed, whose last tokens are new, and their own."""
    model = model_of(network)
    watched = Watched(model, monkeypatch)
    canvas = canvas_for(model, 1, prompt=6, new=23)
    options: Any = {"commit": TopN(2), "block_length": 5, "feedback": Slerp()}
    steps = list(softdlm.denoise(model, canvas, cache=kind, renew=renew, **options))
    back, expected = model.first_open, []
    for number, (start, length) in enumerate(((6, 5), (11, 5), (16, 5), (21, 5), (26, 3))):
        end = start + length if kind == "dual" else 29
        begin = (0, 0) if number % renew == 0 else (start - 5 - back, start - 5)
        expected += [(*begin, end if number % renew else 29)]
        expected += [(start - back, start, end)] * ((length + 1) // 2 - 1)
    assert watched.columns == [list(range(seen, end)) for seen, _, end in expected]
    assert watched.written == [list(range(start, end)) for _, start, end in expected]
    assert len(steps) == len(list(softdlm.denoise(model, canvas, **options)))


def test_a_block_that_does_not_follow_on_the_last_is_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window would have to be longer. Blocks are counted as a row comes to them."""
    model = model_of("llada")
    watched = Watched(model, monkeypatch)
    list(softdlm.denoise(model, with_gaps(model, 0), commit=TopN(4), block_length=5, cache="dual", renew=9))
    everything = list(range(40))
    assert watched.columns == [everything, everything, everything, list(range(30, 40))]


@pytest.mark.parametrize("network", FULL)
@pytest.mark.parametrize("kind", ["prefix", "dual"])
def test_rows_renew_each_at_its_own_time(network: str, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In shared products: some rows whole, some at the start of a block, some within one."""
    monkeypatch.setattr("softdlm.cache.rows_apart", lambda device: False)
    model = model_of(network)
    prompts = [torch.randint(3, 140, (n,), generator=generator(n)).tolist() for n in (9, 4, 15, 7)]
    options: Any = {"commit": EntropyBound(0.6), "feedback": Slerp(), "block_length": 3, "cache": kind, "renew": 2}
    options |= {"max_new_tokens": 14, "engine": "dynamic"}
    together = softdlm.generate(model, prompts, **options)
    alone = [softdlm.generate(model, prompt, **options) for prompt in prompts]
    assert len({answer.forwards for answer in alone}) > 1
    assert [(each.ids, each.forwards) for each in together] == [(each.ids, each.forwards) for each in alone]


def test_block_causal_passes_compute_the_block_and_once_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llada2")
    watched = Watched(model, monkeypatch)
    list(softdlm.denoise(model, canvas_for(model, 1, prompt=6, new=10), commit=TopN(1), block_length=4, cache="dual"))
    block, before = list(range(8, 12)), list(range(4, 12))
    assert watched.columns == [
        *(list(range(8)), list(range(4, 8))),
        *(before, block, block, block),
        *(list(range(8, 16)), *[list(range(12, 16))] * 3),
    ]


def test_behind_the_block_soft_tokens_are_those_of_the_last_full_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llada")
    watched, rule = Watched(model, monkeypatch), Slerp(k=3, lam=0.4)
    canvas = canvas_for(model, 1, prompt=6, new=12)
    steps: list[Step] = list(
        softdlm.denoise(model, canvas, commit=TopN(1), feedback=rule, block_length=4, cache="dual")
    )
    assert [window.written is None for window in watched.windows] == [True, False, False, False] * 3
    embeddings = softdlm.Embeddings(model.embedding, model.embedding[model.mask_id])
    behind = torch.arange(18) >= 10
    assert [int(step.requested.sum()) for step in steps] == [12, 3, 2, 1, 8, 3, 2, 1, 4, 3, 2, 1]
    second_block, soft = watched.inputs[4][0], steps[0].prediction.at(behind[None])
    assert torch.equal(second_block[behind], rule(soft, embeddings, steps[0].context.at(behind[None])))


def test_rows_together_share_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: whatever is left of a row's canvas; and two products while one row refreshes and another does not."""
    monkeypatch.setattr("softdlm.cache.rows_apart", lambda device: False)
    model = model_of("llada")
    watched = Watched(model, monkeypatch)
    canvas = Canvas.pack([[5] * 8, [7] * 13], [20, 20], model.mask_id, 0)
    list(softdlm.denoise(model, canvas, commit=TopN(2), block_length=4, cache="dual"))
    seen = [(window.rows.tolist(), window.written is None, window.queries.shape[1]) for window in watched.windows]
    assert seen == [*[([0, 1], True, 20), ([0, 1], False, 4)] * 2, ([0], True, 20), ([0], False, 4)]
    last = watched.windows[3]
    assert last.columns.tolist() == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert last.written is not None
    assert last.written.tolist() == [[True] * 4, [False, True, True, True]]
    watched.windows.clear()

    def in_turn(prediction: Any, open: Any, context: Any) -> torch.Tensor:
        """The first row closes its block in one pass, the second a position a pass."""
        return open & ((torch.arange(2)[:, None] == 0) | (open.cumsum(1) == 1))

    list(softdlm.denoise(model, canvas, commit=in_turn, block_length=4, cache="dual"))
    assert [(window.rows.tolist(), window.written is None) for window in watched.windows[1:3]] == [
        ([0], True),
        ([1], False),
    ]


def test_rows_on_threads_write_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    model = model_of("dream", torch.float32)
    prompts = [torch.randint(3, 140, (n,), generator=generator(n)).tolist() for n in (9, 4, 15, 9, 11)]
    options: Any = {"feedback": Slerp(), "block_length": 4, "cache": "dual", "commit": Threshold(0.4)}
    alone = [softdlm.generate(model, prompt, max_new_tokens=14, **options) for prompt in prompts]
    torch.set_num_threads(2)
    try:
        together = softdlm.generate(model, prompts, max_new_tokens=14, **options)
    finally:
        torch.set_num_threads(before)
    assert together == alone


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("network", "bad", "words"),
    [
        ("llada", {"cache": "suffix"}, "unknown cache rule 'suffix'; known are prefix, dual"),
        ("llada", {"refresh": 2}, "refresh 2 belongs to a cache: give cache as well"),
        ("llada", {"cache": "dual", "refresh": 0}, "refresh must be at least 1 pass"),
        ("llada", {"renew": 2}, "renew 2 belongs to a cache: give cache as well"),
        ("llada", {"cache": "dual", "block_length": 4, "renew": 0}, "renew must be at least 1 block, not 0"),
        ("llada", {"cache": "dual", "block_length": 4, "renew": 2, "refresh": 3}, "renew 2 and refresh 3.*one of them"),
        ("llada", {"cache": "dual", "renew": 2}, "renew 2 counts blocks.*give a block_length"),
        ("llada2", {"cache": "dual", "block_length": 4, "renew": 2}, "renew 2 is for full attention.*leave renew out"),
        ("llada2", {"cache": "prefix"}, "the prefix cache has nothing to reuse.*give a block_length"),
        ("llada2 full", {"cache": "dual"}, "the dual cache has nothing to reuse.*give a block_length"),
    ],
)
def test_what_cannot_be_meant_is_refused(network: str, bad: dict[str, Any], words: str) -> None:
    model = model_of(network)
    with pytest.raises(UsageError, match=words):
        softdlm.denoise(model, canvas_for(model, 0), **bad)


def test_a_model_without_keys_and_values_has_no_cache() -> None:
    toy = harry_potter()
    with pytest.raises(UsageError, match="Harry Potter or Star Wars has no KV cache: leave cache out"):
        softdlm.denoise(toy, Canvas.of(toy.canvas_ids, toy.mask_id), cache="dual")


def test_memory_lies_where_the_model_does() -> None:
    memory = model_of("dream", torch.float32).memory(3, 20)
    assert len(memory.keys) == len(memory.values) == 3
    assert {(tensor.shape, tensor.dtype) for tensor in (*memory.keys, *memory.values)} == {
        (torch.Size([3, 2, 20, 16]), torch.float32)
    }
    assert memory.keys[0].device.type == torch.device(DEVICE).type
