"""The plain loop: what its authors' sampler does, and what ours does, token for token."""

from typing import Any

import pytest
import torch

from softdlm.bench.reference import plain_loop
from softdlm.bench.workload import Decode, prompts
from tests import parity_cases
from tests.conftest import tiny

PUBLISHED = [
    case
    for case in parity_cases.cases("llada")
    if {*case["params"]} <= {"gen_length", "block_length", "steps", "temperature", "remasking", "mask_id"}
    and len(case["prompt_ids"]) == 1
    and case["params"]["gen_length"] % case["params"]["steps"] == 0
]


def test_there_are_published_decodes() -> None:
    assert len(PUBLISHED) >= 2


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["name"])
def test_it_decodes_as_the_published_sampler(case: dict[str, Any]) -> None:
    params = case["params"]
    rate = params["gen_length"] // params["steps"]
    made = plain_loop(tiny("llada"), case["prompt_ids"][0], params["gen_length"], rate, params["block_length"])
    assert made.ids == case["final_ids"][0][len(case["prompt_ids"][0]) :]
    assert made.forwards == case["n_forwards"]


@pytest.mark.parametrize(("family", "block"), [("llada", None), ("llada", 7), ("dream", None), ("llada2", None)])
@pytest.mark.parametrize("rate", [1, 3])
def test_ours_gives_its_tokens(family: str, block: int | None, rate: int) -> None:
    model, decode = tiny(family), Decode(9, 20, rate, block)
    (ours,) = decode.run(model)
    made = plain_loop(model, prompts(model, 1, 9)[0], 20, rate, block, torch.float64)
    assert (ours.canvas_ids, ours.forwards) == made
