"""The laws of the loop, on tiny checkpoints of every family and on a denoiser whose joint is known."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import (
    Additive,
    Canvas,
    EntropyBound,
    Euclidean,
    Factor,
    Mask,
    NormMix,
    PromptError,
    Slerp,
    Step,
    Steps,
    Threshold,
    TopN,
    UsageError,
)
from softdlm.engine.plan import eos_reached
from softdlm.models.toy import JointDenoiser, harry_potter
from tests.conftest import FAMILIES, tiny
from tests.strategies import generator

families = st.sampled_from(FAMILIES)
blocks = st.sampled_from([None, 4, 8])
commits: Any = st.sampled_from(
    [TopN(1), TopN(3), Threshold(0.5), Factor(1.2), EntropyBound(0.5), Steps(4), Steps(6, schedule="eps")]
)
feedbacks: Any = st.sampled_from(
    [Mask(), Slerp(), Euclidean(k=2), Slerp(norm="candidate"), Euclidean(norm="mask"), Additive(), NormMix(k=2)]
)


def canvas_for(model: Any, seed: int, prompt: int = 6, new: int = 10) -> Canvas:
    ids = torch.randint(3, 140, (prompt,), generator=generator(seed)).tolist()
    return Canvas.pack([ids], [prompt + new], model.mask_id, 0)


def final(steps: list[Step]) -> list[int]:
    return steps[-1].canvas.ids[0].tolist()


@settings(max_examples=40)
@given(families, st.integers(0, 999), commits, feedbacks, blocks)
def test_each_pass_commits_open_positions_for_good(
    family: str, seed: int, commit: Any, feedback: Any, block: int | None
) -> None:
    """Any commit rule with any feedback, family and block length closes the canvas and never takes back."""
    model = tiny(family)
    canvas = canvas_for(model, seed)
    before = canvas
    for step in softdlm.denoise(model, canvas, commit=commit, feedback=feedback, block_length=block):
        assert not (step.committed & ~before.open).any()
        assert torch.equal(step.canvas.open, before.open & ~step.committed)
        assert torch.equal(step.canvas.ids[~step.committed], before.ids[~step.committed])
        assert torch.equal(step.canvas.ids[step.committed], step.prediction.token[step.committed])
        if not isinstance(commit, Steps):
            assert step.committed.any()
        before = step.canvas
    assert not before.open.any()
    assert not (before.ids == model.mask_id).any()


@settings(max_examples=30)
@given(families, st.integers(0, 999), st.integers(1, 5), st.integers(1, 14), blocks)
def test_top_n_takes_ceil_of_each_block(family: str, seed: int, n: int, new: int, block: int | None) -> None:
    model = tiny(family)
    steps = list(softdlm.denoise(model, canvas_for(model, seed, 8, new), commit=TopN(n), block_length=block))
    sizes = [new] if block is None else [min(block, new - start) for start in range(0, new, block)]
    assert len(steps) == sum(math.ceil(size / n) for size in sizes)
    assert [step.index for step in steps] == list(range(1, len(steps) + 1))


@settings(max_examples=30)
@given(families, st.integers(0, 999), commits, blocks, st.sampled_from([Slerp, Euclidean, Additive]))
def test_strength_zero_is_vanilla_token_for_token(
    family: str, seed: int, commit: Any, block: int | None, kind: Any
) -> None:
    model = tiny(family)
    canvas = canvas_for(model, seed)
    zero = Additive(0.0, 0.0, 0.0) if kind is Additive else kind(lam=0.0)
    vanilla = list(softdlm.denoise(model, canvas, commit=commit, block_length=block))
    soft = list(softdlm.denoise(model, canvas, commit=commit, feedback=zero, block_length=block))
    assert [step.canvas.ids.tolist() for step in soft] == [step.canvas.ids.tolist() for step in vanilla]


@settings(max_examples=15)
@given(families, st.integers(0, 999), blocks)
def test_adaptive_rules_reduce_to_one_at_a_time(family: str, seed: int, block: int | None) -> None:
    model = tiny(family)
    canvas = canvas_for(model, seed)

    def run(commit: Any) -> list[list[int]]:
        steps = softdlm.denoise(model, canvas, commit=commit, feedback=Slerp(), block_length=block)
        return [step.canvas.ids[0].tolist() for step in steps]

    assert run(Threshold(1.5)) == run(TopN(1))
    assert run(EntropyBound(0.0)) == run(TopN(1, rank="entropy"))


@settings(max_examples=20)
@given(families, st.integers(0, 999), commits, feedbacks, blocks)
def test_early_finish_changes_passes_never_text(
    family: str, seed: int, commit: Any, feedback: Any, block: int | None
) -> None:
    """Steps' counts are of the whole canvas, so the schedule too may only end sooner."""
    model = tiny(family)
    prompt = torch.randint(3, 140, (6,), generator=generator(seed)).tolist()
    eos = tiny(family).eos_ids
    options: dict[str, Any] = {"commit": commit, "feedback": feedback, "block_length": block, "max_new_tokens": 12}
    whole = softdlm.generate(model, prompt, early_finish=False, **options)
    early = softdlm.generate(model, prompt, early_finish=True, **options)
    assert early.ids == whole.ids
    assert early.forwards <= whole.forwards
    assert len(early.canvas_ids) == 12
    if early.finish_reason == "eos":
        assert early.canvas_ids[len(early.ids)] in eos
    assert whole.trace.replay()[:12] == whole.canvas_ids


