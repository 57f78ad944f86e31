"""A prompt decoded in any batch, in any order, ragged or not, gives what it gives alone.

On a CPU to the bit. Rows that share their products (a GPU) round differently: exact in float64, and in float32 a
difference may only start where two choices lie within rounding of each other.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softdlm
from softdlm import (
    Alternate,
    EntropyBound,
    Euclidean,
    Generation,
    HardOnly,
    Mask,
    ReMix,
    Slerp,
    Steps,
    Threshold,
    TopN,
)
from tests.conftest import FAMILIES, tiny
from tests.strategies import generator

ROUNDING = 1e-5
METHODS: list[dict[str, Any]] = [
    {"commit": TopN(2), "feedback": Slerp()},
    {"commit": Threshold(0.5), "feedback": Mask(), "block_length": 8},
    {"commit": EntropyBound(0.4), "feedback": Euclidean(), "block_length": 4},
    {"commit": Steps(5, schedule="eps", rank="entropy"), "feedback": Slerp(lam=0.1)},
    {"commit": Steps(3), "feedback": Slerp(), "block_length": 8},
    {"commit": HardOnly(EntropyBound(0.4)), "feedback": Alternate(Slerp()), "block_length": 8, "eos": "last"},
    {"commit": Steps(4, schedule="power"), "feedback": Alternate(ReMix(), 3, 2), "block_length": 5, "cache": "dual"},
    {"commit": TopN(3), "feedback": Slerp(), "temperature": 0.8, "top_p": 0.9, "seed": 11},
    {"commit": Threshold(0.5), "feedback": Slerp(), "block_length": 4, "cache": "dual"},
    {"commit": EntropyBound(0.4), "feedback": Slerp(), "block_length": 5, "cache": "prefix", "refresh": 3},
    {"commit": Threshold(0.3), "feedback": Mask(), "block_length": 8, "cache": "dual", "refresh": 2},
    {"commit": TopN(2), "feedback": Slerp(), "block_length": 6, "cache": "prefix", "temperature": 0.8, "seed": 11},
]


def prompts_of(lengths: list[int], seed: int) -> list[list[int]]:
    return [torch.randint(3, 140, (n,), generator=generator(seed + 7 * n)).tolist() for n in lengths]


def story(result: Generation) -> tuple[list[int], int, list[tuple[list[int], list[int]]]]:
    return result.canvas_ids, result.forwards, [(step.positions, step.tokens) for step in result.trace.passes]


@pytest.fixture
def shared_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows in one padded product, as on a GPU."""
    monkeypatch.setattr("softdlm.cache.rows_apart", lambda device: False)


@settings(max_examples=24)
@given(
    st.sampled_from(FAMILIES),
    st.lists(st.integers(1, 17), min_size=2, max_size=5),
    st.integers(0, 999),
    st.sampled_from(METHODS),
    st.booleans(),
)
def test_batches_are_bit_identical_on_a_cpu(
    family: str, lengths: list[int], seed: int, method: dict[str, Any], early: bool
) -> None:
    model = tiny(family)
    prompts = prompts_of(lengths, seed)
    options: dict[str, Any] = {**method, "max_new_tokens": 9, "early_finish": early, "record_candidates": True}
    together = softdlm.generate(model, prompts, **options)
    by_two = softdlm.generate(model, prompts, batch_size=2, **options)
    one_by_one = softdlm.generate(model, prompts, batch_size=1, **options)
    assert together == one_by_one
    assert by_two == one_by_one
    if "temperature" not in method:
        assert softdlm.generate(model, prompts[::-1], **options)[::-1] == one_by_one


@pytest.mark.usefixtures("shared_products")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_shared_products_are_exact_in_float64(family: str, method: dict[str, Any]) -> None:
    model = tiny(family, torch.float64)
    for seed in range(3):
        prompts = prompts_of([3, 8, 8, 13, 21], seed)
        options: dict[str, Any] = {**method, "max_new_tokens": 16, "early_finish": bool(seed % 2)}
        together = softdlm.generate(model, prompts, **options)
        one_by_one = softdlm.generate(model, prompts, batch_size=1, **options)
        assert [story(result) for result in together] == [story(result) for result in one_by_one]


@pytest.mark.usefixtures("shared_products")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("commit", [TopN(2), Threshold(0.5), EntropyBound(0.4)], ids=str)
def test_shared_products_in_float32_part_only_within_rounding(family: str, commit: Any) -> None:
    model = tiny(family)
    prompts = prompts_of([3, 8, 8, 13, 21], 5)
    together = softdlm.generate(model, prompts, max_new_tokens=24, early_finish=False, commit=commit)
    for prompt, batched in zip(prompts, together, strict=True):
        alone = softdlm.generate(model, prompt, max_new_tokens=24, early_finish=False, commit=commit)
        for ours, theirs in zip(batched.trace.passes, alone.trace.passes, strict=True):
            if (ours.positions, ours.tokens) != (theirs.positions, theirs.tokens):
                assert smallest_gap(ours.confidence, theirs.confidence) < ROUNDING
                break


@pytest.mark.parametrize("family", FAMILIES)
def test_shared_products_round_below_the_limit_in_one_pass(family: str) -> None:
    """A soft token carries a difference into the next pass, where a random network enlarges it: look at one pass."""
    model = tiny(family)
    lengths = [40, 33, 21, 12]
    embeds = torch.randn(4, 40, model.embedding.shape[1], generator=generator(3))
    real = torch.arange(40) < torch.tensor(lengths)[:, None]
    together = model.logits(embeds=embeds, attention_mask=real).softmax(-1)
    for row, length in enumerate(lengths):
        alone = model.logits(embeds=embeds[row : row + 1, :length]).softmax(-1)
        assert (together[row, :length] - alone[0]).abs().max() < ROUNDING


def test_left_padding_is_the_same_canvas() -> None:
    """A canvas that somebody else padded on the left decodes to the same answer, LLaDA-2's blocks included."""
    for family in FAMILIES:
        model = tiny(family, torch.float64)
        plain = softdlm.Canvas.pack([[5, 9, 21]], [16], model.mask_id, 0)
        pad = torch.zeros(1, 4, dtype=torch.long)
        padded = softdlm.Canvas.of(
            torch.cat([pad, plain.ids], 1), model.mask_id, torch.cat([pad.bool(), plain.real], 1)
        )
        for block, cache in ((None, None), (8, None), (8, "prefix"), (8, "dual")):
            options: Any = {"commit": TopN(2), "feedback": Slerp(), "block_length": block, "cache": cache}
            *_, one = softdlm.denoise(model, plain, **options)
            *_, other = softdlm.denoise(model, padded, **options)
            assert torch.equal(one.canvas.ids, other.canvas.ids[:, 4:])
            assert one.index == other.index


def smallest_gap(one: list[float], other: list[float]) -> float:
    """Traces round to six places, which is enough to see a gap of 1e-5."""
    return min((abs(a - b) for a in one for b in other), default=0.0)
