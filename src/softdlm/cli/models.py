"""`softdlm models`: the models that are known by name."""

from __future__ import annotations

import json
from typing import Any

from softdlm.cli.options import Json, print_json

FAMILIES = {"llada": "LLaDA", "llada2_moe": "LLaDA-2"}
"""Families in words, where `model_type` is not one."""


def models(as_json: Json = False) -> None:
    """List the models that are known by name."""
    from softdlm.report.row_tables import print_rows

    rows = known_models()
    print_json(rows) if as_json else print_rows(list(map(words, rows)))


def known_models() -> list[dict[str, Any]]:
    """The built-in model and the published checkpoints, with what their family says of them."""
    from softdlm.models.load import families, find_checkpoint

    own = find_checkpoint("builtin")
    size = json.loads((own.folder / "training.json").read_text())["parameters"]
    found = {"builtin": (own.family, size, own.mask_id, own.eos_ids[0])} | {
        name: (family, parameters, family.mask_id, family.eos_id)
        for _, family in families()
        for name, parameters in family.models.items()
    }
    return [
        {
            "model": name,
            "model_type": family.name,
            "parameters": parameters,
            "mask_id": mask,
            "eos_id": eos,
            "end_of_turn": family.end_of_turn[0],
        }
        for name, (family, parameters, mask, eos) in found.items()
    ]


def words(row: dict[str, Any]) -> dict[str, Any]:
    """A model as a person reads it."""
    size = row["parameters"]
    return {
        "model": row["model"],
        "family": FAMILIES.get(row["model_type"], row["model_type"]),
        "size": f"{size / 1e9:.1f} B" if size >= 1e9 else f"{size / 1e6:.1f} M",
        "mask id": str(row["mask_id"]),
        "EOS id": str(row["eos_id"]),
        "end of turn": row["end_of_turn"],
    }