def test_early_finish_saves_passes_somewhere() -> None:
    """The law above would hold if early finish did nothing."""
    model = tiny("llada")
    saved = 0
    for seed in range(20):
        prompt = torch.randint(3, 140, (6,), generator=generator(seed)).tolist()
        whole = softdlm.generate(model, prompt, max_new_tokens=16, early_finish=False)
        early = softdlm.generate(model, prompt, max_new_tokens=16)
        saved += whole.forwards - early.forwards
    assert saved > 0


def test_eos_counts_only_in_the_answer_and_with_nothing_open_before_it() -> None:
    ids = torch.tensor([[7, 7, 1, 9, 7, 9], [7, 1, 9, 9, 7, 1], [1, 2, 7, 9, 9, 7], [1, 2, 3, 4, 5, 6]])
    free = torch.tensor([[False, False, True, True, True, True]] * 4)
    canvas = Canvas(ids, ids == 9, free, torch.ones_like(free))
    assert eos_reached(canvas, torch.tensor([7])).tolist() == [False, False, True, False]


def test_first_pass_sees_hard_masks_and_later_ones_soft_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada")
    seen: list[torch.Tensor] = []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda embeds, **kw: (seen.append(embeds.clone()), hidden(embeds, **kw))[1])
    canvas = canvas_for(model, 1)
    steps = list(softdlm.denoise(model, canvas, commit=TopN(2), feedback=Slerp(k=3, lam=0.3)))
    mask = model.embedding[model.mask_id]
    assert torch.equal(seen[0], model.embed(canvas.ids))
    for step, embeds in zip(steps, seen[1:], strict=False):
        still = step.canvas.open
        assert torch.equal(embeds[~still], model.embed(step.canvas.ids)[~still])
        assert not torch.isclose(embeds[still], mask).all(-1).any()
        torch.testing.assert_close(embeds[still].norm(dim=-1), mask.norm().expand(int(still.sum())))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("feedback", [Mask(), Slerp()])
