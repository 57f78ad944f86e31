"""`softdlm models`: the models that are known by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from softdlm.cli.options import Json, print_json

if TYPE_CHECKING:
    from softdlm.models.known import KnownModel

GIB = 2**30
BYTES = {"fp32": 4, "bf16": 2}
"""Of a number in each type that the weights are listed in."""
NOTES = (
    "fp32 and bf16: GiB of the weights alone in float32 and bfloat16. softdlm doctor says what fits this machine.",
    "LLaDA2.0-mini runs with full attention too. Fine-tuned checkpoints of the same formats load from a folder.",
)


def models(as_json: Json = False) -> None:
    """List the models that are known by name."""
    from softdlm.report.row_tables import print_rows

    rows = [about(each) for each in listed()]
    if as_json:
        print_json(rows)
        return
    for attention, title in {"full": "Full attention", "block-causal": "Attention in blocks of 32"}.items():
        chosen = [words(row) for row in rows if row["attention"] == attention]
        print_rows(chosen, title, notes=NOTES if attention == "block-causal" else ())


def listed() -> list[KnownModel]:
    """The built-in model and the published checkpoints."""
    from softdlm.models.known import KnownModel, known_models
    from softdlm.models.load import find_checkpoint

    own = find_checkpoint("builtin")
    size = json.loads((own.folder / "training.json").read_text())["parameters"]
    names = ("n_layers", "d_model", "mlp_hidden_size", "vocab_size")
    return [KnownModel("builtin", own.family.name, size, *(own.config[name] for name in names)), *known_models()]


def about(known: KnownModel) -> dict[str, Any]:
    """A model with what its family says of its special tokens; ids that only a checkpoint knows are left out."""
    from softdlm.models.load import family_of

    family = family_of(known.model_type)
    special = {"mask_id": family.mask_id, "eos_id": family.eos_id, "end_of_turn": family.end_of_turn[0]}
    sizes = {f"GiB in {name}": round(known.parameters * size / GIB, 3) for name, size in BYTES.items()}
    row = {"model": known.name, "model_type": known.model_type, "parameters": known.parameters, **sizes}
    row |= {"attention": known.attention, "block_length": known.block_length, **special}
    return {name: value for name, value in row.items() if value is not None}


def words(row: dict[str, Any]) -> dict[str, Any]:
    """A model as a person reads it: 78 columns with the longest name."""
    size = row["parameters"]
    whole = f"{size / 1e6:.0f} M" if size >= 1e8 else f"{size / 1e6:.1f} M"
    return {
        "model": row["model"],
        "size": f"{size / 1e9:.1f} B" if size >= 1e9 else whole,
        **{name: gib(row[f"GiB in {name}"]) for name in BYTES},
    }


def gib(value: float) -> str:
    return f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"
