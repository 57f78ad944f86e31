"""Export of trained weights as a folder in LLaDA's checkpoint format, for softdlm.load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from softdlm.models import llada
from softdlm.records.canonical import content_digest
from softdlm.records.files import write_bytes, write_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "training.json"


def export(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], tokenizer: Path) -> str:
    """Write configuration, bfloat16 weights under LLaDA's names and the tokenizer; returns the weights' sha256."""
    tensors = {}
    for weight in llada.weights(config):
        (part,) = weight.parts
        tensors[weight.name] = weights[part.parameter].detach().to("cpu", torch.bfloat16).contiguous()
    write_bytes(folder / WEIGHTS, save(tensors, {"format": "pt"}))
    write_json(folder / CONFIG, dict(config))
    for name in TOKENIZER_FILES:
        write_bytes(folder / name, (tokenizer / name).read_bytes())
    return content_digest(folder / WEIGHTS)
