"""Engines on a GPU: every order on one model, two models, sampling, memory, failures.

    python benchmarks/engine_checks.py [--shape llada-8b] [--out checks.json]

Each part prints what it found and fails loudly: equal tokens from one engine whatever ran before it (a captured pass
that reads freed memory gives other tokens, or an illegal access), memory that comes back with a deleted model, the same
random draws on CPU and GPU, memory beside its estimate, and requests that fail alone.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch

import softdlm
from softdlm.bench.shapes import SHAPES, build_model
from softdlm.bench.workload import prompts
from softdlm.decoding import settle
from softdlm.engine.answer import Answer
from softdlm.engine.memory import need
from softdlm.engine.plan import Plan
from softdlm.engine.queue import Engine
from softdlm.predict import uniforms

CUDA = torch.device("cuda")
ENGINES = ("dynamic", "static", "compiled")
SOFT: dict[str, Any] = {"feedback": softdlm.Slerp(k=3, lam=0.3), "early_finish": False}


def decode(model: Any, engine: str, prompt: int, new: int, batch: int = 1, **options: Any) -> list[list[int]]:
    answers = softdlm.generate(
        model, prompts(model, batch, prompt), engine=engine, max_new_tokens=new, batch_size=batch, **SOFT, **options
    )
    return [answer.canvas_ids for answer in answers]


def orders(shape: Any, prompt: int, new: int) -> dict[str, Any]:
    """Every order of the engines on a fresh model, the first one again at the end, watched and unwatched."""
    first: dict[Any, Any] = {}
    runs = agreeing = 0
    apart: dict[str, list[int]] = {}
    for order in itertools.permutations(ENGINES):
        model = build_model(shape, CUDA, torch.bfloat16)
        for engine, cache, watched in itertools.product((*order, order[0]), ("dual", "prefix"), (False, True)):
            watching: dict[str, Any] = {"on_step": lambda step, names: None} if watched else {}
            options = {"block_length": 32, "cache": cache, "tokens_per_step": 8}
            found = decode(model, engine, prompt, new, **options, **watching)
            runs += 1
            expected = first.setdefault((engine, cache), found)
            assert found == expected, (order, engine, cache, watched)
            if "dynamic" in {key[0] for key in first}:
                same = found == first.get(("dynamic", cache), found)
                apart.setdefault(engine, [0, 0])[0] += not same
                apart[engine][1] += 1
        del model
        gc.collect()
        agreeing += 1
    torch.cuda.synchronize()
    return {"orders": agreeing, "decodes": runs, "unlike the dynamic engine (bfloat16)": apart}


def two_models(shape: Any, prompt: int, new: int) -> dict[str, Any]:
    """Both alive and interleaved; then one is deleted, its memory comes back, and the other goes on."""
    options: dict[str, Any] = {"block_length": 32, "cache": "dual", "tokens_per_step": 8}
    models = [build_model(shape, CUDA, torch.bfloat16) for _ in range(2)]
    seen = {}
    for engine in ("static", "compiled", "static", "dynamic", "compiled"):
        for model in models:
            found = decode(model, engine, prompt, new, **options)
            assert seen.setdefault(engine, found) == found, engine
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model = models.pop(0)
    weights = sum(tensor.nbytes for tensor in model.network.parameters())
    del model
    torch._dynamo.reset()  # compiled code refers to the modules it was made from
    gc.collect()
    torch.cuda.empty_cache()
    freed = before - torch.cuda.memory_allocated()
    assert freed >= weights, (freed, weights)
    for engine in ("static", "compiled", "dynamic"):
        assert decode(models[0], engine, prompt, new, **options) == seen[engine]
    return {"freed with the model, GiB": round(freed / 2**30, 2), "its weights, GiB": round(weights / 2**30, 2)}


def draws() -> dict[str, Any]:
    """The same numbers on both devices, and in float64 the same sampled texts by every engine."""
    index = torch.arange(200)
    words = [word.reshape(-1, 1) for word in torch.meshgrid(index, index, index[:10], index[:50], indexing="ij")]
    cpu, gpu = uniforms(*words), uniforms(*(word.cuda() for word in words)).cpu()
    assert torch.equal(cpu, gpu)
    task = softdlm.tasks.load_task("mini-math", seed=3, size=20)
    texts = {}
    for device in ("cpu", "cuda"):
        model = softdlm.load("builtin", device=device, dtype="float64")
        for engine in ("dynamic", "static"):
            answers = softdlm.generate(
                model, [item.prompt for item in task], engine=engine, temperature=0.7, seed=5, tokens_per_step=2
            )
            texts[device, engine] = [answer.text for answer in answers]
    counts = {
        f"{device} {engine}": sum(map(str.__eq__, each, texts["cpu", "dynamic"]))
        for (device, engine), each in texts.items()
    }
    return {"numbers compared": cpu.numel(), "equal texts of 20, beside the CPU's": counts}


def sampling(model: Any, prompt: int, new: int) -> list[dict[str, Any]]:
    """Captured sampling beside greedy, side by side."""
    rows = []
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("greedy", {}),
        ("temperature 0.7", {"temperature": 0.7}),
        ("temperature 0.7, top_p 0.9", {"temperature": 0.7, "top_p": 0.9}),
    ]
    caches: tuple[dict[str, Any], ...] = ({}, {"block_length": 32, "cache": "dual"})
    for cache, engine in itertools.product(caches, ("static", "compiled")):
        spent: dict[str, list[float]] = {}
        for number in range(5):
            for name, options in kinds:
                torch.cuda.synchronize()
                began = time.perf_counter()
                decode(model, engine, prompt, new, tokens_per_step=4, **cache, **options)
                torch.cuda.synchronize()
                if number > 1:
                    spent.setdefault(name, []).append(time.perf_counter() - began)
        medians = {name: sorted(values)[len(values) // 2] for name, values in spent.items()}
        for name, seconds in medians.items():
            row = {"cache": cache.get("cache", "none"), "engine": engine, "draws": name}
            rows.append(
                {**row, "tokens/s": round(new / seconds, 1), "greedy is 1": round(medians["greedy"] / seconds, 3)}
            )
            print(rows[-1], flush=True)
    return rows


def memory(model: Any, length: int) -> list[dict[str, Any]]:
    """What decodes took at their peak, beside what the engine counts before it lets them in."""
    rows = []
    for batch, cache, probs in ((1, None, 0), (16, None, 0), (1, "dual", 0), (16, "dual", 0), (1, None, 1)):
        options: dict[str, Any] = {"cache": cache, "block_length": 32 if cache else None, "tokens_per_step": 8}
        options |= {"temperature": 0.7} if probs else {}
        for engine in ("dynamic", "static"):
            model.slot_cache.clear()
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            decode(model, engine, length - 32, 32, batch, **options)
            peak = torch.cuda.max_memory_allocated() - before
            decoding = settle(model, None, {**SOFT, **options, "max_new_tokens": 32})
            counted = need(Plan.of(model, decoding), batch, length).total
            rows.append(
                {"batch": batch, "cache": cache or "none", "engine": engine, "sampled": bool(probs)}
                | {"peak, GiB": round(peak / 2**30, 3), "counted, GiB": round(counted / 2**30, 3)}
            )
            print(rows[-1], flush=True)
    return rows


def failures(model: Any) -> dict[str, Any]:
    """NaN and a full device end the requests they concern, and nothing else."""
    texts = prompts(model, 2, 64)

    def request(prompt: list[int], number: int, **options: Any) -> Answer:
        return Answer(model, number, prompt, settle(model, None, {"max_new_tokens": 32, **SOFT, **options}))

    found: dict[str, Any] = {}
    row = model.embedding[texts[1][5]].clone()
    model.embedding[texts[1][5]] = float("inf")
    for engine in ("dynamic", "static"):
        with Engine(model, engine=engine) as queue:
            good, bad = (request(prompt, n, tokens_per_step=4) for n, prompt in enumerate(texts))
            queue.submit(good)
            queue.submit(bad)
            while queue.busy:
                queue.step()
        assert good.generation is not None, good.error
        found[f"NaN, {engine}"] = str(bad.error)
        assert "NaN" in str(bad.error)
    model.embedding[texts[1][5]] = row
    model.slot_cache.clear()
    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    filler = torch.empty(free - 3 * 2**30, dtype=torch.uint8, device=CUDA)
    small = request(texts[0], 0, tokens_per_step=4)
    large = [request(prompts(model, 1, 3000)[0], 1 + n, block_length=32, cache="dual") for n in range(4)]
    with Engine(model, memory_limit=2**50) as queue:
        for answer in (small, *large):
            queue.submit(answer)
        while queue.busy:
            queue.step()
        again = request(texts[0], 0, tokens_per_step=4)
        queue.submit(again)
        while queue.busy:
            queue.step()
    del filler
    assert small.generation is not None, small.error
    assert again.generation is not None, again.error
    found["full device"] = [str(answer.error) if answer.error else "done" for answer in large]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="llada-8b", choices=SHAPES)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    shape, prompt = SHAPES[options.shape], options.prompt
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "shape": shape.name}

    def note(name: str, found: Any) -> None:
        result[name] = found
        print(name, json.dumps(found), f"{time.perf_counter() - began:.0f} s", flush=True)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n")

    began = time.perf_counter()
    note("draws", draws())
    note("orders", orders(shape, prompt, 64))
    note("two models", two_models(shape, prompt, 64))
    model = build_model(shape, CUDA, torch.bfloat16)
    note("failures", failures(model))
    note("memory", memory(model, prompt + 512))
    note("sampling", sampling(model, prompt + 384, 128))


if __name__ == "__main__":
    main()
