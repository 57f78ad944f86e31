"""The built-in model on its own tasks: problems per second, compared with the plain loop, which gives the same text.

The plain loop decodes one problem at a time, sends every position through the LM head and decodes every block to its
end. `generate` decodes one row per core, sends open positions through the head and stops early. The two take turns on
the same items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from softdlm.bench.context import Bench, SuiteResult
from softdlm.bench.measure import seconds
from softdlm.bench.reference import plain_loop
from softdlm.bench.workload import Decode
from softdlm.commit import TopN
from softdlm.decoding import Decoding
from softdlm.feedback import Mask
from softdlm.generation import encode, generate
from softdlm.models.denoiser import NetworkDenoiser

BATCH = 8


class TaskSetting(NamedTuple):
    task: str
    rate: int
    block: int | None

    def __str__(self) -> str:
        return f"{self.task} at {self.rate} a step, {f'blocks of {self.block}' if self.block else 'whole canvas'}"


SETTINGS = (
    TaskSetting("mini-math", 1, None),
    TaskSetting("mini-math", 4, None),
    TaskSetting("mini-math", 1, 32),
    TaskSetting("mini-code", 1, None),
    TaskSetting("mini-code", 1, 32),
    TaskSetting("mini-code", 1, 16),
)


@dataclass
class Tally:
    """Totals of one of the two loops."""

    seconds: float = 0.0
    passes: int = 0
    texts: list[str] = field(default_factory=list)
    floor: float = 0.0


def problems(bench: Bench) -> SuiteResult:
    """Each setting in turn, until the time budget is used up."""
    found = SuiteResult()
    measure_setting(bench, TaskSetting("mini-math", 32, None), BATCH)  # warms up both
    for setting in SETTINGS:
        if found.rows and bench.budget.left <= 0:
            left = "; ".join(map(str, SETTINGS[len(found.rows) :]))
            found.notes.append(f"The time budget ended before {left}.")
            break
        bench.say(str(setting))
        found.rows.append(measure_setting(bench, setting, bench.sizes.items))
    found.notes.append(
        "The floor assumes the passes that were made, with all cores at the rate of the fastest matrix product."
    )
    return found


def measure_setting(bench: Bench, setting: TaskSetting, items: int) -> dict[str, Any]:
    from softdlm.tasks import load_task

    task = load_task(setting.task, split="validation", size=items)
    plain, ours = Tally(), Tally()
    for start in range(0, items, BATCH):
        prompts = [item.prompt for item in task.items[start : start + BATCH]]
        run_plain(bench, setting, prompts, task.max_new_tokens, plain)
        run_ours(bench, setting, prompts, task.max_new_tokens, ours)
    same = sum(a == b for a, b in zip(plain.texts, ours.texts, strict=True))
    return {
        "task": setting.task,
        "tokens a step": setting.rate,
        "block": setting.block or "whole canvas",
        "problems": items,
        "same text": same,
        "problems/s": items / ours.seconds,
        "plain problems/s": items / plain.seconds,
        "gain": plain.seconds / ours.seconds,
        "passes": ours.passes / items,
        "plain passes": plain.passes / items,
        "ms a pass": 1e3 * ours.seconds / ours.passes,
        "plain ms a pass": 1e3 * plain.seconds / plain.passes,
        "x floor": ours.seconds / ours.floor,
    }


def run_plain(bench: Bench, setting: TaskSetting, prompts: Sequence[str], new: int, tally: Tally) -> None:
    model = bench.model

    def work() -> None:
        for prompt in prompts:
            made = plain_loop(model, encode(model, prompt), new, setting.rate, setting.block, torch.float64)
            tally.passes += made.forwards
            tally.texts.append(to_text(model, made.ids))

    tally.seconds += seconds(work, model.device)


def run_ours(bench: Bench, setting: TaskSetting, prompts: Sequence[str], new: int, tally: Tally) -> None:
    model, answers = bench.model, []
    decoding = Decoding(TopN(setting.rate), Mask(), block_length=setting.block, max_new_tokens=new)

    def work() -> None:
        answers.extend(generate(model, list(prompts), decoding=decoding, batch_size=BATCH, engine=bench.engine))

    tally.seconds += seconds(work, model.device)
    for prompt, answer in zip(prompts, answers, strict=True):
        tally.texts.append(answer.text)
        tally.passes += answer.forwards
        passes = Decode(len(encode(model, prompt)), new, setting.rate, setting.block).passes()[: answer.forwards]
        tally.floor += bench.measured[0].floor(bench.dimensions, passes)


def to_text(model: NetworkDenoiser, ids: Sequence[int]) -> str:
    ends = [place for place, token in enumerate(ids) if token in model.eos_ids]
    return model.tokenizer.decode(ids[: ends[0]] if ends else ids, skip_special_tokens=True)
