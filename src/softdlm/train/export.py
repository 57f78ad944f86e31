"""Export of trained weights as a folder in LLaDA's checkpoint format, for softdlm.load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from softdlm.models import llada

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "training.json"


def export(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Path) -> str:
    """Write configuration, bfloat16 weights under LLaDA's names and the tokenizer; returns the weights' sha256."""
    tensors = {}
    for weight in llada.weights(config):
        (part,) = weight.parts
        tensors[weight.name] = weights[part.parameter].detach().to("cpu", torch.bfloat16).contiguous()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, dict(config))
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, folder / name)
    return sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
