"""Text in, text out: prompts to ids, ids to batches, canvases to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, overload

from torch import Tensor

from softdlm.decoding import Decoding, settle
from softdlm.engine.answer import Answer, Generation, OnText
from softdlm.engine.pick_engine import EngineKind
from softdlm.engine.plan import check_start
from softdlm.engine.queue import Engine, OnStep
from softdlm.errors import PromptError, TokenizerError, UsageError
from softdlm.models.denoiser import Denoiser

Message = Mapping[str, str]
Prompt = str | Sequence[Message] | Sequence[int] | Tensor


@overload
def generate(
    model: Denoiser, prompt: str | Sequence[Message] | Sequence[int] | Tensor, **options: Any
) -> Generation: ...
@overload
def generate(model: Denoiser, prompt: Sequence[Prompt], **options: Any) -> list[Generation]: ...
def generate(
    model: Denoiser,
    prompt: Prompt | Sequence[Prompt],
    *,
    decoding: Decoding | Sequence[Decoding] | None = None,
    chat: bool = True,
    batch_size: int = 16,
    engine: EngineKind | None = None,
    requests: Sequence[int] | None = None,
    record_candidates: bool = False,
    on_text: OnText | None = None,
    on_step: OnStep | None = None,
    **fields: Any,
) -> Generation | list[Generation]:
    """Answer one prompt or many.

    A prompt is a string (a user's turn; chat=False takes it as raw text), a list of chat messages, or token ids; a list
    of prompts gives a list of answers in the same order. How is said by fields of a Decoding (`commit=TopN(4)`,
    `max_new_tokens=64`), by `decoding`, or by one Decoding per prompt; what is left out is filled from the model's own
    settings. The tokens of a prompt do not depend on its batch. `requests` numbers the prompts for sampling (their
    places by default). The trace keeps every commit, with record_candidates also the candidates at the positions still
    open. The engine decides how passes are run: "dynamic" (exact shapes), "static" (rounded shapes, captured in graphs
    on a GPU), "compiled" (static, with compiled layers), "auto" (on a GPU static where it can, compiling a shape once
    that pays or after `model.warm()`; else dynamic). By default it is the model's, which is "auto".
    """
    single = is_single(prompt)
    prompts: Sequence[Any] = [prompt] if single else prompt  # type: ignore[assignment]
    numbers = range(len(prompts)) if requests is None else requests
    if len(numbers) != len(prompts):
        raise UsageError(f"{len(prompts)} prompts but {len(numbers)} request numbers: give one per prompt")
    chosen = _decodings(model, decoding, fields, len(prompts))
    if model.tokenizer is None and (on_text or any(each.stop for each in chosen)):
        raise TokenizerError(f"{model.source.name} has no tokenizer, which stop strings and streamed text need")
    answers = [
        Answer(model, request, encode(model, each, chat), how, on_text, record_candidates)
        for request, each, how in zip(numbers, prompts, chosen, strict=True)
    ]
    with Engine(model, batch_size=batch_size, engine=engine, on_step=on_step) as queue:
        for answer in sorted(answers, key=lambda answer: answer.length):
            queue.submit(answer)
        while queue.busy:
            for answer in queue.step():
                if answer.error is not None:
                    raise answer.error
    results = [answer.generation for answer in answers if answer.generation is not None]
    return results[0] if single else results


def _decodings(
    model: Denoiser, decoding: Decoding | Sequence[Decoding] | None, fields: Mapping[str, Any], count: int
) -> list[Decoding]:
    """A settled Decoding for each prompt."""
    if decoding is None or isinstance(decoding, Decoding):
        return [settle(model, decoding, fields)] * count
    if len(decoding) != count:
        raise UsageError(f"{count} prompts but {len(decoding)} decodings: give one for all, or one per prompt")
    return [settle(model, each, fields) for each in decoding]


def is_single(prompt: Prompt | Sequence[Prompt]) -> bool:
    if isinstance(prompt, str | Tensor):
        return True
    if not prompt:
        raise UsageError("no prompt was given")
    return isinstance(prompt[0], Mapping | Integral)


def encode(model: Denoiser, prompt: Prompt, chat: bool = True, start: bool = True) -> list[int]:
    """Prompt to ids, checked once for all that a decode would stumble over.

    `start=False` is for a piece that does not stand at the start of the canvas.
    """
    if isinstance(prompt, Tensor) and prompt.ndim != 1:
        raise PromptError(f"a tensor of ids must have one dimension, not {prompt.ndim}: give a list for many prompts")
    ids = _text_ids(model, prompt, chat) if _is_text(prompt) else [int(token) for token in prompt]  # type: ignore[union-attr]
    size = len(model.embedding)
    outside = [token for token in ids if not 0 <= token < size]
    if outside:
        raise PromptError(f"prompt ids {outside[:5]} lie outside the vocabulary of {size}")
    if model.mask_id in ids:
        raise PromptError(
            f"the prompt holds the mask token (id {model.mask_id}) at position {ids.index(model.mask_id)}; "
            "to fill in masks inside a text, give denoise() a Canvas"
        )
    if start:
        check_start(model, len(ids))
    return ids


def _is_text(prompt: Prompt) -> bool:
    return isinstance(prompt, str) or (
        not isinstance(prompt, Tensor) and len(prompt) > 0 and isinstance(prompt[0], Mapping)
    )


def _text_ids(model: Denoiser, prompt: Any, chat: bool) -> list[int]:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise TokenizerError(f"{model.source.name} has no tokenizer: give token ids instead of text")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    text = prompt
    if chat or not isinstance(prompt, str):
        text = render_chat(tokenizer, messages)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"the prompt is not UTF-8 text: it holds {error.object[error.start]!r}") from error
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def render_chat(tokenizer: Any, messages: list[Any]) -> str:
    """The text that a chat template makes of messages, ready for the answer."""
    for message in messages:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise PromptError(f"a chat message is a mapping with role and content, not {message!r}")
    try:
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as error:
        raise PromptError(f"the chat template refuses these messages: {' '.join(str(error).split())}") from error
