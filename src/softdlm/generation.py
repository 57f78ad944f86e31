"""Text in, text out: prompts to ids, ids to batches, canvases to text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from numbers import Integral
from typing import Any, Literal, overload

import torch
from jaxtyping import Bool
from torch import Tensor

from softdlm.decode import run_plan
from softdlm.decoding import Decoding, settle
from softdlm.engine.answer import Answer, Generation, OnText
from softdlm.engine.captured import borrowed_slots, rounded
from softdlm.engine.pick_engine import EngineKind, pick_engine
from softdlm.engine.plan import Plan, check_length, check_start
from softdlm.engine.queue import Engine
from softdlm.errors import PromptError, TokenizerError, UsageError
from softdlm.models.denoiser import Denoiser
from softdlm.trace import Pass
from softdlm.types import Canvas, Step

Message = Mapping[str, str]
Prompt = str | Sequence[Message] | Sequence[int] | Tensor
OnStep = Callable[[Step, Sequence[int]], None]
"""Called after each pass with the numbers of the requests in the batch's rows."""


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
    engine: EngineKind | Literal["auto"] = "auto",
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
    on a GPU), "compiled" (static, with compiled layers), "auto" (static on a GPU where it can, else dynamic).
    """
    single = is_single(prompt)
    prompts: Sequence[Any] = [prompt] if single else prompt  # type: ignore[assignment]
    if batch_size < 1:
        raise UsageError(f"batch_size must be at least 1, not {batch_size}")
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
    check_length(model, max(answer.length for answer in answers))
    for group in _cohorts(answers):
        picked = pick_engine(Plan.of(model, group[0].decoding), engine)
        if picked == "dynamic" or on_step or record_candidates or any(answer.speaks for answer in group):
            for start in range(0, len(group), batch_size):
                _run(model, group[start : start + batch_size], picked, on_step)
        else:
            _queue(model, group, batch_size, picked)
    results = [answer.result() for answer in answers]
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


def _cohorts(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Answers that share passes, the shortest first; rules need no hash, so cohorts are compared one by one."""
    groups: list[list[Answer]] = []
    for answer in sorted(answers, key=lambda answer: answer.length):
        for group in groups:
            if group[0].decoding.cohort == answer.decoding.cohort:
                group.append(answer)
                break
        else:
            groups.append([answer])
    return groups


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


def _queue(model: Denoiser, answers: Sequence[Answer], batch_size: int, engine: EngineKind) -> None:
    """Decode answers that nobody watches, those of about one length through the same slots."""
    plan = Plan.of(model, answers[0].decoding)
    for length, group in groupby(answers, key=lambda answer: rounded(answer.length)):
        alike = list(group)
        longest = alike[-1].length
        fitting = longest if alike[0].length == longest else length  # without padding attention needs no mask
        with borrowed_slots(plan, min(batch_size, len(alike)), fitting, engine) as slots:
            queue = Engine(slots)
            submitted = {queue.submit(answer.prompt_ids, answer.length): answer for answer in alike}
            while queue.busy:
                for request, record in queue.step().items():
                    submitted[request].take(record)


def _run(model: Denoiser, answers: Sequence[Answer], engine: EngineKind, on_step: OnStep | None) -> None:
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
        if any(answer.speaks for answer in answers):
            listen(step.canvas)
        return torch.tensor([answer.stopped for answer in answers], device=step.committed.device)

    def listen(canvas: Canvas) -> None:
        for answer, row in zip(answers, canvas.ids.tolist(), strict=True):
            if not answer.stopped:
                answer.listen(row)

    seeds = [answer.decoding.seed or 0 for answer in answers]
    plan = Plan.of(model, answers[0].decoding, names, seeds)
    for step in run_plan(plan, canvas, until=read, engine=engine):
        canvas = step.canvas
        if on_step:
            on_step(step, names)
    listen(canvas)
