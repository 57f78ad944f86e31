"""What is here, and what each model would need."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from softdlm.models.load import families
from softdlm.version import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub")
GIB = 2**30


def known_models() -> list[dict[str, Any]]:
    """The published checkpoints by name, with what their family says of them."""
    return [
        {
            "model": name,
            "model_type": family.name,
            "parameters, B": round(parameters / 1e9, 2),
            "mask id": family.mask_id,
            "EOS id": family.eos_id,
            "end of turn": family.end_of_turn[0],
        }
        for _, family in families()
        for name, parameters in family.models.items()
    ]


def examine() -> dict[str, Any]:
    free = free_memory()
    machine = {"python": platform.python_version(), "system": platform.platform()}
    machine |= {"softdlm": __version__, **{name: version(name) for name in PACKAGES}}
    machine |= {"CPU cores": os.cpu_count(), "threads of torch": torch.get_num_threads()}
    machine |= {f"free on {name}, GiB": round(size / GIB, 1) for name, size in free.items()}
    models = []
    for _, family in families():
        for name, parameters in family.models.items():
            needs = {place: parameters * (4 if place == "CPU" else 2) for place in free}
            fits = {
                f"{place}, {'float32' if place == 'CPU' else 'bfloat16'}": "fits"
                if size * 1.1 < free[place]
                else "too large"
                for place, size in needs.items()
            }
            models.append({"model": name, "GiB in bfloat16": round(2 * parameters / GIB, 1), **fits})
    return {"machine": machine, "models": models}


def free_memory() -> dict[str, int]:
    """Bytes free for weights on the CPU and on each GPU."""
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    gpus = {
        f"cuda:{index} ({torch.cuda.get_device_name(index)})": torch.cuda.mem_get_info(index)[0]
        for index in range(torch.cuda.device_count())
    }
    return {"CPU": pages, **gpus}
