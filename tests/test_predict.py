"""The vocabulary reduction against plain softmax arithmetic in double."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softdlm import UsageError
from softdlm.predict import Sampling, int64, reduce_hidden, reduce_logits, uniforms
from softdlm.types import Canvas
from tests.conftest import tiny
from tests.strategies import MASK_ID, VOCABULARY, generator, random_logits

seeds = st.integers(0, 2**31)
scales = st.sampled_from([0.1, 1.0, 5.0, 20.0])
ROWS = 6


@given(seeds, scales)
def test_statistics_are_those_of_the_softmax(seed: int, scale: float) -> None:
    logits = random_logits(seed, ROWS, scale)
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID, k=3))
    p = logits.double().softmax(-1)
    allowed = p.clone()
    allowed[:, MASK_ID] = 0
    best = allowed.topk(3, dim=-1)
    entropy = -(p * p.clamp(min=1e-300).log()).sum(-1)
    assert torch.equal(ours.token, best.indices[:, 0])
    assert torch.equal(ours.topk_ids, best.indices)
    torch.testing.assert_close(ours.confidence.double(), best.values[:, 0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours.topk_probs.double(), best.values, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(ours.entropy.double(), entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.margin.double(), best.values[:, 0] - best.values[:, 1], atol=1e-5, rtol=1e-5)


@given(st.floats(20, 60), st.floats(0.01, 5))
def test_confidences_that_round_to_one_keep_their_order(gap: float, more: float) -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[0, 0], logits[1, 0] = gap, gap + more
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID))
    assert ours.log_confidence[0] < ours.log_confidence[1] < 0
    assert ours.one_minus_margin[0] > ours.one_minus_margin[1] > 0
    assert ours.entropy[0] > ours.entropy[1] > 0


@given(seeds, scales)
def test_mask_is_never_predicted_but_stays_in_the_normaliser(seed: int, scale: float) -> None:
    logits = random_logits(seed, ROWS, scale)
    logits[:, MASK_ID] += 1000
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID, k=VOCABULARY - 1))
    assert (ours.token != MASK_ID).all()
    assert (ours.topk_ids != MASK_ID).all()
    assert (ours.confidence < 1e-10).all()
    assert (ours.topk_probs.sum(-1) < 1e-10).all()
    assert ours.entropy.isfinite().all()


@given(seeds, scales, st.sets(st.integers(0, MASK_ID - 1), min_size=1, max_size=5))
def test_forbidden_ids_leave_the_choice_and_the_candidates(seed: int, scale: float, forbidden: set[int]) -> None:
    logits = random_logits(seed, ROWS, scale)
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID, forbid=tuple(forbidden), k=4))
    without = logits.double().clone()
    without[:, list(forbidden)] = float("-inf")
    p = without.softmax(-1)
    assert not set(ours.token.tolist()) & forbidden
    assert not set(ours.topk_ids.flatten().tolist()) & forbidden
    torch.testing.assert_close(ours.confidence.double(), p.gather(1, ours.token[:, None])[:, 0], atol=1e-6, rtol=1e-5)


@given(seeds, scales, st.sets(st.integers(0, MASK_ID - 1), min_size=1, max_size=8))
def test_last_ids_are_chosen_as_ever_and_deferred(seed: int, scale: float, late: set[int]) -> None:
    """LLaDA's rule: the argmax is taken first; then those ids leave the distribution that ranks the others."""
    logits = random_logits(seed, ROWS, scale)
    plain = reduce_logits(logits, Sampling(mask_id=MASK_ID, k=4))
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID, last=tuple(late), k=4))
    assert torch.equal(ours.token, plain.token)
    assert torch.equal(ours.topk_ids, plain.topk_ids)
    assert torch.equal(ours.topk_probs, plain.topk_probs)
    assert ours.deferred.tolist() == [token in late for token in ours.token.tolist()]
    without = logits.double().clone()
    without[:, list(late)] = float("-inf")
    kept = ~ours.deferred
    p = without.softmax(-1).gather(1, ours.token[:, None])[:, 0]
    torch.testing.assert_close(ours.confidence.double()[kept], p[kept], atol=1e-6, rtol=1e-5)


