"""Text in, text out: prompts to ids, ids to batches, canvases to text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from numbers import Integral
from typing import Any, Literal, Unpack, overload

import torch
from jaxtyping import Bool
from torch import Tensor

from softdlm.blocks import check_block_length
from softdlm.decode import DecodeOptions, EarlyFinish, EngineKind, check_length, check_start, denoise, plan_decode
from softdlm.engine.answer import Answer, Generation, OnText
from softdlm.engine.captured import borrowed_slots, rounded
from softdlm.engine.pick_engine import choose
from softdlm.engine.queue import Engine
from softdlm.errors import PromptError, TokenizerError, UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.trace import Pass
from softdlm.types import Canvas, Step

Message = Mapping[str, str]
Prompt = str | Sequence[Message] | Sequence[int] | Tensor
OnStep = Callable[[Step, Sequence[int]], None]
"""Called after each pass with the numbers of the requests in the batch's rows."""


class GenerateOptions(DecodeOptions, total=False):
    """The keywords of `generate`, for those who pass them on."""

    max_new_tokens: int
    chat: bool
    stop: str | Sequence[str]
    early_finish: EarlyFinish
    batch_size: int
    engine: EngineKind | Literal["auto"]
    requests: Sequence[int] | None
    record_candidates: bool
    on_text: OnText | None
    on_step: OnStep | None


@overload
def generate(
    model: Denoiser, prompt: str | Sequence[Message] | Sequence[int] | Tensor, **options: Unpack[GenerateOptions]
) -> Generation: ...
@overload
def generate(model: Denoiser, prompt: Sequence[Prompt], **options: Unpack[GenerateOptions]) -> list[Generation]: ...
def generate(
    model: Denoiser,
    prompt: Prompt | Sequence[Prompt],
    *,
    max_new_tokens: int = 128,
    chat: bool = True,
    stop: str | Sequence[str] = (),
    early_finish: EarlyFinish = True,
    batch_size: int = 16,
    engine: EngineKind | Literal["auto"] = "auto",
    requests: Sequence[int] | None = None,
    record_candidates: bool = False,
    on_text: OnText | None = None,
    on_step: OnStep | None = None,
    **options: Unpack[DecodeOptions],
) -> Generation | list[Generation]:
    """Answer one prompt or many.

    A prompt is a string (a user's turn; chat=False takes it as raw text), a list of chat messages, or token ids;
    a list of prompts gives a list of answers in the same order. The remaining options are those of `denoise`. The
    tokens of a prompt do not depend on its batch. `requests` numbers the prompts, which draws are seeded by (their
    places by default). The trace keeps every commit, with record_candidates also the candidates at the positions
    still open. The engine decides how passes are run: "dynamic", "static" (shapes that do not change, on a GPU captured
    in graphs), "compiled" (static, and the network's layers compiled), "auto" (static on a GPU where it can, else
    dynamic).
    """
    single = is_single(prompt)
    prompts: Sequence[Any] = [prompt] if single else prompt  # type: ignore[assignment]
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if max_new_tokens < 1:
        raise UsageError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    if batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}")
    if (stops or on_text) and model.tokenizer is None:
        raise TokenizerError(f"{model.source.name} has no tokenizer, which stop strings and streamed text need")
    if "" in stops:
        raise UsageError("a stop string must not be empty")
    numbers = range(len(prompts)) if requests is None else requests
    if len(numbers) != len(prompts):
        raise UsageError(f"{len(prompts)} prompts but {len(numbers)} request numbers: give one per prompt")
    check_block_length(options.get("block_length"))
    length = options.get("block_length") if model.blocks_from_zero else None
    answers = [
        Answer(
            model,
            request,
            encode(model, each, chat),
            max_new_tokens,
            length,
            stops,
            on_text,
            record_candidates,
        )
        for request, each in zip(numbers, prompts, strict=True)
    ]
    by_length = sorted(answers, key=lambda answer: answer.length)
    check_length(model, by_length[-1].length)
    chosen = choose(plan_decode(model, early_finish=early_finish, **options), engine)
    if chosen != "dynamic" and not (stops or on_text or on_step or record_candidates):
        _queue(model, by_length, batch_size, early_finish, chosen, options)
    else:
        for start in range(0, len(by_length), batch_size):
            _run(model, by_length[start : start + batch_size], early_finish, chosen, on_step, options)
    results = [answer.result(options) for answer in answers]
    return results[0] if single else results


def is_single(prompt: Prompt | Sequence[Prompt]) -> bool:
    if isinstance(prompt, str | Tensor):
        return True
    if not prompt:
        raise UsageError("no prompt was given")
    return isinstance(prompt[0], Mapping | Integral)


def encode(model: Denoiser, prompt: Prompt, chat: bool = True) -> list[int]:
    """Prompt to ids, checked once for all that a decode would stumble over."""
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


def _queue(
    model: Denoiser,
    answers: Sequence[Answer],
    batch_size: int,
    early_finish: EarlyFinish,
    engine: EngineKind,
    options: DecodeOptions,
) -> None:
    """Decode answers that nobody watches, those of about one length through the same slots."""
    plan = plan_decode(model, early_finish=early_finish, **options)
    for length, group in groupby(answers, key=lambda answer: rounded(answer.length)):
        alike = list(group)
        longest = alike[-1].length
        fitting = longest if alike[0].length == longest else length  # without padding attention needs no mask
        with borrowed_slots(plan, min(batch_size, len(alike)), fitting, engine) as slots:
            queue = Engine(slots)
            asked = {queue.submit(answer.prompt_ids, answer.length): answer for answer in alike}
            while queue.busy:
                for request, told in queue.step().items():
                    asked[request].take(told)


def _run(
    model: Denoiser,
    answers: Sequence[Answer],
    early_finish: EarlyFinish,
    engine: EngineKind,
    on_step: OnStep | None,
    options: DecodeOptions,
) -> None:
    """Decode one batch, each answer reading the Steps its row took part in."""
    pad = next(iter(model.eos_ids), 0)
    canvas = Canvas.pack(
        [answer.prompt_ids for answer in answers], [answer.length for answer in answers], model.mask_id, pad
    )
    if engine != "dynamic" and not canvas.real.all():
        canvas = canvas.widen(rounded(canvas.ids.shape[1]), pad)
    names = [answer.request for answer in answers]

    def read(step: Step) -> Bool[Tensor, "B"]:
        for row, made in Pass.by_row(step, answers[0].record_candidates).items():
            answers[row].passes.append(made)
        if answers[0].speaks:
            listen(step.canvas)
        return torch.tensor([answer.stopped for answer in answers], device=step.committed.device)

    def listen(canvas: Canvas) -> None:
        for answer, row in zip(answers, canvas.ids.tolist(), strict=True):
            if not answer.stopped:
                answer.listen(row)

    wanted: Any = {**options, "requests": names, "early_finish": early_finish}
    for step in denoise(model, canvas, until=read, engine=engine, **wanted):
        canvas = step.canvas
        if on_step:
            on_step(step, names)
    listen(canvas)