def test_blocks_close_from_left_to_right(family: str, feedback: Any) -> None:
    model = tiny(family)
    prompt, length = 6, 8
    start = 0 if family == "llada2" else prompt
    for step in softdlm.denoise(
        model, canvas_for(model, 3, prompt, 26), commit=Threshold(0.4), feedback=feedback, block_length=length
    ):
        open = (step.canvas.open | step.committed)[0].nonzero().flatten()
        block = (int(open[0]) - start) // length
        places = step.committed[0].nonzero().flatten()
        assert ((places - start) // length == block).all()
        context = step.context
        inside = range(max(prompt, start + block * length), min(start + (block + 1) * length, prompt + 26))
        assert int(context.block_masks) == len(inside)
        assert int(context.left) == sum(int(place) in inside for place in open)


def test_block_causal_decoding_ignores_what_comes_later() -> None:
    """LLaDA-2 in blocks: a longer canvas gives the same first block, with and without soft tokens."""
    model = tiny("llada2")
    for feedback in (Mask(), Slerp()):
        short = softdlm.generate(
            model, [5, 9, 21], max_new_tokens=13, block_length=8, feedback=feedback, early_finish=False
        )
        long = softdlm.generate(
            model, [5, 9, 21], max_new_tokens=29, block_length=8, feedback=feedback, early_finish=False
        )
        assert long.canvas_ids[:13] == short.canvas_ids


def test_hidden_blocks_are_not_predicted_and_begin_with_hard_masks() -> None:
    """Under block-causal attention nothing beyond the block is there yet, so nothing beyond it can become soft."""
    model = tiny("llada2")
    steps = list(softdlm.denoise(model, canvas_for(model, 4, 6, 26), feedback=Slerp(), block_length=8))
    assert all(torch.equal(step.requested, step.active) for step in steps)
    whole = next(iter(softdlm.denoise(model, canvas_for(model, 4, 6, 26), feedback=Slerp())))
    assert int(whole.requested.sum()) == 26


def test_attention_of_llada2_follows_the_decoding() -> None:
    assert tiny("llada2").attention_block(None) is None
    assert tiny("llada2").attention_block(16) == 16
    assert tiny("llada2", attention="full").attention_block(16) is None
    assert tiny("llada2", attention="block-causal").attention_block(None) == 32
    assert tiny("llada").attention_block(16) is None


def test_feedback_reads_the_unfiltered_distribution() -> None:
    """Temperature and top-p act on the token and its rank only: candidates are the same with and without."""
    model = tiny("dream")
    canvas = canvas_for(model, 2)
    plain = next(iter(softdlm.denoise(model, canvas)))
    warm = next(iter(softdlm.denoise(model, canvas, temperature=1.3, top_p=0.5)))
    where = plain.requested
    assert torch.equal(plain.prediction.topk_ids[where], warm.prediction.topk_ids[where])
    assert torch.equal(plain.prediction.topk_probs[where], warm.prediction.topk_probs[where])
    assert not torch.equal(plain.prediction.log_confidence[where], warm.prediction.log_confidence[where])


def test_policies_hold_in_the_loop() -> None:
    model = tiny("llada")
    chosen = dict.fromkeys(("allow", "last", "forbid"), 0)
    for seed in range(6):
        for policy in chosen:
            *_, step = softdlm.denoise(model, canvas_for(model, seed, new=24), commit=TopN(3), eos=policy)  # type: ignore[arg-type]
            chosen[policy] += int(torch.isin(step.canvas.ids[step.canvas.free], torch.tensor(model.eos_ids)).sum())
    assert chosen["allow"] > 0
    assert chosen["last"] > 0
    assert chosen["forbid"] == 0


def test_eos_last_commits_only_when_nothing_else_is_predicted() -> None:
    model = tiny("llada")
    late = 0
    for seed in range(6):
        for step in softdlm.denoise(model, canvas_for(model, seed, new=24), eos="last"):
            deferred = step.prediction.deferred & step.active
            if (step.committed & deferred).any():
                late += 1
                assert torch.equal(step.active, deferred)
                assert int(step.committed.int().argmax()) == int(deferred.int().argmax())
    assert late > 0


def test_vanilla_in_blocks_predicts_only_the_block() -> None:
    """Later blocks need no prediction unless they are to become soft tokens."""
    model = tiny("llada")
    first = next(iter(softdlm.denoise(model, canvas_for(model, 1, new=16), block_length=4)))
    soft = next(iter(softdlm.denoise(model, canvas_for(model, 1, new=16), block_length=4, feedback=Slerp())))
    assert int(first.requested.sum()) == 4
    assert int(soft.requested.sum()) == 16


class TestToy:
    """Figure 1, where every number is known."""

    def joint(self, feedback: Any) -> torch.Tensor:
        """Product of the marginals that the second pass predicts, nothing committed before it."""
        model = harry_potter()

        def none_at_first(prediction: Any, open: Any, context: Any) -> torch.Tensor:
            return open & (context.passes > 0)

        none_at_first.may_wait = 1  # type: ignore[attr-defined]
        *_, step = softdlm.denoise(
            model,
            Canvas.of(model.canvas_ids, model.mask_id),
            commit=none_at_first,
            feedback=feedback,
            candidates=len(model.words) - 1,
        )
        spread = torch.zeros(2, len(model.words))
        spread.scatter_(1, step.prediction.topk_ids[0, -2:], step.prediction.topk_probs[0, -2:])
        return spread[0][model.choices][:, None] * spread[1][model.choices][None]

    def test_vanilla_is_the_product_of_the_marginals(self) -> None:
        model = harry_potter()
        product = model.joint.sum(1)[:, None] * model.joint.sum(0)[None]
        torch.testing.assert_close(self.joint(Mask()), product, atol=1e-6, rtol=1e-5)

    def test_soft_tokens_follow_the_multiplicative_mixture(self) -> None:
        """Two marginals mixed by hand: weight 1 - lam on [MASK], lam p_i on each candidate, in log space."""
        model = harry_potter()
        lam = 0.3
        shares = model.conditional(0, {}).clone()
        kept = shares.topk(2)
        p = kept.values / kept.values.sum()
        expected = (1 - lam) * model.conditional(0, {1: len(model.choices)}).log()
        partner = model.conditional(1, {}).topk(2).indices
        for weight, word in zip(p, partner, strict=True):
            expected = expected + lam * weight * model.conditional(0, {1: int(word)}).log()
        joint = self.joint(Euclidean(k=2, lam=lam))
        torch.testing.assert_close(joint.sum(1), expected.softmax(-1), atol=1e-5, rtol=1e-4)

    def test_soft_tokens_move_mass_to_the_coherent_answer(self) -> None:
        model = harry_potter()
        words = [model.words[choice] for choice in model.choices]
        index = words.index("Harry"), words.index("Potter")
        wrong = words.index("Harry"), words.index("Wars")
        vanilla, soft = self.joint(Mask()), self.joint(Slerp(k=3, lam=0.3))
        assert soft[index] > vanilla[index]
        assert soft[wrong] < vanilla[wrong]

    def test_sequential_decoding_is_coherent(self) -> None:
        model = JointDenoiser("It is", {"a b c": 0.4, "d e f": 0.35, "a e c": 0.25})
        *_, step = softdlm.denoise(model, Canvas.of(model.canvas_ids, model.mask_id))
        answer = " ".join(model.words[token] for token in step.canvas.ids[0, 2:])
        assert answer in {"a b c", "d e f", "a e c"}

    def test_conditionals_are_those_of_the_table(self) -> None:
        model = JointDenoiser("It is", {"a b": 0.5, "c d": 0.3, "a d": 0.2}, smoothing=0.0)
        words = [model.words[choice] for choice in model.choices]
        given_a = dict(zip(words, model.conditional(1, {0: words.index("a")}).tolist(), strict=True))
        assert given_a["b"] == pytest.approx(0.5 / 0.7)
        assert given_a["d"] == pytest.approx(0.2 / 0.7)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"block_length": 0}, UsageError, "block_length must be at least 1, or None"),
        ({"eos": "never"}, UsageError, "eos must be one of allow, last, forbid, forbid-first, not 'never'"),
        ({"forbid": [999]}, UsageError, "999 lies outside the vocabulary of 192"),
        ({"candidates": 0}, UsageError, "candidates must be at least 1, not 0"),
        ({"temperature": -1.0}, UsageError, "not -1.0"),
        ({"eos": "last", "forbid": [181]}, UsageError, "both forbidden and wanted last"),
    ],
)
def test_bad_options_fail_before_the_first_pass(bad: dict[str, Any], error: type[Exception], words: str) -> None:
    model = tiny("llada")
    with pytest.raises(error, match=words):
        softdlm.denoise(model, canvas_for(model, 0), **bad)


