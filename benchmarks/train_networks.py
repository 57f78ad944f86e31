"""Networks of the built-in recipe with other seeds and depths, trained side by side on one GPU.

    python benchmarks/train_networks.py FOLDER [--seconds 580]

Each network is a process; one that is finished is left alone, one that was stopped is resumed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]
NETWORKS = {
    "8-layers-seed1": {"seed": 1},
    "8-layers-seed2": {"seed": 2},
    "6-layers-seed0": {"seed": 0, "layers": 6},
}


def train_one(name: str, folder: Path) -> None:
    from dataclasses import replace

    import torch

    from softdlm.train.loop import Run, train
    from softdlm.train.recipe import RECIPES
    from softdlm.train.student import STATE

    out = folder / name
    run = Run(out, torch.device("cuda"), workers=4, resume=(out / STATE).exists(), save_seconds=120, validation_items=0)
    card = train(replace(RECIPES["builtin"], **NETWORKS[name]), run)
    print(f"{name}: loss {card['final_loss']:.4f}, {card['steps']} steps, {card['minutes']} minutes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--seconds", type=float, default=580)
    asked = parser.parse_args()
    if asked.only:
        train_one(asked.only, asked.folder)
        return
    began = time.monotonic()
    missing = [name for name in NETWORKS if not (asked.folder / name / "model.safetensors").exists()]
    parts = {
        name: subprocess.Popen([sys.executable, __file__, str(asked.folder), "--only", name], start_new_session=True)
        for name in missing
    }
    while any(part.poll() is None for part in parts.values()) and time.monotonic() - began < asked.seconds:
        time.sleep(1)
    for name, part in parts.items():
        print(name, "finished" if part.poll() == 0 else f"not finished: {part.poll()}", flush=True)


if __name__ == "__main__":
    main()
