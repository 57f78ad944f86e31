"""Prompts with two alternatives: the paper's 70, Figure 1's, or those of a file; encoded for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from softdlm import parsing
from softdlm.analysis.spans import Answer, Span
from softdlm.engine.plan import check_length
from softdlm.errors import TokenizerError, UsageError
from softdlm.generation import encode
from softdlm.models.denoiser import Denoiser
from softdlm.records.objects import known_fields, read_objects, text_field
from softdlm.tasks.either_or import figure1_item, paper_items
from softdlm.tasks.task import Item

PAPER = 70
LEAD = " "
"""Stands between a prompt and its answer in raw text."""
ChatLead = Literal["none", "space"]
"""What stands there inside the chat template, after the header of the answer."""


@dataclass(frozen=True)
class Alternatives:
    """A prompt that names two answers, and the number of masks after it (appendix D.1)."""

    prompt: str
    a: str
    b: str
    masks: int
    lead: str | None = None
    """Text between prompt and answer, part of the answer's first token; None leaves it to `encode_case`."""


@dataclass(frozen=True)
class Case:
    """`Alternatives` encoded with a model's tokenizer."""

    prompt: str
    span: Span
    a: Answer
    b: Answer
    chat: bool = False
    """Whether the prompt is inside the chat template."""

    @property
    def qualifies(self) -> bool:
        """Whether both alternatives have exactly as many tokens as there are masks, as Table 4 needs."""
        return len(self.a) == len(self.b) == len(self.span.places)


def paper_prompts() -> list[Alternatives]:
    """The 70 prompts of Tables 9 to 11, in the paper's order."""
    return [_of_item(item) for item in paper_items(PAPER)]


def figure1_prompt() -> Alternatives:
    return _of_item(figure1_item())


def read_alternatives(path: str | Path) -> list[Alternatives]:
    """Prompts from a JSON Lines file with fields prompt, a, b and, optionally, masks (default: words of a) and lead."""
    return [_of_line(place, line) for place, line in read_objects(path)]


def encode_case(model: Denoiser, prompt: Alternatives, chat: bool = False, chat_lead: str = "none") -> Case:
    """Encode as raw text or, with `chat`, inside the model's chat template.

    Raw text has a space before the answer. Inside the template `chat_lead` decides: none or space. A prompt that names
    its own lead keeps it.
    """
    spaced = parsing.one_of(ChatLead)("chat-lead", chat_lead) == "space" or not chat
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise TokenizerError(
            f"{model.source.name} has no tokenizer, so text prompts cannot be encoded: load a checkpoint with one"
        )
    ids = encode(model, prompt.prompt, chat)
    check_length(model, len(ids) + prompt.masks)
    before = (LEAD if spaced else "") if prompt.lead is None else prompt.lead
    a, b = (tuple(tokenizer(before + text, add_special_tokens=False)["input_ids"]) for text in (prompt.a, prompt.b))
    return Case(prompt.prompt, Span.after(ids, prompt.masks, model.mask_id), a, b, chat)


def encode_cases(
    model: Denoiser, prompts: Sequence[Alternatives], chat: bool = False, chat_lead: str = "none"
) -> list[Case]:
    return [encode_case(model, prompt, chat, chat_lead) for prompt in prompts]


def _of_line(place: str, line: Mapping[str, Any]) -> Alternatives:
    known_fields(place, line, "prompt", "a", "b", "masks", "lead")
    prompt, a, b = (text_field(place, line, name) for name in ("prompt", "a", "b"))
    if a == b:
        raise UsageError(f"{place}: 'a' and 'b' must differ, both are {a!r}")
    counts = {len(a.split()), len(b.split())}
    masks = line.get("masks", counts.pop() if len(counts) == 1 else None)
    if type(masks) is not int or masks < 1:
        raise UsageError(
            f"{place}: 'masks' must be a whole number from 1, not {masks!r}: give it if a and b differ in words"
        )
    return Alternatives(prompt, a, b, masks, text_field(place, line, "lead", LEAD) if "lead" in line else None)


def _of_item(item: Item) -> Alternatives:
    return Alternatives(item.prompt, item.meta["a"], item.meta["b"], item.level)
