"""The reference decodes of tests/data as settings of ours, and what it means to agree with one."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import softdlm
from softdlm import Factor, Generation, LeadIn, Steps, Threshold

DATA = Path(__file__).parent / "data"
CACHES = {"none": None, "prefix": "prefix", "dual": "dual"}
RANKS: dict[str, Any] = {"maskgit_plus": "confidence", "entropy": "entropy", "topk_margin": "margin"}


def cases(family: str) -> list[dict[str, Any]]:
    found = json.loads((DATA / family / "decode.json").read_text())["cases"]
    return [case for case in found if "cfg" not in case["name"]]  # guidance is not offered


def llada(case: dict[str, Any]) -> dict[str, Any]:
    params, eos = case["params"], [181, 190]
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
        "cache": CACHES[params.get("cache", "none")],
        "commit": rule,
        "forbid": forbid,
        "last": last,
        "early_finish": False,
    }


def dream(case: dict[str, Any]) -> dict[str, Any]:
    params = case["params"]
    if "dual_cache" in params:
        return {
            "max_new_tokens": params["max_new_tokens"],
            "block_length": params["block_length"],
            "cache": "dual" if params["dual_cache"] else "prefix",
            "commit": LeadIn(Threshold(params["threshold"])),
            "early_finish": False,
        }
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


def agrees(model: Any, family: str, case: dict[str, Any]) -> bool:
    """Same tokens in the same order in the same number of passes, and the same answer."""
    prompts, shifts = unpadded(case)
    results = softdlm.generate(model, prompts, **SETTINGS[family](case))
    ours = [commits(result, shift) for result, shift in zip(results, shifts, strict=True)]
    theirs = [reference_commits(case, row) for row in range(len(prompts))]
    if len(prompts) > 1:  # the reference makes a row wait for its neighbours; ours goes on: leave idle passes out
        ours, theirs = ([[step for step in row if step[0]] for row in rows] for rows in (ours, theirs))
    passes = lockstep(family, results, case["params"].get("block_length"))
    return ours == theirs and passes == case["n_forwards"] and same_answers(model, family, case, results)


def lockstep(family: str, results: list[Generation], block_length: int) -> int:
    """Passes that a batch takes whose rows must finish each block together."""
    if family != "llada2" or len(results) == 1:  # fixed schedules: the rows stay together by themselves
        return max(result.forwards for result in results)
    counts = [Counter(step.positions[0] // block_length for step in result.trace.passes) for result in results]
    return sum((counts[0] | counts[1]).values())


def same_answers(model: Any, family: str, case: dict[str, Any], results: list[Generation]) -> bool:
    """LLaDA-2's reference returns the answer through its first EOS; its batch sampler returns the whole canvas."""
    if family != "llada2":
        return [result.canvas_ids for result in results] == [
            row[len(case["prompt_ids"][0]) :] for row in case["final_ids"]
        ]
    returned = case["returned_ids"]
    if "batch2" in case["name"]:
        rows = zip(returned, results, strict=True)
        return all(result.trace.replay() == row[len(result.trace.prompt_ids) :] for row, result in rows)
    end = [model.eos_ids[0]] if results[0].finish_reason == "eos" else []
    return [results[0].ids + end] == (returned if isinstance(returned[0], list) else [returned])
