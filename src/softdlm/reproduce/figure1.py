"""Figure 1: the joint probability of two answers, in sequence, in parallel and soft."""

from __future__ import annotations

from softdlm.analysis.plans import joint_plan
from softdlm.analysis.prompts import figure1_prompt
from softdlm.report.document import Drawing
from softdlm.report.table import Cell, Column, Row, Table
from softdlm.reproduce.analyses import ALL, CONTROLLED, on_prompts
from softdlm.reproduce.evidence import Decided, Sign
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.study import MODELS
from softdlm.reproduce.table_parts import method_title, prompts_note

DRAWN = ("sequential", "vanilla", "euclidean", "slerp")


def tables(measured: Measurements) -> list[Table]:
    """One table for each prompt; the paper has one prompt."""
    study, made = measured.study, []
    for found in measured.rows("joint"):
        columns = tuple(Column(words, digits=4) for words in (*found.combinations, "other answers"))
        rows = tuple(
            Row((method_title(method),), tuple(map(Cell, (*values, 1 - sum(values)))))
            for method, values in found.probability.items()
        )
        order = "Sequential: mean over all orders. The paper's figure has no numbers in its text."
        title = f"Figure 1. Joint probability: {found.prompt} [MASK] [MASK]"
        notes = (prompts_note(study), order)
        made.append(Table("figure1", title, ("method",), columns, rows, notes, study.scale.mark))
    return made


def drawings(measured: Measurements) -> list[Drawing]:
    caption = "The coherent answers in blue, the mixed ones hatched; what is missing to 1 is on other answers."
    made = []
    for row in measured.rows("joint"):
        panels = {method_title(name): row.probability[name] for name in DRAWN if name in row.probability}
        ends = [0, len(row.combinations) - 1]
        shown = {"panels": panels, "names": row.combinations, "coherent": ends}
        made.append(Drawing("figure1", caption, "shares", shown))
    return made


def coherent(measured: Measurements) -> Decided:
    """One prompt is a fact, not a sample, so no interval is needed."""
    for row in measured.rows("joint"):
        vanilla, slerp = row.probability["vanilla"], row.probability["slerp"]
        before, after = ((shares[0] + shares[-1]) / sum(shares) for shares in (vanilla, slerp))
        best = slerp.index(max(slerp))
        moved = Sign((after > before) - (after < before), f"coherent share {before:.3f} to {after:.3f}")
        first = Sign(1 if best in (0, len(row.combinations) - 1) else -1, f"most likely: {row.combinations[best]}")
        yield "one prompt", [moved, first]


EXPERIMENT = Experiment(
    "figure1", "Figure 1: two answers, in sequence, in parallel and soft",
    "The joint probability of every combination of two answers (section 2.3).",
    tables, drawings, analysis=on_prompts("joint", joint_plan, ALL, lambda: [figure1_prompt()]),
    models=tuple(MODELS.values()), strength=CONTROLLED,
    claims=(
        Claim(
            "Soft tokens move probability to the coherent answers, and the most likely answer is one of them", coherent
        ),
    ),
)  # fmt: skip
