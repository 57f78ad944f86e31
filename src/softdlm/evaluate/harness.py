"""Our models in lm-evaluation-harness, under the name `softdlm`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import simple_parse_args_string
from tqdm import tqdm

from softdlm.decoding import Decoding
from softdlm.engine.plan import check_length
from softdlm.errors import PromptError, TokenizerError, UsageError
from softdlm.evaluate.benchmark_data import PREFIX
from softdlm.evaluate.fingerprint import protocol, request_number
from softdlm.evaluate.harness_settings import LOADING, Settings
from softdlm.evaluate.harness_task import Messages, render
from softdlm.evaluate.likelihood import log_likelihood
from softdlm.evaluate.run import expected_passes
from softdlm.generation import encode, generate
from softdlm.models.load import find_checkpoint, is_local, load
from softdlm.records.canonical import digest

_PROTOCOL = "softdlm protocol"
"""The key under which a cache keeps the settings of its answers."""
_SAID_BY_TASKS = {"until", "do_sample", "max_gen_toks", "temperature", "top_p", "top_k", "eos", "rank", "k", "lam"}


@dataclass(frozen=True)
class Request:
    """One request to generate, ready to be batched with its equals."""

    index: int
    number: int
    ids: tuple[int, ...]
    decoding: Decoding

    @property
    def length(self) -> int:
        return len(self.ids) + (self.decoding.max_new_tokens or 0)


@register_model("softdlm")
class SoftDLM(LM):
    """A masked diffusion language model with its decoding settings; arguments as in `Settings`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.settings = Settings.parse(arguments)
        how = {name: getattr(self.settings, name) for name in LOADING}
        if self.settings.recipe is not None:
            known = {name: how[name] for name in ("revision", "mask_id", "eos_ids")}
            family = find_checkpoint(self.settings.pretrained, **known).source.family
            how["attention"] = self.settings.recipe_for(family).attention(how["attention"])
        self.model = load(self.settings.pretrained, **how, digest=is_local(self.settings.pretrained))
        if self.model.tokenizer is None:
            raise TokenizerError(f"{self.settings.pretrained} has no tokenizer, which an evaluation needs")
        self._device = self.model.device

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: dict[str, Any] | None = None) -> SoftDLM:
        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None) -> SoftDLM:
        """--model_args go before --batch_size and --device."""
        extra = {name: value for name, value in (additional_config or {}).items() if value is not None}
        return cls(**{**extra, **arg_dict})

    @property
    def tokenizer(self) -> Any:
        return self.model.tokenizer

    @property
    def tokenizer_name(self) -> str:
        """lm-eval keeps built prompts under this name (--cache_requests)."""
        source = self.model.source
        return f"{source.name}-{source.revision}".replace("/", "__")

    @property
    def max_length(self) -> int | None:
        return self.model.max_length

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self.tokenizer.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: Messages, add_generation_prompt: bool = True) -> str:
        return render(self.tokenizer, chat_history, add_generation_prompt)

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval adds to its results file."""
        return {"softdlm": self.protocol()}

    def protocol(self) -> dict[str, Any]:
        return self._protocol

    @cached_property
    def _protocol(self) -> dict[str, Any]:
        return protocol(self.settings, self.model)

    def set_cache_hook(self, cache_hook: Any) -> None:
        """Refuse a cache of answers that were made otherwise: lm-eval's key knows nothing of the model."""
        super().set_cache_hook(cache_hook)
        if cache_hook.dbdict is not None:
            ours = self.protocol()
            theirs = cache_hook.dbdict.get(_PROTOCOL)
            if theirs is None and len(cache_hook.dbdict):
                raise UsageError("this cache was not begun by softdlm: give --use_cache another prefix")
            if theirs is not None and digest(theirs) != digest(ours):
                old, new = ({**each, **each.get("decoding", {}), "decoding": None} for each in (theirs, ours))
                changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
                raise UsageError(f"this cache holds answers made with other {', '.join(changed)}: use another prefix")
            cache_hook.dbdict[_PROTOCOL] = ours

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        asked = self._requests(requests)
        texts = [""] * len(requests)
        bar = tqdm(total=len(asked), desc="softdlm", unit="answer", disable=disable_tqdm)
        passes = sum(expected_passes(request.decoding) for request in asked) / self.settings.batch_size
        with bar, self.model.expecting(passes):
            for batch in batches(asked, self.settings.batch_size):
                for request, text in zip(batch, self._answers(batch), strict=True):
                    texts[request.index] = text
                    self.cache_hook.add_partial("generate_until", requests[request.index].args, text)
                bar.update(len(batch))
        return texts

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        results = []
        for request in tqdm(requests, desc="softdlm", unit="continuation", disable=disable_tqdm):
            results.append(self._likelihood(*request.args))
            self.cache_hook.add_partial("loglikelihood", request.args, results[-1])
        return results

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        raise NotImplementedError(
            "softdlm estimates the log-likelihood of a continuation, not of a text of any length: "
            "choose a task with output_type loglikelihood, multiple_choice or generate_until"
        )

    def _requests(self, requests: Sequence[Instance]) -> list[Request]:
        """All of them encoded and checked before the first is decoded."""
        seen: Counter[str] = Counter()
        asked = []
        for index, request in enumerate(requests):
            arguments: Any = request.args
            text, words = arguments[0], said_by(arguments[1])
            number = request_number(text, str(seen[text]))  # repeats of one prompt draw afresh
            seen[text] += 1
            ids = tuple(encode(self.model, text, chat=False))
            decoding = self.settings.for_request(words, self.model.own, self.model.source.family, task_of(request))
            asked.append(Request(index, number, ids, decoding))
        if asked:
            self._check_length(max(asked, key=lambda each: each.length))
        return asked

    def _check_length(self, longest: Request) -> None:
        try:
            check_length(self.model, longest.length)
        except PromptError as error:
            raise PromptError(
                f"request {longest.index}: {error}; fewer shots or max_new_tokens make it fit, "
                "max_length= goes beyond what the model was trained for"
            ) from error

    def _answers(self, batch: Sequence[Request]) -> list[str]:
        answers = generate(
            self.model,
            [list(request.ids) for request in batch],
            batch_size=len(batch),
            requests=[request.number for request in batch],
            decoding=[request.decoding for request in batch],
        )
        return [answer.text for answer in answers]

    def _likelihood(self, context: str, continuation: str) -> tuple[float, bool]:
        before, target = self._split(context, continuation)
        value = log_likelihood(
            self.model,
            before,
            target,
            samples=self.settings.mc_samples,
            seed=request_number(str(self.settings.decoding.seed or 0), context, continuation),
            batch_size=self.settings.batch_size,
        )
        return value, self.settings.check_greedy and self._is_greedy(before, target)

    def _split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Ids of context and continuation, tokenised as one text; spaces at the border belong to the continuation.

        A continuation that would vanish into the last token of its context is tokenised by itself.
        """
        kept = context.rstrip()
        continuation = context[len(kept) :] + continuation
        alone = encode(self.model, continuation, chat=False)
        if not kept:
            bos = self.tokenizer.bos_token_id
            return [self.model.eos_ids[0] if bos is None else bos], alone
        before = encode(self.model, kept, chat=False)
        return before, encode(self.model, kept + continuation, chat=False)[len(before) :] or alone

    def _is_greedy(self, before: list[int], target: list[int]) -> bool:
        """Whether one token at a time, the surest first, gives the continuation."""
        vanilla: Any = {"commit": "topn(1)", "feedback": "vanilla", "early_finish": False}
        answer = generate(self.model, [before], max_new_tokens=len(target), **vanilla)[0]
        return answer.canvas_ids == target


def task_of(request: Instance) -> str:
    """The name of one of our tasks as `softdlm eval` spells it: gsm8k-dream for softdlm_gsm8k_dream; "" for others."""
    name = request.task_name or ""
    return name.removeprefix(PREFIX).replace("_", "-") if name.startswith(PREFIX) else ""


def said_by(said: dict[str, Any]) -> dict[str, Any]:
    """A task's generation_kwargs in our words; what we cannot do is refused."""
    words = dict(normalize_gen_kwargs(said, default_max_gen_toks=0))
    unknown = words.keys() - _SAID_BY_TASKS
    if unknown:
        raise UsageError(f"generation_kwargs {', '.join(sorted(unknown))} mean nothing to softdlm: leave them out")
    limit = words.pop("max_gen_toks")
    words.pop("do_sample", None)  # the temperature says it
    return words | ({"max_new_tokens": limit} if limit else {})


def batches(requests: Sequence[Request], size: int) -> Iterator[list[Request]]:
    """Requests that share passes, the shortest first, so that neighbours need little padding."""
    groups: list[list[Request]] = []
    for request in sorted(requests, key=lambda request: len(request.ids)):
        for group in groups:
            if group[0].decoding == request.decoding:
                group.append(request)
                break
        else:
            groups.append([request])
    for group in groups:
        for start in range(0, len(group), size):
            yield group[start : start + size]
