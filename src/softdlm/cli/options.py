"""Options that several verbs of the command line share, and the model that they name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from softdlm.errors import UsageError

Model = Annotated[str, typer.Option("--model", "-m", help="builtin, a folder, or a Hugging Face id.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")]
Device = Annotated[str | None, typer.Option(help="cuda, cpu, ...; the first GPU by default.")]
DTYPE_HELP = "bfloat16 on a GPU and float32 on a CPU by default; native: bfloat16 where the device computes in it."
Dtype = Annotated[str | None, typer.Option(help=DTYPE_HELP)]
Attention = Annotated[str, typer.Option(help="LLaDA-2 only: auto, full or block-causal.")]
MaskId = Annotated[int | None, typer.Option(help="Overrides the checkpoint's.")]
EosIds = Annotated[str | None, typer.Option(help="Overrides the checkpoint's; EOS first, commas between.")]
K = Annotated[int, typer.Option("--k", help="Candidates in a soft token.")]
Lam = Annotated[float, typer.Option("--lam", help="Strength of the feedback, 0 to 1.")]
OwnK = Annotated[int | None, typer.Option("--k", help="Candidates in a soft token; the model's own by default.")]
OwnLam = Annotated[float | None, typer.Option("--lam", help="Strength, 0 to 1; the model's own by default.")]
Cache = Annotated[str | None, typer.Option(help="Recall keys and values outside the block: prefix or dual.")]
Refresh = Annotated[int | None, typer.Option(help="With --cache, compute all again after so many passes of a block.")]
Renew = Annotated[int, typer.Option(help="With --cache, compute all at the start of every so many blocks only.")]
Eos = Annotated[str, typer.Option(help="EOS may be predicted: allow, last or forbid.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def load_model(
    model: str,
    revision: str | None,
    device: str | None,
    dtype: str | None,
    attention: Any,
    mask_id: int | None,
    eos_ids: str | None,
) -> Any:
    from softdlm.models.load import load

    ends = None if eos_ids is None else token_ids(eos_ids, "--eos-ids")
    return load(
        model, revision=revision, device=device, dtype=dtype, attention=attention, mask_id=mask_id, eos_ids=ends
    )


def token_ids(text: str, option: str = "--ids") -> list[int]:
    try:
        return [int(token) for token in text.replace(",", " ").split()]
    except ValueError as error:
        raise UsageError(f"{option} needs whole numbers, not {text!r}") from error
