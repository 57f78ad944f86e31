"""Logits of the stock networks against the reference implementations (tests/data, made by others)."""

import json

import pytest
import torch
from safetensors.torch import load_file

import softdlm
from softdlm.models.attention import attention_pattern
from tests.conftest import DATA, DEVICE, FAMILIES, IDS, tiny

TOLERANCE = 1e-4


def cases() -> list[tuple[str, str]]:
    return [
        (name, case) for name in FAMILIES for case in json.loads((DATA / name / "forward.json").read_text())["cases"]
    ]


def block_of(case: str) -> int | None:
    return 32 if "block32" in case else 8 if "block8" in case else None


def aligned(raw: torch.Tensor) -> torch.Tensor:
    """Fixtures hold Dream's raw output, in which position j - 1 predicts j."""
    return torch.cat([raw[:, :1], raw[:, :-1]], dim=1)


@pytest.mark.parametrize(("family", "case"), cases())
def test_logits_match_the_reference(family: str, case: str) -> None:
    tensors = {
        name.split(".", 1)[1]: value
        for name, value in load_file(DATA / family / "forward.safetensors").items()
        if name.startswith(f"{case}.")
    }
    inputs = {"embeds": tensors["inputs_embeds"]} if "inputs_embeds" in tensors else {"ids": tensors["input_ids"]}
    ours = tiny(family).logits(
        **inputs,
        attention_mask=tensors.get("attention_mask"),
        position_ids=tensors.get("position_ids"),
        block_length=block_of(case),
    )
    reference, real = tensors["logits"], tensors.get("attention_mask", torch.ones(ours.shape[:2])).bool()
    if family == "dream":
        reference, real = aligned(reference), real & aligned(real)
    assert ours.isfinite().all()
    assert (ours.cpu() - reference)[real].abs().max() < TOLERANCE
    assert real.sum() > real.numel() // 2


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_looks_both_ways(family: str) -> None:
    """is_causal=False was silently ignored by older transformers: compare with a mask that hides nothing."""
    model = tiny(family)
    ids = torch.arange(3, 23)[None].to(DEVICE)
    embeds = model.embed(ids)
    positions = torch.arange(ids.shape[1], device=DEVICE)[None]
    everything = torch.ones(1, 1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=DEVICE)
    with torch.no_grad():
        masked = model.network.model(
            inputs_embeds=embeds, attention_mask=everything, position_ids=positions, use_cache=False
        ).last_hidden_state
    torch.testing.assert_close(model.hidden(embeds), model.align(masked), atol=1e-5, rtol=1e-5)
    changed = ids.clone()
    changed[0, -1] += 1
    assert (model.logits(ids) - model.logits(changed))[0, 1].abs().max() > 1e-3


def test_block_causal_sees_no_later_block() -> None:
    model = tiny("llada2")
    ids = torch.arange(3, 35)[None]
    changed = ids.clone()
    changed[0, 8:] = 5
    before, after = (model.logits(each, block_length=8)[0] for each in (ids, changed))
    torch.testing.assert_close(before[:8], after[:8])
    assert (before[8:] - after[8:]).abs().max() > 1e-2
    full_before, full_after = (model.logits(each)[0] for each in (ids, changed))
    assert (full_before[:8] - full_after[:8]).abs().max() > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fully_padded_row_stays_finite_and_harmless(family: str) -> None:
    model = tiny(family)
    ids = torch.arange(3, 15)[None].repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1] = 0
    both = model.logits(ids, attention_mask=mask)
    assert both.isfinite().all()
    torch.testing.assert_close(both[:1], model.logits(ids[:1]), atol=1e-5, rtol=1e-5)


def test_no_query_is_left_without_keys() -> None:
    """Some attention kernels answer NaN for a row that sees nothing."""
    real = torch.tensor([[True, True, False], [False, False, False]])
    positions = torch.tensor([[0, 1, 1], [0, 0, 0]])
    for block in (None, 1, 2):
        pattern = attention_pattern(real, positions, block)
        assert pattern is not None
        assert pattern.any(-1).all()
        assert not pattern[0, 0, :2, 2].any()
    assert attention_pattern(None, positions, None) is None


def test_dream_aligns_its_shift() -> None:
    """Position j is predicted from the state at j - 1, the first one from itself."""
    model = tiny("dream")
    states = torch.randn(1, 5, 8)
    torch.testing.assert_close(model.align(states), aligned(states), atol=0, rtol=0)


def test_shards_equal_the_single_file() -> None:
    sharded = softdlm.load(DATA / "llada" / "sharded", device=DEVICE, dtype="float32", **IDS["llada"])
    ids = torch.arange(3, 23)[None]
    torch.testing.assert_close(sharded.logits(ids), tiny("llada").logits(ids), atol=0, rtol=0)
