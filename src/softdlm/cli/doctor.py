"""`softdlm doctor`: what is here, and what each model would need."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

from softdlm.cli.models import known_models
from softdlm.cli.options import Json, print_json
from softdlm.version import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub")
GIB = 2**30


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, free memory, and which models fit here."""
    from softdlm.report.row_tables import print_rows

    report = examine()
    if as_json:
        print_json(report)
        return
    print_rows([{"what": name, "found": str(value)} for name, value in report["machine"].items()], "This machine")
    print_rows(report["models"], "Which models fit")


def examine() -> dict[str, Any]:
    import torch

    free = free_memory()
    machine = {"python": platform.python_version(), "system": platform.platform()}
    machine |= {"softdlm": __version__, **{name: version(name) for name in PACKAGES}}
    machine |= {"CPU cores": os.cpu_count(), "threads of torch": torch.get_num_threads()}
    machine |= {f"free on {name}, GiB": round(size / GIB, 1) for name, size in free.items()}
    return {"machine": machine, "models": [needs(row["model"], row["parameters"], free) for row in known_models()]}


def needs(model: str, parameters: int, free: dict[str, int]) -> dict[str, Any]:
    """The weights' size, and whether they fit with a tenth to spare: in float32 on the CPU, in bfloat16 on GPUs."""
    dtypes = {place: ("float32", 4) if place == "CPU" else ("bfloat16", 2) for place in free}
    fits = {
        f"{place}, {dtype}": "fits" if 1.1 * parameters * size < free[place] else "too large"
        for place, (dtype, size) in dtypes.items()
    }
    return {"model": model, "GiB in bfloat16": round(2 * parameters / GIB, 1 if parameters > 1e9 else 3), **fits}


def free_memory() -> dict[str, int]:
    """Bytes free for weights on the CPU and on each GPU."""
    import torch

    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    gpus = {
        f"cuda:{index} ({torch.cuda.get_device_name(index)})": torch.cuda.mem_get_info(index)[0]
        for index in range(torch.cuda.device_count())
    }
    return {"CPU": pages, **gpus}
