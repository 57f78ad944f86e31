"""Products in eight bits beside bfloat16 on a GPU: which arithmetic is fastest at which number of rows?

    python benchmarks/fp8_products.py --out benchmarks/results

Microseconds of one product inside a captured graph over several weights, so that none is served from the cache.
"""

from __future__ import annotations

import argparse
import json
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_timing import graph
from torch.nn import functional as F

from softdlm.models import fp8

SIZES = {
    "llada-8b": {"qkv": (4096, 12288), "output": (4096, 4096), "gate and up": (4096, 24576), "down": (12288, 4096)},
    "dream-7b": {"qkv": (3584, 4608), "output": (3584, 3584), "gate and up": (3584, 37888), "down": (18944, 3584)},
    "llada2-mini": {"qkv": (2048, 3072), "output": (2048, 2048), "gate and up": (2048, 10240), "down": (5120, 2048)},
}
MULTIPLY: Any = torch._scaled_mm  # type: ignore[reportPrivateImportUsage]
ROWS = (32, 64, 96, 128, 256, 512, 1536)


def measure(inputs: int, outputs: int, rows: int) -> dict[str, Any]:
    device = torch.device("cuda")
    copies = max(2, min(8, 2**28 // (inputs * outputs)))
    x = torch.randn(rows, inputs, device=device, dtype=torch.bfloat16)
    wide = [torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16) for _ in range(copies)]
    eight = [fp8.rounded_rows(each) for each in wide]
    scales = [(codes, scale.squeeze(1)) for codes, scale in eight]
    codes, factor = fp8.rounded_rows(x)
    one = torch.ones((), device=device)
    kinds = {
        "bfloat16": [partial(F.linear, x, each) for each in wide],
        "row-wise": [
            partial(MULTIPLY, codes, w.t(), factor, s[None], out_dtype=torch.bfloat16, use_fast_accum=True)
            for w, s in scales
        ],
        "tensor-wise": [
            partial(MULTIPLY, codes, w.t(), one, one, out_dtype=torch.float32, use_fast_accum=True) for w, _ in scales
        ],
        "tensor-wise, bfloat16 out": [
            partial(MULTIPLY, codes, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True) for w, _ in scales
        ],
    }
    found: dict[str, Any] = {}
    for name, calls in kinds.items():
        try:
            found[name] = graph(calls)
        except Exception as fault:
            found[name] = str(fault)[:60]
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = []
    for network, products in SIZES.items():
        for name, (inputs, outputs) in products.items():
            for rows in ROWS:
                case = {"network": network, "product": name, "rows": rows} | measure(inputs, outputs, rows)
                found.append(case)
                print({k: round(v, 1) if isinstance(v, float) else v for k, v in case.items()}, flush=True)
            torch.cuda.empty_cache()
    args.out.mkdir(parents=True, exist_ok=True)
    conditions = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    content = json.dumps({"conditions": conditions, "found": found}, indent=1) + "\n"
    (args.out / f"{date.today()}-fp8-products.json").write_text(content)


if __name__ == "__main__":
    main()
