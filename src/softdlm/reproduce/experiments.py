"""Every table and figure by name: the cells and analyses it needs, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softdlm.errors import UsageError
from softdlm.evaluate.grid import Grid
from softdlm.report.document import Drawing, Section
from softdlm.report.table import Table
from softdlm.reproduce import accuracy, grids, mechanism
from softdlm.reproduce.measurements import Data
from softdlm.reproduce.paper_numbers import MODELS
from softdlm.reproduce.study import Study, task_title


def _none(_: Data) -> list[Drawing]:
    return []


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    about: str
    tables: Callable[[Data], list[Table]]
    drawings: Callable[[Data], list[Drawing]] = _none
    grids: Callable[[Study], list[Grid]] | None = None
    analysis: str | None = None
    benchmarks: tuple[str, ...] = ()
    """That the paper's has."""
    models: tuple[str, ...] = tuple(MODELS.values())

    def section(self, data: Data) -> Section:
        return Section(
            self.name,
            self.title,
            self.about,
            tuple(self.tables(data)),
            tuple(self.drawings(data)),
            self._measured(data),
            self._not_measured(data),
        )

    def _measured(self, data: Data) -> str:
        parts = []
        if self.grids is not None:
            cells = data.cells[self.name].results
            parts.append(f"{len(cells)} of {data.planned.get(self.name, 0)} cells")
        for result in data.analyses.get(self.analysis or "", ()):
            task = next((row.task for row in result.rows if hasattr(row, "task")), None)
            what = f"items of {task_title(task)}" if task else "prompts" if len(result.rows) != 1 else "prompt"
            parts.append(f"{len(result.rows)} {what}")
        return ", ".join(parts) or "nothing"

    def _not_measured(self, data: Data) -> str:
        missing = [*data.missing.get(self.name, ()), *data.missing.get(self.analysis or "", ())]
        places = data.study.places(*self.benchmarks)
        pairs = [(task, task_title(name)) for task, name in places.items() if task != name]
        stood_for = [f"{name} itself ({task} takes its place)" for task, name in pairs]
        left = [task_title(name) for name in self.benchmarks if name not in places.values()]
        printed = data.study.printed
        others = ", ".join(name for name in self.models if not (printed.same and name == printed.model))
        models = [f"the paper's model{'s' * (',' in others)} {others}"] if others else []
        return "; ".join([*missing, *stood_for, *left, *models]) or "nothing"


EXPERIMENTS = (
    Experiment(
        "figure1", "Figure 1: two answers, in sequence, in parallel and soft",
        "The joint probability of every combination of two answers (section 2.3).",
        mechanism.figure1, mechanism.figure1_drawings, analysis="joint",
    ),
    Experiment(
        "table1", "Table 1: is a soft token read as an additive or a multiplicative mixture?",
        "Jensen-Shannon divergence of soft-token predictions to both mixtures, on controlled prompts (section 5.1).",
        mechanism.table1, analysis="mixtures",
    ),
    Experiment(
        "table2", "Table 2: accuracy",
        "Vanilla, Euclidean and SLERP at 2, 4 and 8 tokens a step (section 6.2).",
        accuracy.table2, accuracy.table2_drawings, grids.table2, benchmarks=grids.MAIN,
    ),
    Experiment(
        "table3", "Table 3: geometry of candidates and [MASK]",
        "Cosines at the open positions met while decoding (section 6.3).",
        mechanism.table3, analysis="geometry", benchmarks=("gsm8k", "humaneval"),
    ),
    Experiment(
        "table4", "Table 4: agreement with a sequential reference",
        "Reverse KL of the factorised prediction, on controlled prompts (section 5.2).",
        mechanism.table4, analysis="consistency",
    ),
    Experiment(
        "b1", "Appendix B.1: angles and norms under linear interpolation",
        "What interpolation from [MASK] does to direction and length (appendix B.1).",
        mechanism.b1, analysis="geometry", benchmarks=("gsm8k", "humaneval"), models=("LLaDA",),
    ),
    Experiment(
        "table5", "Table 5: interpolation and norm",
        "SLERP at the [MASK] norm and at the candidates' norm; linear interpolation at the [MASK] norm (appendix B.2).",
        accuracy.table5, grids=grids.table5, benchmarks=grids.ABLATED, models=("Dream", "LLaDA", "LLaDA-1.5"),
    ),
    Experiment(
        "figure2", "Figure 2: sensitivity to λ and k",
        "SLERP's accuracy over interpolation strengths and numbers of candidates (appendix B.3).",
        accuracy.figure2, accuracy.figure2_drawings, grids.figure2, benchmarks=("humaneval",),
    ),
    Experiment(
        "table6", "Table 6: adaptive samplers",
        "Confidence threshold 0.9 and entropy bound 0.1, without and with SLERP; passes are ours (appendix B.4).",
        accuracy.table6, grids=grids.table6, benchmarks=grids.ADAPTIVE, models=("LLaDA", "Dream"),
    ),
    Experiment(
        "table7", "Table 7: recovery of single-token decoding",
        "Of what vanilla solves at one token a step, the share that each method solves too (appendix C).",
        accuracy.table7, grids=grids.table7, benchmarks=grids.MAIN,
    ),
    Experiment(
        "table8", "Table 8: agreement on the model's own answers",
        "Reverse KL on spans of two to four tokens (appendix D.4).",
        mechanism.table8, analysis="completions", benchmarks=grids.ABLATED, models=("Dream", "LLaDA-1.5", "LLaDA"),
    ),
    Experiment(
        "frontier", "Frontier: accuracy against passes",
        "Beyond the paper: what each method makes of a forward pass, over thresholds and entropy bounds.",
        accuracy.frontier, accuracy.frontier_drawings, grids.frontier, benchmarks=grids.ADAPTIVE, models=(),
    ),
    Experiment(
        "extras", "Extras: rules of others, and agreement along a decode",
        "Beyond the paper: Additive and NormMix at the same rates, and how predictions settle from pass to pass.",
        lambda data: [*accuracy.extras(data), *mechanism.agreement(data)],
        grids=grids.extras, analysis="agreement", benchmarks=grids.MAIN, models=(),
    ),
)  # fmt: skip
NAMES = tuple(each.name for each in EXPERIMENTS)


def select(names: Sequence[str]) -> tuple[Experiment, ...]:
    """Experiments in the paper's order; `all` is all of them."""
    unknown = [name for name in names if name not in (*NAMES, "all")]
    if unknown or not names:
        raise UsageError(f"unknown experiment {', '.join(unknown) or '(none)'}: give all, or {', '.join(NAMES)}")
    return tuple(each for each in EXPERIMENTS if "all" in names or each.name in names)