@given(seeds, st.floats(0.05, 2), st.floats(0.1, 0.99), st.integers(1, 10))
def test_temperature_and_filters_shape_the_rank_but_not_the_feedback(
    seed: int, temperature: float, top_p: float, top_k: int
) -> None:
    logits = random_logits(seed, ROWS, 3.0)
    numbers = torch.rand(ROWS, generator=generator(seed + 1))
    sampling = Sampling(mask_id=MASK_ID, temperature=temperature, top_p=top_p, top_k=top_k, k=3)
    ours = reduce_logits(logits, sampling, numbers)
    plain = reduce_logits(logits, Sampling(mask_id=MASK_ID, k=3))
    assert torch.equal(ours.topk_ids, plain.topk_ids)
    assert torch.equal(ours.topk_probs, plain.topk_probs)
    for row in range(ROWS):
        p = dream_distribution(logits[row].double(), temperature, top_p, top_k)
        assert p[ours.token[row]] > 0
        assert ours.confidence[row].double() == pytest.approx(float(p[ours.token[row]]), abs=1e-5)
        kept = p[p > 0]
        assert float(ours.entropy[row]) == pytest.approx(float(-(kept * kept.log()).sum()), abs=1e-4)


def dream_distribution(logits: torch.Tensor, temperature: float, top_p: float, top_k: int) -> torch.Tensor:
    """Dream's filters one token at a time: keep until the sum first exceeds top_p, then the k best of these."""
    scaled = logits / temperature
    p = scaled.masked_fill(torch.arange(VOCABULARY) == MASK_ID, float("-inf")).softmax(-1)
    kept, total = [MASK_ID], 0.0
    for token in p.argsort(descending=True).tolist():
        if total > top_p or len(kept) == top_k + 1:
            break
        kept.append(token)
        total += float(p[token])
    out = torch.zeros_like(p)
    out[kept] = scaled[kept].softmax(-1)
    return out


def test_draws_follow_the_distribution() -> None:
    logits = random_logits(3, 1, 1.0)
    numbers = torch.rand(20_000, generator=generator(5))
    sampling = Sampling(mask_id=MASK_ID, temperature=0.7)
    drawn = reduce_logits(logits.expand(len(numbers), -1), sampling, numbers).token
    p = (logits[0] / 0.7).masked_fill(torch.arange(VOCABULARY) == MASK_ID, float("-inf")).softmax(-1)
    seen = torch.bincount(drawn, minlength=VOCABULARY) / len(numbers)
    assert (seen - p).abs().max() < 4 * (0.25 / len(numbers)) ** 0.5


@given(seeds, scales, st.floats(0.01, 1), st.floats(0.1, 2))
def test_min_p_keeps_what_is_likely_enough(seed: int, scale: float, min_p: float, temperature: float) -> None:
    logits = random_logits(seed, ROWS, scale)
    logits[:, MASK_ID] += 5
    sampling = Sampling(mask_id=MASK_ID, temperature=temperature, min_p=min_p)
    probabilities = (logits / temperature).index_fill(1, torch.tensor([MASK_ID]), float("-inf")).softmax(-1)
    for draw in torch.linspace(0, 0.999, 5):
        drawn = reduce_logits(logits, sampling, draw.expand(ROWS)).token
        likely = probabilities.gather(1, drawn[:, None]).squeeze(1)
        assert (likely >= min_p * probabilities.amax(-1) * (1 - 1e-4)).all()
    with pytest.raises(UsageError, match=r"min_p must lie in \[0, 1\], not 2"):
        Sampling(mask_id=0, min_p=2.0)


def draws(seeds: list[int], requests: list[int], passes: list[int], canvas: Canvas) -> torch.Tensor:
    a, b, c = (torch.tensor([[int64(each)] for each in values]) for values in (seeds, requests, passes))
    return uniforms(a, b, c, canvas.positions)


