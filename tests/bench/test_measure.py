"""Times are taken in turn and end with the clock; a profile accounts for the whole time."""

import time

import pytest
import torch

from softdlm.bench import measure
from softdlm.bench.measure import TimeBudget, Timings, group, interleave, profile

CPU = torch.device("cpu")


def test_works_are_timed_in_turn_after_a_warm_up() -> None:
    order: list[str] = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    times = interleave(works, CPU, 3, TimeBudget(60))
    assert "".join(order) == "ab" * 4
    assert {len(each.seconds) for each in times.values()} == {3}
    assert all(each.first is not None for each in times.values())


def test_a_clock_that_has_run_out_leaves_one_sample() -> None:
    (times,) = interleave({"": lambda: None}, CPU, 5, TimeBudget(0), warm=False).values()
    assert len(times.seconds) == 1
    assert times.first is None


def test_seconds_are_those_of_the_call() -> None:
    assert 0.02 <= measure.seconds(lambda: time.sleep(0.02), CPU) < 0.2


def test_a_sample_tells_its_middle_and_its_spread() -> None:
    times = Timings((4.0, 1.0, 2.0))
    assert (times.median, times.spread) == (2.0, 1.5)


@pytest.mark.parametrize(
    ("kernel", "where"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "matrix products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>", "matrix products"),
        ("aten::mm", "matrix products"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>", "attention"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("_scan", "vocabulary and soft tokens"),
        ("_soft", "vocabulary and soft tokens"),
        ("Memcpy DtoD (Device -> Device)", "copies and indexing"),
        ("void at::native::index_elementwise_kernel<128, 4>", "copies and indexing"),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norms, rotations, activations"),
        ("void at::native::vectorized_elementwise_kernel<4, MulFunctor>", "norms, rotations, activations"),
        ("aten::silu", "norms, rotations, activations"),
        ("something_else", "other"),
    ],
)
def test_kernels_have_a_group(kernel: str, where: str) -> None:
    assert group(kernel) == where


def test_a_profile_finds_the_products_and_adds_up() -> None:
    left = torch.randn(300, 300)

    def work() -> None:
        for _ in range(20):
            left.mm(left)

    rows = profile(work, CPU)
    shares = {row["where"]: row["share, %"] for row in rows}
    assert shares["matrix products"] > 40
    assert sum(shares.values()) == pytest.approx(100, abs=1)
