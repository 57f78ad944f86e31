"""The fused reductions against the plain one, closed forms in double, and a stable sort."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from softdlm.kernels.vocabulary import MAX_CANDIDATES, Special, reduce_tiled
from softdlm.kernels.vocabulary_triton import Tuning, reduce_triton
from softdlm.predict import Sampling, reduce_logits
from softdlm.types import Prediction
from tests.conftest import DEVICE
from tests.strategies import generator

Reduce = Callable[[Tensor, Special, int], Prediction]
REDUCTIONS: dict[str, Callable[[int, int], Reduce]] = {
    "tiled": lambda tile, _: lambda logits, special, k: reduce_tiled(logits, special, k, tile),
    "triton": lambda tile, programs: (
        lambda logits, special, k: reduce_triton(logits, special, k, Tuning(tile, warps=1, programs=programs))
    ),
}
"""Name -> (tile, programs) -> reduction."""
either = pytest.mark.parametrize("make", REDUCTIONS.values(), ids=REDUCTIONS.keys())
found = settings(phases=(Phase.explicit, Phase.generate))
"""Failures are found and not made smaller, for which the interpreter is too slow."""
few = settings(found, max_examples=15)
Make = Callable[[int, int], Reduce]
tiles, programs = st.sampled_from([16, 32, 64]), st.integers(1, 6)


@dataclass(frozen=True)
class Problem:
    logits: Tensor
    sampling: Sampling

    def solve(self, reduce: Reduce) -> Prediction:
        return reduce(self.logits, self.sampling.special(self.logits.device), self.sampling.k)


def problem_of(seed: int) -> Problem:
    """Odd widths, ties, hardly any finite logit, huge ones, [MASK] on top, any mixture of policies."""
    pick, rng = random.Random(seed), generator(seed)
    columns, rows = pick.randint(4, 99), pick.randint(1, 2)
    logits = torch.randn(rows, columns, generator=rng, dtype=torch.float64)
    logits = logits * pick.choice([0.01, 1.0, 5.0, 40.0, 1e3]) + pick.choice([0.0, -300.0, 3e4])
    if pick.random() < 0.5:  # ties
        logits = (logits / 3).round() * 3
    mask_id, ordinary, *free = pick.sample(range(columns), columns)
    if pick.random() < 0.4:  # -inf but for a few
        few = torch.rand(rows, columns, generator=rng) < pick.choice([0.0, 0.05, 0.3])
        few[:, ordinary] = True
        logits = logits.masked_fill(~few, float("-inf"))
    logits[:, mask_id] += pick.choice([0.0, 10.0, 90.0, 1e3])
    forbid, last = free[: pick.randint(0, 5)], free[5 : 5 + pick.randint(0, 5)]
    pick.choice([forbid, last, []]).append(mask_id)
    dtype = pick.choice([torch.float32, torch.bfloat16, torch.float16])
    sampling = Sampling(mask_id, tuple(forbid), tuple(last), k=pick.randint(1, MAX_CANDIDATES))
    return Problem(logits.to(dtype).to(DEVICE), sampling)


problems = st.integers(0, 2**31).map(problem_of)


@either
@found
@given(problem=problems, tile=tiles, programs=programs)
def test_it_is_the_plain_reduction(make: Make, problem: Problem, tile: int, programs: int) -> None:
    ours, plain = problem.solve(make(tile, programs)), reduce_logits(problem.logits, problem.sampling)
    assert torch.equal(ours.token, plain.token)
    for field in ("log_confidence", "entropy", "one_minus_margin", "topk_probs"):
        torch.testing.assert_close(getattr(ours, field), getattr(plain, field), atol=2e-6, rtol=1e-5, msg=field)
    assert (ours.entropy >= 0).all()
    check_candidates(ours, problem)


def check_candidates(ours: Prediction, problem: Problem) -> None:
    """Best first, equals by id, [MASK] and forbidden ids nowhere; of impossible ones the id does not matter."""
    allowed = problem.logits.float()
    allowed[:, [problem.sampling.mask_id, *problem.sampling.forbid]] = float("-inf")
    order = allowed.sort(dim=1, descending=True, stable=True)
    k = min(problem.sampling.k, allowed.shape[1])
    possible = order.values[:, :k].isfinite()
    assert torch.equal(ours.topk_ids[possible], order.indices[:, :k][possible])
    assert (ours.topk_probs[~possible] == 0).all()
    assert ((ours.topk_ids >= 0) & (ours.topk_ids < allowed.shape[1])).all()
    assert torch.equal(ours.token, ours.topk_ids[:, 0])


@either
@few
@given(gap=st.floats(0, 60), more=st.floats(0.01, 5), place=st.integers(0, 39))
def test_confidences_that_round_to_one_keep_their_order_and_value(
    make: Make, gap: float, more: float, place: int
) -> None:
    """One logit above 39 equal ones, [MASK] among these: all is known in closed form."""
    logits = torch.zeros(2, 41, device=DEVICE)
    logits[0, place], logits[1, place] = gap, gap + more
    ours = make(16, 6)(logits, Special.of(40, (), (), logits.device), 2)
    lead = logits[:, place].double()
    others = 40 * (-lead).exp()
    torch.testing.assert_close(ours.log_confidence.double(), -others.log1p(), atol=0, rtol=1e-5)
    entropy = others.log1p() + others * lead / (1 + others)
    torch.testing.assert_close(ours.entropy.double(), entropy, atol=0, rtol=1e-5)
    one_minus_margin = (others + (-lead).exp()) / (1 + others)
    torch.testing.assert_close(ours.one_minus_margin.double(), one_minus_margin, atol=0, rtol=1e-5)
    assert ours.log_confidence[0] < ours.log_confidence[1] < 0


@either
@pytest.mark.parametrize("slope", [0.05, 0.3])
def test_rising_and_falling_logits(make: Make, slope: float) -> None:
    """Rising, each tile's best columns drive out those before; falling, none does."""
    ramp = torch.arange(80.0, device=DEVICE) * slope
    problem = Problem(torch.stack([ramp, ramp.flip(0)]), Sampling(40, k=2))
    ours, plain = problem.solve(make(16, 1)), reduce_logits(problem.logits, problem.sampling)
    for field in ("log_confidence", "entropy", "one_minus_margin", "topk_probs"):
        torch.testing.assert_close(getattr(ours, field), getattr(plain, field), atol=2e-6, rtol=1e-5, msg=field)
    check_candidates(ours, problem)