def one_column(prediction: Any, open: torch.Tensor, context: Any) -> Any:
    return open[:, :1]


def numbers(prediction: Any, open: torch.Tensor, context: Any) -> Any:
    return open.long()


def words(prediction: Any, open: torch.Tensor, context: Any) -> Any:
    return "all of them"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("rule", "says"),
    [(one_column, r"torch.bool \[1, 1\]"), (numbers, r"torch.int64 \[1, \d+\]"), (words, "'all of them'")],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_commit_rule_speaks_of_each_position(rule: Any, says: str) -> None:
    """One column would be broadcast, and every position committed."""
    model, returns = tiny("llada"), r"a commit rule returns torch.bool \[1, 16\]"
    with pytest.raises(UsageError, match=f"{rule.__name__} returned {says}; {returns}"):
        list(softdlm.denoise(model, canvas_for(model, 0), commit=rule))


def test_dream_cannot_open_its_first_position() -> None:
    model = tiny("dream")
    with pytest.raises(PromptError, match="begin with BOS"):
        softdlm.denoise(model, Canvas.of(torch.full((1, 4), model.mask_id), model.mask_id))


def test_a_canvas_longer_than_the_context_is_refused() -> None:
    model = tiny("dream")
    with pytest.raises(PromptError, match="take 2049 tokens, the model's context is 2048"):
        softdlm.denoise(model, Canvas.pack([[1]], [2049], model.mask_id, 0))