def test_numbers_depend_on_seed_request_pass_and_position_only() -> None:
    short = Canvas.pack([[1, 2]], [6], MASK_ID, 0)
    batch = Canvas.pack([[1, 2], [1, 2, 3]], [6, 30], MASK_ID, 0)
    alone = draws([7], [4], [2], short)
    together = draws([7] * 2, [4, 5], [2, 2], batch)
    assert torch.equal(together[0, :6], alone[0])
    swapped = Canvas.pack([[3], [1, 2]], [40, 6], MASK_ID, 0)
    assert torch.equal(draws([7] * 2, [5, 4], [2, 2], swapped)[1, :6], alone[0])
    for other in [([8], [4], [2]), ([7], [3], [2]), ([7], [4], [1]), ([4], [7], [2]), ([7], [2], [4])]:
        assert not torch.equal(draws(*other, short), alone)
    assert len(alone.unique()) == 6


def test_numbers_are_uniform_and_unrelated() -> None:
    """Moments, the share in each tenth, and the correlation along each of the four words."""
    index = torch.arange(40)
    words = torch.meshgrid(index, index, index, index[:8], indexing="ij")
    seeds, requests, passes, positions = (word.reshape(-1, 1) for word in words)
    numbers = uniforms(seeds, requests, passes, positions).reshape(40, 40, 40, 8)
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    flat, count = numbers.flatten(), numbers.numel()
    assert float(flat.mean()) == pytest.approx(0.5, abs=5 * (1 / 12 / count) ** 0.5)
    tenths = torch.histc(flat, 10, 0, 1) / count
    assert (tenths - 0.1).abs().max() < 5 * (0.09 / count) ** 0.5
    for dim in range(4):
        pair = torch.stack([numbers.narrow(dim, 0, 7).flatten(), numbers.narrow(dim, 1, 7).flatten()])
        assert abs(float(pair.corrcoef()[0, 1])) < 5 / pair.shape[1] ** 0.5


