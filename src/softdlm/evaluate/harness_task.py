"""The lm-eval task class behind our task files: fixed turns, and one score for the harness and for our own runner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.task import ConfigurableTask

from softdlm.errors import PromptError, SandboxError, UsageError
from softdlm.evaluate.readings import READINGS
from softdlm.evaluate.scoring import SCORINGS, CodeScoring, Doc, Program, Score, Scoring
from softdlm.sandbox.run import Outcome, Sandbox, find_sandbox
from softdlm.tasks.consistency import CONSISTENT, sound_program, true_equations

Messages = list[dict[str, str]]


class BenchmarkTask(ConfigurableTask):
    """A task whose file says under `metadata: protocol:` how shots are laid out and how answers are scored.

    `protocol` holds benchmark, family, turns ("one" or "many"), scoring, headline and, where needed, a note. A task
    that runs code finds its sandbox when it is loaded, so that a run without one fails before the model decodes.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        config = _with_headline({name: value for name, value in config.items() if name != "class"})
        self.protocol: dict[str, Any] = config["metadata"]["protocol"]
        self.scoring: Scoring = SCORINGS[self.protocol["scoring"]]
        self.sandbox: Sandbox | None = None
        if isinstance(self.scoring, CodeScoring):
            self.sandbox = find_sandbox(allow_unsandboxed=bool(config["metadata"].get("allow_unsandboxed", False)))
        self._outcomes: dict[Program, Outcome] = {}
        super().__init__(config=config)

    @property
    def turns(self) -> bool:
        """Whether each shot is a turn of its own, rather than part of the one user turn."""
        return self.protocol["turns"] == "many"

    def fewshot_context(self, doc: Any, num_fewshot: int, *rest: Any, **layout: Any) -> Any:
        """lm-eval's own, once the flag that lays out the shots agrees with the task's name."""
        many = bool(layout.get("fewshot_as_multiturn"))
        if num_fewshot and layout.get("apply_chat_template") and many != self.turns:
            raise UsageError(
                f"{self.task_name} puts its shots into {self.protocol['turns']} turn{'s' * self.turns}: "
                f"run it with --fewshot_as_multiturn {str(self.turns).lower()}, or choose the task of the other reading"
            )
        return super().fewshot_context(doc, num_fewshot, *rest, **layout)

    def score(self, doc: Doc, text: str) -> Score:
        """All metrics; `correct` is the headline's."""
        if isinstance(self.scoring, CodeScoring):
            program = self._program(doc, text)
            return {**self._code_score(program), CONSISTENT: sound_program(program.code)}
        found = self.scoring.score(doc, text)
        return {**found, "correct": found[self.protocol["headline"]], CONSISTENT: true_equations(text)}

    def score_all(self, docs: Sequence[Doc], texts: Sequence[str], workers: int | None = None) -> list[Score]:
        """Scores in order; programs run side by side."""
        if isinstance(self.scoring, CodeScoring):
            self._run([self._program(doc, text) for doc, text in zip(docs, texts, strict=True)], workers)
        return [self.score(doc, text) for doc, text in zip(docs, texts, strict=True)]

    def reference(self, doc: Doc) -> str:
        return self.scoring.reference(doc)

    def apply_filters(self) -> Any:
        """After the filters, run all programs at once: `process_results` then only looks them up."""
        done = super().apply_filters()
        if isinstance(self.scoring, CodeScoring):
            answers = [(each.doc, text) for each in self.instances for text in each.filtered_resps.values()]
            self._run([self._program(doc, text) for doc, text in answers])
        return done

    def process_results(self, doc: Any, results: Any) -> dict[str, float]:
        score = self.score(doc, results[0])
        return {name: float(score[name]) for name in self._metric_fn_list}

    def _program(self, doc: Doc, text: str) -> Program:
        assert isinstance(self.scoring, CodeScoring)
        return self.scoring.program(doc, text)

    def _run(self, programs: Sequence[Program], workers: int | None = None) -> None:
        assert self.sandbox is not None
        new = [program for program in dict.fromkeys(programs) if program not in self._outcomes]
        self._outcomes.update(zip(new, self.sandbox.run_all(new, workers=workers), strict=True))

    def _code_score(self, program: Program) -> Score:
        self._run([program])
        outcome = self._outcomes[program]
        if outcome.verdict == "error":
            raise SandboxError(
                f"the sandbox ({self.sandbox}) did not run a program of {self.task_name}: {outcome.detail}"
            )
        reason = ": ".join(part for part in (outcome.verdict, outcome.detail) if part)
        metrics = {"pass@1": outcome.passed, "timeout": outcome.verdict == "timeout"}
        return {"correct": outcome.passed, "reason": reason, "extracted": program.code, **metrics}


def _with_headline(config: dict[str, Any]) -> dict[str, Any]:
    """A task of MATH-500 with the headline that --metadata math500= asks for, which is then its first metric."""
    said = config["metadata"]
    if said["protocol"]["benchmark"] != "math500":
        return config
    reading = READINGS["math500"]
    headline = reading.check(said.get("math500", reading.values[0])).replace("-", "_")
    ordered = sorted(config["metric_list"], key=lambda each: each["metric"] != headline)
    metadata = {**said, "protocol": {**said["protocol"], "headline": headline}}
    return {**config, "metric_list": ordered, "metadata": metadata}


def render(tokenizer: Any, messages: Messages, add_generation_prompt: bool = True) -> str:
    """Chat messages to text; without a generation prompt the last message is an answer already begun."""
    try:
        return tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
    except Exception as error:
        raise PromptError(f"the chat template refuses these messages: {' '.join(str(error).split())}") from error