@either
def test_entropy_under_a_sure_mask_is_not_negative(make: Make) -> None:
    """[MASK] ahead by 40 to 79 nats: what is left of the entropy is smaller than the rounding of its terms."""
    logits = torch.zeros(25, 5, device=DEVICE)
    logits[:, 2] = torch.linspace(40, 79, 25)
    entropy = make(16, 1)(logits, Special.of(2, (), (), logits.device), 1).entropy
    assert ((entropy >= 0) & (entropy < 1e-4)).all()


@either
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's numpy, about the very thing
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_where_all_logits_are_broken_ids_still_exist(make: Make, broken: float) -> None:
    """Such a row fails, but only after its soft tokens were read by id: an id outside the table would crash a GPU."""
    logits = torch.full((2, 100), broken, device=DEVICE)
    logits[1] = torch.arange(100.0)
    ours = make(16, 2)(logits, Special.of(7, (3,), (), logits.device), 3)
    assert not ours.entropy[0].isfinite()
    assert ours.entropy[1].isfinite()
    for ids in (ours.token, ours.topk_ids):
        assert ((ids >= 0) & (ids < 100)).all()


@either
@few
@given(seed=st.integers(0, 2**31), place=st.integers(0, 99))
def test_a_broken_logit_is_not_hidden(make: Make, seed: int, place: int) -> None:
    logits = torch.randn(1, 100, generator=generator(seed)).to(DEVICE)
    logits[0, place] = float("nan")
    ours = make(32, 2)(logits, Special.of(99, (3,), (), logits.device), 3)
    assert ours.topk_probs.isnan().all()
    assert place == 3 or (ours.log_confidence.isnan() & ours.entropy.isnan() & ours.one_minus_margin.isnan()).all()
    assert ((ours.topk_ids >= 0) & (ours.topk_ids < 100)).all()


@either
def test_no_rows_give_an_empty_prediction(make: Make) -> None:
    logits = torch.zeros(0, 50, device=DEVICE)
    ours = make(16, 1)(logits, Special.of(0, (), (), logits.device), 3)
    assert ours.token.shape == (0,)
    assert ours.topk_ids.shape == ours.topk_probs.shape == (0, 3)


@given(st.integers(1, 2000), st.integers(1, 200_000), st.sampled_from([1024, 4096]), st.integers(1, 600))
def test_parts_cover_the_vocabulary_once(rows: int, columns: int, tile: int, programs: int) -> None:
    parts, each = Tuning(tile, programs=programs).parts(rows, columns)
    tiles = -(-columns // tile)
    assert (parts - 1) * each < tiles <= parts * each
    assert parts * rows >= min(programs, tiles * rows) / 2
