"""Check the core on a GPU and write what was seen to a dated JSON file.

1. The reference fixtures of tests/data: largest logit difference in float32 and bfloat16, decodes token for token.
2. A checkpoint of LLaDA-8B's shape with random weights, written shard by shard, loaded and decoded once, with the
   peak memory of the device and of the host.

    python benchmarks/gpu_check.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import softdlm  # noqa: E402
from softdlm.bench.shapes import LLADA_8B  # noqa: E402
from softdlm.models import llada  # noqa: E402
from softdlm.models.family import setting  # noqa: E402

DATA = ROOT / "tests" / "data"
IDS: dict[str, dict[str, Any]] = {"llada": {"eos_ids": [181, 190]}, "dream": {}, "llada2": {"mask_id": 155}}


def logit_differences(family: str, dtype: torch.dtype) -> dict[str, float]:
    """Largest absolute difference from the reference's float32 logits, per case."""
    model = softdlm.load(DATA / family, device="cuda", dtype=dtype, **IDS[family])
    tensors = load_file(DATA / family / "forward.safetensors")
    found: dict[str, float] = {}
    for case in json.loads((DATA / family / "forward.json").read_text())["cases"]:
        get = {name.split(".", 1)[1]: value for name, value in tensors.items() if name.startswith(f"{case}.")}
        embeds = get.get("inputs_embeds")
        block = 32 if "block32" in case else 8 if "block8" in case else None
        ours = model.logits(
            None if embeds is not None else get["input_ids"],
            embeds=None if embeds is None else embeds.to(dtype),
            attention_mask=get.get("attention_mask"),
            position_ids=get.get("position_ids"),
            block_length=block,
        )
        real, reference = get.get("attention_mask", torch.ones(ours.shape[:2])).bool(), get["logits"]
        if family == "dream":
            reference, real = (torch.cat([x[:, :1], x[:, :-1]], 1) for x in (reference, real))
            real &= get.get("attention_mask", torch.ones(ours.shape[:2])).bool()
        found[case] = float((ours.float().cpu() - reference)[real].abs().max())
    return found


def decodes() -> dict[str, int]:
    """Reference decodes in float32 on the GPU: how many of them agree in tokens, order and passes."""
    from tests import parity_cases

    found = {}
    for family in IDS:
        model = softdlm.load(DATA / family, device="cuda", dtype="float32", **IDS[family])
        verdicts = [parity_cases.agrees(model, family, case) for case in parity_cases.cases(family)]
        found[family], found[f"{family} of"] = sum(verdicts), len(verdicts)
    return found


def write_random_checkpoint(folder: Path) -> int:
    """LLaDA-8B's tensors, random, in one shard per layer; never more than a shard in memory."""
    (folder / "config.json").write_text(json.dumps(LLADA_8B))
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in llada.network(LLADA_8B).state_dict().items()}
    shards: dict[str, dict[str, torch.Size]] = {}
    for weight in llada.weights(LLADA_8B):
        layer = weight.name.split(".")[3] if ".blocks." in weight.name else "ends"
        shards.setdefault(layer, {})[weight.name] = shapes[weight.parts[0].parameter]
    index, total = {}, 0
    for number, (_, tensors) in enumerate(shards.items(), 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        values = {name: _random(shape) for name, shape in tensors.items()}
        save_file(values, folder / file)
        index |= dict.fromkeys(values, file)
        total += sum(value.numel() * 2 for value in values.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    )
    return total


def _random(shape: torch.Size) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    return (torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 0.02).cpu()


def large(folder: Path) -> dict[str, Any]:
    total = write_random_checkpoint(folder)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    model = softdlm.load(folder, device="cuda")
    torch.cuda.synchronize()
    seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated()
    prompt = torch.randint(0, 126000, (1024,)).tolist()
    report: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.network.parameters()),  # type: ignore[attr-defined]
        "layers": setting(LLADA_8B, "n_layers"),
        "checkpoint_bytes": total,
        "load_seconds": round(seconds, 1),
        "load_peak_bytes": peak,
        "load_peak_over_weights": round(peak / total, 4),
    }
    for name, rule in {"vanilla": softdlm.Mask(), "slerp": softdlm.Slerp(k=3, lam=0.3)}.items():
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        answer = softdlm.generate(
            model, prompt, max_new_tokens=512, commit=softdlm.TopN(32), feedback=rule, early_finish=False
        )
        torch.cuda.synchronize()
        assert model.mask_id not in answer.canvas_ids
        report[name] = {
            "forwards": answer.forwards,
            "seconds": round(time.perf_counter() - start, 2),
            "decode_peak_bytes": torch.cuda.max_memory_allocated(),
        }
    report["host_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    torch.backends.cuda.matmul.allow_tf32 = False
    report: dict[str, Any] = {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": __import__("transformers").__version__,
        "logits": {
            f"{family} {dtype}": logit_differences(family, dtype)
            for family in IDS
            for dtype in (torch.float32, torch.bfloat16)
        },
        "decodes_float32": decodes(),
    }
    print(json.dumps(report, indent=1), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report["llada_8b_shape"] = large(Path(folder))
    print(json.dumps(report["llada_8b_shape"], indent=1))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{report['date']}-gpu-check.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
