"""What the check of values costs when weights are loaded: with it, without it, and safetensors' own loader, in turns.

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
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from softdlm.models import weights
from softdlm.models.family import Family
from softdlm.models.folder import CheckpointFolder
from softdlm.models.load import find_family
from softdlm.models.tensor_file import TensorFile
from softdlm.models.weights import Precision, Weights

SHAPE = {"model_type": "llada", "d_model": 2048, "n_heads": 16, "n_kv_heads": 16, "mlp_hidden_size": 5632}
SHAPE |= {"block_type": "llama", "block_group_size": 1, "layer_norm_type": "rms", "activation_type": "silu"}
SHAPE |= {"vocab_size": 16384, "embedding_size": 16384, "max_sequence_length": 2048, "rms_norm_eps": 1e-5}
SHAPE |= {"rope": True, "rope_theta": 500000.0}
WEIGHTS = "model.safetensors"
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
    save_file({name: (0.02 * torch.randn(shape)).to(dtype) for name, shape in shapes.items()}, folder / WEIGHTS)
    (folder / "config.json").write_text(json.dumps(config))
    return family, config


def ours(folder: Path, family: Family, config: dict[str, Any], dtype: torch.dtype) -> None:
    with Weights(CheckpointFolder(folder)) as files:
        files.load(family, config, Precision(dtype), torch.device("cpu"), hashing=False)


def unchecked(*asked: Any) -> None:
    """Our loader without its check."""
    kept = TensorFile.top
    TensorFile.top = lambda self, block, place: torch.zeros(())
    try:
        ours(*asked)
    finally:
        TensorFile.top = kept


def stock(folder: Path, family: Family, config: dict[str, Any], dtype: torch.dtype) -> None:
    """What a script without this package does: safetensors' own loader, which maps the file into memory and checks no
    values, and a cast or a copy."""
    loaded = load_file(folder / WEIGHTS)
    for name in [*loaded]:
        loaded[name] = loaded.pop(name).to(dtype, copy=True)


WAYS = {"with the check": ours, "without": unchecked, "safetensors, without": stock}


def seconds(way: Any, folder: Path, family: Family, config: dict[str, Any], dtype: torch.dtype, cold: bool) -> float:
    if cold:
        with (folder / WEIGHTS).open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    way(folder, family, config, dtype)
    return time.perf_counter() - begun


def measure(rounds: int, *asked: Any, cold: bool) -> dict[str, Any]:
    """All ways in turns; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(rounds + 1):
        for name in WAYS if turn % 2 else reversed(WAYS):
            spent = seconds(WAYS[name], *asked, cold=cold)
            times[name] += [spent] if turn else []
    row: dict[str, Any] = {"file": "read from the disk" if cold else "in memory"}
    for word, of in (("median", statistics.median), ("least", min)):
        spent = {name: of(each) for name, each in times.items()}
        row[f"{word} s"] = {name: round(each, 4) for name, each in spent.items()}
        row[f"{word}: the check, % of loading"] = round(100 * (1 - spent["without"] / spent["with the check"]), 1)
        row[f"{word}: with the check, times safetensors"] = round(
            spent["with the check"] / spent["safetensors, without"], 2
        )
    return row


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
            size = (Path(name) / WEIGHTS).stat().st_size
            for loaded, cold in product(("float32", "bfloat16"), (False, True)):
                row = {"stored": stored, "loaded": loaded, "MiB": size >> 20}
                row |= measure(options.rounds, Path(name), family, config, TYPES[loaded], cold=cold)
                result["loads"].append(row)
                print(json.dumps(row), flush=True)
    if options.out:
        (options.out / f"{result['date']}-loading.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
