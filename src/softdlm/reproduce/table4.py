"""Table 4: agreement of factorised predictions with a sequential reference."""

from __future__ import annotations

from functools import partial

from softdlm.analysis.plans import consistency_plan
from softdlm.report.table import Column, Row, Table, mark_best
from softdlm.reproduce.analyses import ALL, CONTROLLED, on_prompts
from softdlm.reproduce.evidence import Decided, larger
from softdlm.reproduce.experiment import Claim, Experiment
from softdlm.reproduce.measurements import Measurements
from softdlm.reproduce.paper_numbers import paper_numbers
from softdlm.reproduce.table_parts import beside_paper, mean_cell, mean_table, method_title, paper_notes, prompts_note

PAPER = paper_numbers("table4")
"""Model -> method -> reverse KL in nats."""


def tables(measured: Measurements) -> list[Table]:
    found, study = measured.rows("consistency"), measured.study
    methods = list(found[0].reverse_kl) if found else []
    rows = []
    divergences = mark_best([mean_cell([row.reverse_kl[method] for row in found]) for method in methods], higher=False)
    for method, divergence in zip(methods, divergences, strict=True):
        coherent = mean_cell([row.shares[method][0] + row.shares[method][-1] for row in found])
        cells = [divergence, coherent, mean_cell([row.mass[method] for row in found])]
        rows.append(Row((method_title(method),), beside_paper(cells, [study.printed.value(PAPER, method)])))
    results = measured.analyses.get("consistency")
    settings = results[0].settings if results else {"qualify": 0, "of": 0}
    columns = [Column("reverse KL, nats", 4, 4), Column("coherent share", 3), Column("mass on the support", 3)]
    note = f"{settings['qualify']} of {settings['of']} prompts qualify. {prompts_note(study)} k = 3, λ = 0.3."
    title = "Table 4. Reverse KL of the factorised prediction to the sequential reference"
    notes = paper_notes(study, None)
    return [mean_table(study, "table4", title, ("method",), columns, rows, note, "prompts", notes)]


def closer(better: str, worse: str, measured: Measurements) -> Decided:
    """Whether one method has the lower reverse KL, prompt by prompt."""
    rows = measured.rows("consistency")
    if rows:
        first, second = ([row.reverse_kl[method] for row in rows] for method in (worse, better))
        words = (f"reverse KL in nats: {method_title(worse)}", method_title(better))
        yield f"{len(rows)} prompts", [larger(words, first, second)]


EXPERIMENT = Experiment(
    "table4", "Table 4: agreement with a sequential reference",
    "Reverse KL of the factorised prediction, on controlled prompts (section 5.2).",
    tables, analysis=on_prompts("consistency", consistency_plan, ALL), paper=PAPER, strength=CONTROLLED,
    claims=(
        Claim("SLERP is closer to the sequential reference than vanilla", partial(closer, "slerp", "vanilla")),
        Claim("SLERP is closer to the sequential reference than Euclidean soft tokens",
              partial(closer, "slerp", "euclidean")),
        Claim("Euclidean soft tokens are closer to the sequential reference than vanilla",
              partial(closer, "euclidean", "vanilla")),
    ),
)  # fmt: skip
