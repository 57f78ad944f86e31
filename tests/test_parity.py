"""Whole decodes against the reference samplers (tests/data, made by others): same tokens, order and passes."""

import json
from collections import Counter
from typing import Any

import pytest

import softdlm
from softdlm import Factor, Generation, Steps, Threshold
from tests.conftest import DATA, FAMILIES, IDS, tiny

LATER = {"cache-prefix", "cache-dual"}  # cached runs come with the caches; guidance is not offered
RANKS: dict[str, Any] = {"maskgit_plus": "confidence", "entropy": "entropy", "topk_margin": "margin"}


def cases(family: str) -> list[dict[str, Any]]:
    found = json.loads((DATA / family / "decode.json").read_text())["cases"]
    return [case for case in found if not any(word in case["name"] for word in LATER) and "cfg" not in case["name"]]


def llada(case: dict[str, Any]) -> dict[str, Any]:
    params, eos = case["params"], IDS["llada"]["eos_ids"]
    blocks = params["gen_length"] // params["block_length"]
    if "threshold" in params:
        rule: Any = Threshold(params["threshold"])
    elif "factor" in params:
        rule = Factor(params["factor"], variant="dllm" if case["name"].endswith("dllm") else "original")
    else:
        rule = Steps(params["steps"] // blocks)
    forbid = eos[:1] if params.get("logits_eos_inf") else []
    last = [token for token in eos if token not in forbid] if params.get("confidence_eos_eot_inf") else []
    return {
        "max_new_tokens": params["gen_length"],
        "block_length": params["block_length"],
        "commit": rule,
        "forbid": forbid,
        "last": last,
        "early_finish": False,
    }


def dream(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    if "threshold" in params:
        rule: Any = Threshold(params["threshold"], budget=params["steps"])
    else:
        rule = Steps(params["steps"], schedule="eps", eps=params["eps"], rank=RANKS[params["alg"]])
    filters = {name: params.get(name) for name in ("top_p", "top_k")}
    return {"max_new_tokens": params["max_new_tokens"], "commit": rule, "early_finish": False, **filters}


def llada2(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    finish: Any = "block" if not params.get("eos_early_stop") else True
    return {
        "max_new_tokens": params["gen_length"],
        "block_length": params["block_length"],
        "commit": Threshold(params["threshold"], floor=Steps(params["steps"], over="block"), strict=True),
        "early_finish": False if "batch2" in case["name"] else finish,
    }


SETTINGS = {"llada": llada, "dream": dream, "llada2": llada2}
NAMED = [pytest.param(family, case, id=f"{family}-{case['name']}") for family in FAMILIES for case in cases(family)]


def unpadded(case: dict[str, Any]) -> tuple[list[list[int]], list[int]]:
    """The prompts without their left padding, and how much of it there was."""
    masks = case.get("attention_mask") or [[1] * len(row) for row in case["prompt_ids"]]
    prompts = [
        [token for token, real in zip(row, mask, strict=True) if real]
        for row, mask in zip(case["prompt_ids"], masks, strict=True)
    ]
    return prompts, [len(mask) - sum(mask) for mask in masks]


def commits(result: Generation, shift: int) -> list[tuple[list[int], list[int]]]:
    return [([place + shift for place in step.positions], step.tokens) for step in result.trace.passes]


def reference_commits(case: dict[str, Any], row: int) -> list[tuple[list[int], list[int]]]:
    steps = case["trace"] if len(case["prompt_ids"]) == 1 else [step[row] for step in case["trace"]]
    return [(step["positions"], step["tokens"]) for step in steps]


def test_enough_cases_are_compared() -> None:
    assert [len(cases(family)) for family in FAMILIES] == [37, 27, 19]


@pytest.mark.parametrize(("family", "case"), NAMED)
def test_decode_matches_the_reference(family: str, case: dict[str, Any]) -> None:
    prompts, shifts = unpadded(case)
    results = softdlm.generate(tiny(family), prompts, **SETTINGS[family](case))
    for row, (result, shift) in enumerate(zip(results, shifts, strict=True)):
        reference = reference_commits(case, row)
        if len(prompts) == 1:
            assert result.forwards == case["n_forwards"]
            assert commits(result, shift) == reference
        else:  # the reference makes a row wait for its neighbours; ours goes on, so leave its idle passes out
            assert [step for step in commits(result, shift) if step[0]] == [step for step in reference if step[0]]
    if len(prompts) > 1:
        assert lockstep(family, results, case["params"].get("block_length")) == case["n_forwards"]
    if family == "llada2":
        compare_returned(case, results)
    else:
        finals = [row[len(case["prompt_ids"][0]) :] for row in case["final_ids"]]
        assert [result.canvas_ids for result in results] == finals


def lockstep(family: str, results: list[Generation], block_length: int) -> int:
    """Passes that a batch takes whose rows must finish each block together."""
    if family != "llada2":  # fixed schedules: the rows stay together by themselves
        return max(result.forwards for result in results)
    counts = [Counter(step.positions[0] // block_length for step in result.trace.passes) for result in results]
    return sum((counts[0] | counts[1]).values())


def compare_returned(case: dict[str, Any], results: list[Generation]) -> None:
    """LLaDA-2's reference returns the answer through its first EOS; its batch sampler returns the whole canvas."""
    eos = tiny("llada2").eos_ids[0]
    returned = case["returned_ids"]
    if "batch2" in case["name"]:
        for row, result in zip(returned, results, strict=True):
            assert result.trace.replay() == row[len(result.trace.prompt_ids) :]
        return
    answer = results[0]
    end = [eos] if answer.finish_reason == "eos" else []
    assert [answer.ids + end] == (returned if isinstance(returned[0], list) else [returned])
