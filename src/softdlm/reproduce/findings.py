"""The paper's claims, each a function from data to findings; and a few claims of ours, marked as such.

Accuracies are compared on the same items by McNemar's exact test, corrected for the number of comparisons of a claim on
a task; means over prompts, items or completions by the bootstrap interval of their paired difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softdlm.report.document import Finding
from softdlm.reproduce import claims_cells as cells
from softdlm.reproduce import claims_rows as rows
from softdlm.reproduce.evidence import Decide, finding
from softdlm.reproduce.measurements import Data


@dataclass(frozen=True)
class Claim:
    experiment: str
    where: str
    words: str
    decide: Decide

    def findings(self, data: Data) -> list[Finding]:
        made = [finding(self.words, self.where, scope, signs) for scope, signs in self.decide(data)]
        return made or [finding(self.words, self.where, "", [])]


CLAIMS = (
    Claim(
        "figure1", "Figure 1",
        "Soft tokens move probability to the coherent answers, and the most likely answer is one of them",
        rows.coherent,
    ),
    Claim(
        "table1", "Table 1",
        "SLERP's predictions are closer to the multiplicative than to the additive mixture",
        rows.multiplicative,
    ),
    Claim("table2", "Table 2", "SLERP solves more than vanilla at every rate", cells.at_rates("slerp", "vanilla")),
    Claim(
        "table2", "Table 2", "SLERP solves more than Euclidean soft tokens at every rate",
        cells.at_rates("slerp", "euclidean"),
    ),
    Claim(
        "table3", "Table 3", "Candidates are better aligned with one another than their aggregate with [MASK]",
        rows.aligned,
    ),
    Claim(
        "table3", "Table 3", f"The aggregate is nearly orthogonal to [MASK] (|cosine| below {rows.NEAR})",
        rows.orthogonal,
    ),
    Claim(
        "table4", "Table 4", "SLERP is closer to the sequential reference than vanilla",
        rows.closer("slerp", "vanilla"),
    ),
    Claim(
        "table4", "Table 4", "SLERP is closer to the sequential reference than Euclidean soft tokens",
        rows.closer("slerp", "euclidean"),
    ),
    Claim(
        "table4", "Table 4", "Euclidean soft tokens are closer to the sequential reference than vanilla",
        rows.closer("euclidean", "vanilla"),
    ),
    Claim(
        "b1", "Appendix B.1", "Linear interpolation shortens the soft token, at most positions below both ends",
        rows.shrinks,
    ),
    Claim(
        "b1", "Appendix B.1", "Linear interpolation at one half does not reach the middle of the angle",
        rows.off_the_midpoint,
    ),
    Claim(
        "table5", "Table 5", "The [MASK] norm solves more than the candidates' norm",
        cells.ablation("slerp-candidate-norm"),
    ),
    Claim(
        "table5", "Table 5", "SLERP solves more than linear interpolation at the same norm",
        cells.ablation("euclidean-mask-norm"),
    ),
    Claim("figure2", "Figure 2", "λ = 0.3 solves more than any other λ", cells.best_lambda),
    Claim("figure2", "Figure 2", "Large λ lowers accuracy", cells.large_lambda),
    Claim("figure2", "Figure 2", "Accuracy depends less on k than on λ", cells.k_matters_less),
    Claim("table6", "Table 6", "SLERP improves adaptive samplers", cells.adaptive),
    Claim("table6", "ours, with Table 6", "Adaptive samplers take fewer passes with SLERP", cells.fewer_passes),
    Claim(
        "table7", "Table 7", "SLERP recovers more than vanilla of what single tokens solve, at every rate",
        cells.more_recovered,
    ),
    Claim("table7", "Table 7", "Recovery falls as more tokens are committed a step", cells.recovery_falls),
    Claim(
        "table8", "Table 8",
        "On its own answers SLERP is closer to the sequential reference than vanilla and Euclidean soft tokens",
        rows.closer_on_spans,
    ),
    Claim("extras", "ours, agreement", "With SLERP open positions settle earlier than with vanilla", rows.settles),
)  # fmt: skip


def findings(data: Data, experiments: Sequence[str]) -> list[Finding]:
    """Of the experiments that were run, in the paper's order."""
    return [found for claim in CLAIMS if claim.experiment in experiments for found in claim.findings(data)]