def test_numbers_are_splitmix_by_hand() -> None:
    """The same arithmetic with Python's integers, which have no sign bit to lose."""

    def mixed(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
        return word ^ (word >> 31)

    for seed, request, number, place in [(0, 0, 0, 0), (7, 4, 2, 5), (2**64 - 1, 2**63, 3, 9), (-5, 12, 700, 4095)]:
        word = seed % 2**64
        for part in (request, number, place):
            word = mixed((word * 0x9E3779B97F4A7C15 + part + 0x9E3779B97F4A7C15) % 2**64)
        where = torch.arange(place + 1)[None]
        a, b, c = (torch.tensor([[int64(each)]]) for each in (seed, request, number))
        found = uniforms(a, b, c, where)
        assert float(found[0, place]) == (word >> 40) / 2**24


def test_a_draw_takes_each_token_as_often_as_it_is_likely() -> None:
    """The token is the one on whose share of [0, 1) the number falls; never one of probability 0."""
    logits = torch.tensor([[0.0, 1.0, float("-inf"), 2.0, -1.0, float("-inf")]])
    sampling = Sampling(mask_id=5, temperature=1.0)
    numbers = (torch.arange(4096) + 0.5) / 4096
    tokens = reduce_logits(logits.expand(4096, -1), sampling, numbers).token
    shares = torch.bincount(tokens, minlength=6) / 4096
    torch.testing.assert_close(shares, logits[0].softmax(-1), atol=2 / 4096, rtol=0)
    edges = torch.tensor([0.0, 1 - 2.0**-24])
    assert reduce_logits(logits.expand(2, -1), sampling, edges).token.tolist() == [0, 4]


def test_mean_is_the_expected_embedding() -> None:
    logits, table = random_logits(1, ROWS, 2.0).double(), torch.randn(VOCABULARY, 5, dtype=torch.float64)
    mean = reduce_logits(logits, Sampling(mask_id=MASK_ID, forbid=(2,), needs=frozenset({"mean"})), table=table).mean
    p = logits.softmax(-1)
    p[:, [MASK_ID, 2]] = 0
    assert mean is not None
    torch.testing.assert_close(mean, p @ table)


def test_chunks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llada")
    hidden = torch.randn(9, 64)
    sampling = Sampling(mask_id=model.mask_id, k=3, needs=frozenset({"mean"}))
    whole = reduce_hidden(model, hidden, sampling)
    monkeypatch.setattr("softdlm.predict.CHUNK_ELEMENTS", 2 * len(model.embedding))
    parts = reduce_hidden(model, hidden, sampling)
    for name, value in vars(whole).items():
        torch.testing.assert_close(getattr(parts, name), value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
def test_a_token_drawn_from_nonsense_is_in_the_vocabulary(bad: float, uniform: float) -> None:
    """An index beyond it would stop a GPU. The entropy tells that the row is broken."""
    logits = torch.full((2, VOCABULARY), bad)
    ours = reduce_logits(logits, Sampling(mask_id=MASK_ID, temperature=0.7), torch.full((2,), uniform))
    assert (ours.token < VOCABULARY).all()
    assert not ours.entropy.isfinite().any()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"temperature": -0.1}, "temperature must be 0 or at least 1e-06, not -0.1"),
        ({"temperature": float("nan")}, "not nan"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\], not 0.0"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"forbid": (1, 2), "last": (2, 3)}, r"\[2\] are both forbidden and wanted last"),
    ],
)
def test_bad_values_are_named(bad: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Sampling(mask_id=MASK_ID, **bad)  # type: ignore[arg-type]


@given(seeds, scales, st.sampled_from([0.3, 2.0]), st.sampled_from([None, 0.5]))
def test_untempered_confidence_is_that_of_the_models_own_distribution(
    seed: int, scale: float, temperature: float, top_p: float | None
) -> None:
    """The tokens are drawn as before; confidence, entropy and margin are those without temperature and filter."""
    logits, draws = random_logits(seed, ROWS, scale), torch.rand(ROWS, generator=generator(seed))
    kept = {"forbid": (1, 2), "last": (3,), "temperature": temperature, "top_p": top_p}
    tempered = reduce_logits(logits, Sampling(MASK_ID, **kept), draws)
    own = reduce_logits(logits, Sampling(MASK_ID, **kept, confidence="untempered"), draws)
    assert torch.equal(own.token, tempered.token)
    assert torch.equal(own.deferred, tempered.token == 3)
    left = logits.double().index_fill(1, torch.tensor([1, 2, 3]), float("-inf")).softmax(-1)
    best = left.index_fill(1, torch.tensor(MASK_ID), 0).topk(2).values
    by_hand = left.gather(1, own.token[:, None])[:, 0]
    torch.testing.assert_close(own.confidence.double(), by_hand, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(own.entropy.double(), -left.xlogy(left).sum(-1), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(own.margin.double(), best[:, 0] - best[:, 1], atol=1e-5, rtol=1e-4)


@given(seeds, scales)
def test_untempered_and_tempered_are_the_same_for_greedy_choices(seed: int, scale: float) -> None:
    logits = random_logits(seed, ROWS, scale)
    one, other = (reduce_logits(logits, Sampling(MASK_ID, confidence=each)) for each in ("tempered", "untempered"))
    assert torch.equal(one.log_confidence, other.log_confidence)
    assert torch.equal(one.entropy, other.entropy)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_kind_of_confidence_is_refused() -> None:
    with pytest.raises(UsageError, match="confidence must be tempered or untempered, not 'cold'"):
        Sampling(MASK_ID, confidence="cold")  # type: ignore[arg-type]


@given(seeds, scales)
def test_ids_that_come_last_may_be_kept_out_of_feedback(seed: int, scale: float) -> None:
    """They leave candidates, mean and distribution; the probabilities of the others stay, and so does the token."""
    logits, table = random_logits(seed, ROWS, scale), torch.randn(VOCABULARY, 5, generator=generator(seed))
    logits[:, 3] += 3 * scale
    made = {"last": (3, 4), "k": 6, "needs": frozenset({"mean", "probs"})}
    both = [
        reduce_logits(logits, Sampling(MASK_ID, **made, last_candidates=each), table=table) for each in (True, False)
    ]
    kept, out = both
    assert torch.equal(kept.token, out.token)
    assert torch.equal(kept.log_confidence, out.log_confidence)
    expected = logits.softmax(-1).index_fill(1, torch.tensor([3, 4, MASK_ID]), 0)
    assert out.probs is not None
    assert out.mean is not None
    torch.testing.assert_close(out.probs, expected)
    torch.testing.assert_close(out.mean, expected @ table, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(out.topk_probs, expected.topk(6).values)
    assert not torch.isin(out.topk_ids, torch.tensor([3, 4, MASK_ID])).any()
    assert torch.isin(kept.topk_ids, torch.tensor([3])).any()
