"""`softdlm doctor`: what is here, and what each model would need."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from softdlm.cli.models import GIB, gib, listed
from softdlm.cli.options import Json, print_json
from softdlm.version import __version__

if TYPE_CHECKING:
    from softdlm.models.known import KnownModel

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub")
POSITIONS = 1024
"""Prompt and answer of the one request that is counted."""
REDUCED = 24
"""Bytes of the float32 copies of a logit while it is reduced, where no kernel does that."""
NOTES = (
    f"Counted in GiB: the weights in that type, and one pass over a prompt and answer of {POSITIONS:,} tokens "
    "(activations, attention mask, logits 64 Mi at a time). fits: that is at most 90 % of what is free now.",
    "Not counted: keys and values of a cache, further rows of a batch, and what CUDA and Python take for themselves.",
)


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, free memory, and which models fit here."""
    from softdlm.report.row_tables import print_rows

    report = examine()
    if as_json:
        print_json(report)
        return
    print_rows([{"what": name, "found": str(value)} for name, value in report["machine"].items()], "This machine")
    print_rows(list(map(words, report["models"])), "Which models fit", notes=NOTES)


def examine() -> dict[str, Any]:
    import torch

    free = free_memory()
    machine = {"python": platform.python_version(), "system": platform.platform()}
    machine |= {"softdlm": __version__, **{name: version(name) for name in PACKAGES}}
    machine |= {"CPU cores": os.cpu_count(), "threads of torch": torch.get_num_threads()}
    machine |= {f"free on {name}, GiB": round(size / GIB, 1) for name, size in free.items()}
    return {"machine": machine, "models": [needs(each, free) for each in listed()]}


def needs(known: KnownModel, free: dict[str, int]) -> dict[str, Any]:
    """What one request takes on each device, and whether it is there: in float32 on a CPU, in bfloat16 on GPUs."""
    from softdlm.engine.memory import SHARE

    places = {}
    for place, size in free.items():
        dtype, width = ("float32", 4) if place == "CPU" else ("bfloat16", 2)
        needed = known.parameters * width + pass_bytes(known, width, on_gpu=place != "CPU")
        places[f"{place}, {dtype}"] = {"GiB": round(needed / GIB, 3), "fits": needed <= SHARE * size}
    return {"model": known.name, **places}


def pass_bytes(known: KnownModel, width: int, on_gpu: bool) -> int:
    """Of one pass of one row, by the estimate that the engine admits requests by (engine/memory.py)."""
    from softdlm.predict import CHUNK_ELEMENTS

    logits = min(POSITIONS * known.vocabulary, max(CHUNK_ELEMENTS, known.vocabulary))
    network = known.pass_elements(POSITIONS) * width
    return network + logits * (width + (0 if on_gpu else REDUCED)) + POSITIONS**2 * (1 + width)


def words(row: dict[str, Any]) -> dict[str, Any]:
    found = {place: f"{gib(each['GiB'])} {'fits' if each['fits'] else 'no'}" for place, each in list(row.items())[1:]}
    return {"model": row["model"], **found}


def free_memory() -> dict[str, int]:
    """Bytes that can be had on the CPU and on each GPU; on Linux, file caches that can be dropped count as free."""
    import torch

    from softdlm.engine.memory import host_memory

    gpus = {
        f"cuda:{index} ({torch.cuda.get_device_name(index)})": torch.cuda.mem_get_info(index)[0]
        for index in range(torch.cuda.device_count())
    }
    return {"CPU": host_memory(), **gpus}
