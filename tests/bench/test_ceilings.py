"""Floors against counts made by hand from the published dimensions."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softdlm.bench import ceilings
from softdlm.bench.ceilings import Ceilings, Dimensions, measure_ceilings
from softdlm.bench.measure import TimeBudget
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.bench.workload import Decode, PassSize
from softdlm.models.known import known_models
from softdlm.models.load import find_family
from softdlm.models.weights import skeleton
from tests.conftest import tiny

H200 = Ceilings(rate=790e12, bandwidth=4.1e12)
"""Rates measured on one, rounded."""


def on_paper(name: str) -> Any:
    """The shape's model without weights."""
    config: Any = SHAPES[name].config
    family = find_family(config, Path(name))
    return family.denoiser(skeleton(family, config).bfloat16(), mask_id=config["mask_token_id"])


@pytest.mark.parametrize("name", ["llada-8b", "dream-7b", "llada2-mini"])
def test_shapes_have_the_published_number_of_parameters(name: str) -> None:
    model = on_paper(name)
    kind = (SHAPES[name].config or {})["model_type"]
    published = [each.parameters for each in known_models() if each.model_type == kind]
    # the correction bias of the routers is a buffer in the stock class
    biases = sum(value.numel() for key, value in model.network.named_buffers() if key.endswith("correction_bias"))
    assert sum(value.numel() for value in model.network.parameters()) + biases in published


def test_llada_8b_by_hand() -> None:
    dimensions = Dimensions.of(on_paper("llada-8b"))
    layer = 4 * 4096 * 4096 + 3 * 4096 * 12288
    assert dimensions.dense == 32 * layer
    assert dimensions.dense_bytes == 2 * (32 * (layer + 2 * 4096) + 4096)
    assert dimensions.memory_bytes(1, 1536) == 2 * 32 * 4096 * 1536 * 2
    work = PassSize(1, 1536, 1536, 512)
    assert dimensions.operations(work) == {
        "products": 2 * 32 * layer * 1536,
        "attention": 32 * 32 * (2 * 1536 * 1536 * 128) * 2,
        "head": 2 * 512 * 4096 * 126464,
    }


def test_dream_7b_reads_few_keys_and_values() -> None:
    dimensions = Dimensions.of(on_paper("dream-7b"))
    assert dimensions.dense == 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944)
    assert dimensions.memory_bytes(3, 100) == 3 * 100 * 28 * 2 * 4 * 128 * 2


def test_llada2_mini_meets_eight_of_its_experts() -> None:
    dimensions = Dimensions.of(on_paper("llada2-mini"))
    attention = 2048 * (16 * 128 * 2 + 2 * 4 * 128)
    shared, router = 3 * 2048 * 512, 2048 * 256
    assert dimensions.dense == 20 * attention + 3 * 2048 * 5120 + 19 * (shared + router)
    assert dimensions.routed == 19 * 256 * 3 * 2048 * 512
    assert dimensions.chosen == 8 / 256
    one, many = PassSize(1, 1, 10, 0), PassSize(1, 5000, 5000, 0)
    assert dimensions.operations(one)["products"] == 2 * (dimensions.dense + dimensions.routed / 32)
    assert dimensions.bytes(one)["products"] == pytest.approx(dimensions.dense_bytes + 2 * dimensions.routed / 32)
    assert dimensions.bytes(many)["products"] == pytest.approx(dimensions.dense_bytes + 2 * dimensions.routed)
    assert dimensions.bytes(one)["head"] == 0


def test_the_floors_of_an_h200() -> None:
    """About 29 ms for the whole canvas and 3.9 ms for a block, as its memory and its products allow."""
    dimensions = Dimensions.of(on_paper("llada-8b"))
    whole, step = PassSize(1, 1536, 1536, 512), PassSize(1, 32, 1536, 32)
    assert H200.floor(dimensions, [whole]) == pytest.approx(0.0294, rel=0.01)
    assert H200.floor(dimensions, [step]) == pytest.approx(0.0039, rel=0.02)
    assert (H200.bound(dimensions, whole), H200.bound(dimensions, step)) == ("compute", "memory")
    assert H200.floor(dimensions, [whole, step, step]) == pytest.approx(
        H200.floor(dimensions, [whole]) + 2 * H200.floor(dimensions, [step])
    )


@pytest.mark.parametrize("work", [PassSize(1, 32, 1536, 32), PassSize(64, 32, 1536, 32), PassSize(64, 1536, 1536, 512)])
def test_a_floor_is_above_all_operations_and_above_all_bytes(work: PassSize) -> None:
    dimensions = Dimensions.of(on_paper("llada-8b"))
    floor = H200.floor(dimensions, [work])
    assert floor >= sum(dimensions.operations(work).values()) / H200.rate * (1 - 1e-9)
    assert floor >= sum(dimensions.bytes(work).values()) / H200.bandwidth * (1 - 1e-9)


def test_ceilings_are_the_best_rate_and_both_ways_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_best", lambda *_: 0.25)
    monkeypatch.setattr(ceilings, "_sustained", lambda *_: 0.5)
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 1000)
    found, rows = measure_ceilings(tiny("llada"), 10, 6, TimeBudget(60))
    assert found == Ceilings(2 * 128**3 / 0.5, 2 * 1000 / 0.5)
    assert [row["ceiling"] for row in rows[:4]] == [
        "query 10 x 64 x 64",
        "feed-forward up 10 x 64 x 80",
        "feed-forward down 10 x 80 x 64",
        "head 6 x 64 x 192",
    ]


def test_a_rate_is_measured_per_call() -> None:
    calls = []
    left = torch.randn(64, 64)

    def product() -> None:
        calls.append(left @ left)

    once = ceilings._best(product, torch.device("cpu"), TimeBudget(60))
    assert len(calls) > 7
    assert 0 < once < 0.01


def test_random_weights_are_the_same_and_of_use() -> None:
    one, two = (build_model(SHAPES["tiny-llada2"], torch.device("cpu"), torch.float32) for _ in range(2))
    for (name, value), other in zip(one.network.state_dict().items(), two.network.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
        assert value.isfinite().all(), name
    texts = {tuple(answer.ids) for answer in Decode(12, 16, 2, batch=3).run(one)}
    assert len(texts) == 3
