"""What the check of values costs when weights are loaded: with it and without it, in turns.

python benchmarks/loading.py --out benchmarks/results    # writes three checkpoints of 1 GiB below the temporary folder
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from softdlm.models import tensor_file, weights
from softdlm.models.family import Family
from softdlm.models.folder import CheckpointFolder
from softdlm.models.load import find_family
from softdlm.models.weights import Precision, Weights

SHAPE = {"model_type": "llada", "d_model": 2048, "n_heads": 16, "n_kv_heads": 16, "mlp_hidden_size": 5632}
SHAPE |= {"block_type": "llama", "block_group_size": 1, "layer_norm_type": "rms", "activation_type": "silu"}
SHAPE |= {"vocab_size": 16384, "embedding_size": 16384, "max_sequence_length": 2048, "rms_norm_eps": 1e-5}
SHAPE |= {"rope": True, "rope_theta": 500000.0}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def checkpoint(folder: Path, dtype: torch.dtype, size: int) -> tuple[Family, dict[str, Any]]:
    """Random weights of about so many bytes: layers are added until they are there."""
    layers = 1
    while True:
        config: dict[str, Any] = SHAPE | {"n_layers": layers}
        family = find_family(config, folder)
        blank = weights.skeleton(family, config).state_dict()
        shapes = {weight.name: weights._shape(weight, blank) for weight in family.weights(config)}
        if sum(torch.Size(shape).numel() for shape in shapes.values()) * dtype.itemsize >= size:
            break
        layers += 1
    save_file(
        {name: (0.02 * torch.randn(shape)).to(dtype) for name, shape in shapes.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    return family, config


def seconds(folder: Path, family: Family, config: dict[str, Any], dtype: torch.dtype, checked: bool) -> float:
    kept = tensor_file.largest
    tensor_file.largest = kept if checked else lambda block, dtype: 0
    try:
        begun = time.perf_counter()
        with Weights(CheckpointFolder(folder)) as files:
            files.load(family, config, Precision(dtype), torch.device("cpu"), hashing=False)
        return time.perf_counter() - begun
    finally:
        tensor_file.largest = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bytes", type=int, default=2**30)
    options = parser.parse_args()
    result: dict[str, Any] = {"date": str(date.today()), "system": f"{platform.system()} {platform.machine()}"}
    result |= {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    result |= {"load at the start": round(os.getloadavg()[0], 1), "rounds": options.rounds, "loads": []}
    for stored, dtype in TYPES.items():
        with tempfile.TemporaryDirectory(prefix="softdlm-loading-") as name:
            family, config = checkpoint(Path(name), dtype, options.bytes)
            size = (Path(name) / "model.safetensors").stat().st_size
            for loaded in ("float32", "bfloat16"):
                times: dict[bool, list[float]] = {True: [], False: []}
                for turn in range(options.rounds + 1):
                    for checked in (True, False) if turn % 2 else (False, True):
                        spent = seconds(Path(name), family, config, TYPES[loaded], checked)
                        times[checked] += [spent] if turn else []  # the first fills the page cache
                row: dict[str, Any] = {"stored": stored, "loaded": loaded, "MiB": size >> 20}
                for word, of in (("median", statistics.median), ("least", min)):
                    with_it, without = of(times[True]), of(times[False])
                    row[f"{word} s"] = {"with the check": round(with_it, 4), "without": round(without, 4)}
                    row[f"{word} growth %"] = round(100 * (with_it / without - 1), 1)
                result["loads"].append(row)
                print(json.dumps(row), flush=True)
    if options.out:
        (options.out / f"{result['date']}-loading.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
