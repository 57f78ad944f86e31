"""Verdicts on data whose outcome is known, both ways and neither."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from softdlm.analysis import agreement, completions, geometry, joint
from softdlm.evaluate.cell import SINGLE, Rate
from softdlm.reproduce import claims_cells, claims_rows
from softdlm.reproduce.evidence import Pair, Sign, conclude, more_solved, positive
from softdlm.reproduce.experiments import EXPERIMENTS
from softdlm.reproduce.findings import CLAIMS, findings
from softdlm.reproduce.measurements import Data
from tests.reproduce.made import data, result, slerp, steps
from tests.reproduce.test_mechanism import consistent, mixture, shape

FOR, AGAINST, NEITHER = Sign(1, ""), Sign(-1, ""), Sign(0, "")


def test_all_for_holds_any_against_does_not_and_nothing_is_not_measured() -> None:
    assert conclude([FOR, FOR]) == "holds"
    assert conclude([FOR, NEITHER]) == "undecided"
    assert conclude([FOR, NEITHER, AGAINST]) == "does not hold"
    assert conclude([]) == "not measured"


def test_a_mean_decides_by_its_interval_from_six_items_on() -> None:
    up, both = [1.0, 2.0, 3.0] * 2, [-1.0, 2.0, -1.5, 1.0, 0.5, -0.7]
    assert [positive(values, "x").sign for values in (up, [-each for each in up], both)] == [1, -1, 0]
    assert positive(up, "gain").words.startswith("gain +2.000 [+1.")
    assert positive(up[:5], "x") == Sign(0, "x +1.800 (only 5)")
    assert positive([1.0], "x").sign == 0


def verdicts(decide: Callable[[Data], Any], made: Data) -> dict[str, str]:
    return {scope: conclude(signs) for scope, signs in decide(made)}


def at_rates(root: Path, vanilla: Sequence[range], slerp: Sequence[range], name: str = "slerp") -> list:
    return [
        result(root, "mini-math", method, steps(n), solved)
        for method, found in (("vanilla", vanilla), (name, slerp))
        for n, solved in zip((2, 4, 8), found, strict=True)
    ]


LITTLE, MUCH = range(2), range(18)


@pytest.mark.parametrize(
    ("slow", "verdict"),
    [((MUCH, MUCH, MUCH), "holds"), ((MUCH, MUCH, LITTLE), "undecided"), ((LITTLE,) * 3, "undecided")],
)
def test_slerp_beats_vanilla_at_every_rate(tmp_path: Path, slow: Any, verdict: str) -> None:
    decide = claims_cells.at_rates("slerp", "vanilla")
    found = verdicts(decide, data({"table2": at_rates(tmp_path, (LITTLE,) * 3, slow)}))
    assert found == {"mini-math": verdict, "mini-code": "not measured"}


def test_one_rate_at_which_it_is_worse_is_enough(tmp_path: Path) -> None:
    made = at_rates(tmp_path, (LITTLE, LITTLE, MUCH), (MUCH, MUCH, LITTLE))
    decide = claims_cells.at_rates("slerp", "vanilla")
    assert verdicts(decide, data({"table2": made}))["mini-math"] == "does not hold"


def test_several_comparisons_are_corrected_for_their_number(tmp_path: Path) -> None:
    """Six items gained and none lost: p = 0.031 alone, 0.094 among three."""
    pairs = [
        Pair("a", result(tmp_path, "mini-math", "vanilla", steps(n), range(4)), result(
            tmp_path, "mini-math", "slerp", steps(n), range(10))) for n in (2, 4, 8)
    ]  # fmt: skip
    assert [sign.sign for sign in more_solved(pairs[:1])] == [1]
    assert [sign.sign for sign in more_solved(pairs)] == [0, 0, 0]


def test_recovery_looks_only_at_what_single_tokens_solve(tmp_path: Path) -> None:
    single = result(tmp_path, "mini-math", "vanilla", SINGLE, range(10, 20))
    made = at_rates(tmp_path, (range(10, 12),) * 3, (range(0, 12),) * 3)
    assert verdicts(claims_cells.more_recovered, data({"table7": [*made, single]}))["mini-math"] == "undecided"
    better = at_rates(tmp_path / "b", (range(0, 10),) * 3, (range(10, 20),) * 3)
    assert verdicts(claims_cells.more_recovered, data({"table7": [*better, single]})) == {"mini-math": "holds"}


def test_recovery_falls_with_the_rate(tmp_path: Path) -> None:
    single = result(tmp_path, "mini-math", "vanilla", SINGLE, range(30), items=30)
    falling = [
        result(tmp_path, "mini-math", method, steps(n), range(count), items=30)
        for method in ("vanilla", "euclidean", "slerp")
        for n, count in ((2, 30), (4, 18), (8, 4))
    ]
    found = verdicts(claims_cells.recovery_falls, data({"table7": [*falling, single]}))
    assert found == {"mini-math": "holds", "mini-code": "not measured"}


def test_norms(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", name, steps(2), solved)
        for name, solved in (("slerp", range(10)), ("slerp-candidate-norm", MUCH), ("euclidean-mask-norm", range(1)))
    ]
    found = data({"table5": made})
    assert verdicts(claims_cells.ablation("slerp-candidate-norm"), found)["mini-math"] == "does not hold"
    assert verdicts(claims_cells.ablation("euclidean-mask-norm"), found)["mini-math"] == "holds"


def test_adaptive_samplers_by_accuracy_and_by_passes(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", method, rate, solved, forwards=passes)
        for method, solved, passes in (("vanilla", LITTLE, 30), ("slerp", MUCH, 15))
        for rate in (Rate("threshold", 0.9), Rate("entropy_bound", 0.1))
    ]
    found = data({"table6": made})
    assert verdicts(claims_cells.adaptive, found)["mini-math"] == "holds"
    assert verdicts(claims_cells.fewer_passes, found)["mini-math"] == "holds"
    ((_, signs), _) = list(claims_cells.fewer_passes(found))
    assert "threshold 0.9: passes saved +15.0" in signs[0].words


def sweep(root: Path, lams: dict[float, range], ks: dict[int, range]) -> Data:
    cells = [result(root, "mini-math", "slerp", steps(2), solved, rule=slerp(3, lam)) for lam, solved in lams.items()]
    cells += [result(root, "mini-math", "slerp", steps(2), solved, rule=slerp(k, 0.3)) for k, solved in ks.items()]
    return data({"figure2": cells})


def test_sensitivity(tmp_path: Path) -> None:
    found = sweep(tmp_path, {0.1: range(4), 0.3: range(19), 0.7: range(2)}, {2: range(18), 4: range(19)})
    assert verdicts(claims_cells.best_lambda, found)["mini-math"] == "holds"
    assert verdicts(claims_cells.large_lambda, found)["mini-math"] == "holds"
    assert verdicts(claims_cells.k_matters_less, found) == {"mini-math": "holds"}
    turned = sweep(tmp_path / "t", {0.1: range(12), 0.3: range(12), 0.7: range(19)}, {2: range(1), 4: range(19)})
    assert verdicts(claims_cells.best_lambda, turned)["mini-math"] == "does not hold"
    assert verdicts(claims_cells.large_lambda, turned)["mini-math"] == "does not hold"
    assert verdicts(claims_cells.k_matters_less, turned) == {"mini-math": "does not hold"}


def test_figure_1() -> None:
    def row(vanilla: list[float], slerp: list[float]) -> Data:
        return data(
            rows={"joint": [joint.JointRow("p", ["ab", "ad", "cb", "cd"], {"vanilla": vanilla, "slerp": slerp})]}
        )

    parallel = [0.2, 0.3, 0.2, 0.2]
    assert verdicts(claims_rows.coherent, row(parallel, [0.6, 0.1, 0.1, 0.1])) == {"one prompt": "holds"}
    assert verdicts(claims_rows.coherent, row(parallel, [0.1, 0.5, 0.0, 0.0])) == {"one prompt": "does not hold"}
    mixed = [0.3, 0.35, 0.05, 0.2]  # more on the coherent ones than before, but "ad" is the likeliest
    assert verdicts(claims_rows.coherent, row(parallel, mixed)) == {"one prompt": "does not hold"}


def test_mixtures_and_consistency_pair_prompt_by_prompt() -> None:
    closer = data(rows={"mixtures": [mixture([0.1], 0.3), mixture([0.5], 0.6)] * 3})
    assert verdicts(claims_rows.multiplicative, closer) == {"6 prompts": "holds"}
    farther = data(rows={"mixtures": [mixture([0.3], 0.1), mixture([0.6], 0.5)] * 3})
    assert verdicts(claims_rows.multiplicative, farther) == {"6 prompts": "does not hold"}
    rows = data(rows={"consistency": [consistent(2.0, 1.0), consistent(9.0, 7.0)] * 3})
    assert verdicts(claims_rows.closer("slerp", "vanilla"), rows) == {"6 prompts": "holds"}
    assert verdicts(claims_rows.closer("vanilla", "slerp"), rows) == {"6 prompts": "does not hold"}


def test_geometry() -> None:
    def rows(*shapes: geometry.Shape) -> Data:
        return data(
            rows={"geometry": [geometry.Row("mini-math", str(index), each) for index, each in enumerate(shapes * 3)]}
        )

    usual = rows(shape(10, 0.4, 0.05), shape(10, 0.5, 0.06))
    odd = rows(shape(10, 0.1, 0.2, 0.5), shape(10, 0.1, 0.3, 0.5))
    for decide in (claims_rows.aligned, claims_rows.orthogonal):
        assert verdicts(decide, usual) == {"mini-math": "holds"}
        assert verdicts(decide, odd) == {"mini-math": "does not hold"}
    assert verdicts(claims_rows.shrinks, usual) == {"mini-math": "holds"}
    assert verdicts(claims_rows.off_the_midpoint, usual) == {"mini-math": "holds"}
    assert verdicts(claims_rows.off_the_midpoint, rows(shape(9, 0, 0, 0.3), shape(9, 0, 0, 0.2))) == {
        "mini-math": "holds"
    }
    assert verdicts(claims_rows.off_the_midpoint, odd) == {"mini-math": "undecided"}


def test_completions_and_agreement() -> None:
    def spans(vanilla: float, euclidean: float) -> completions.CompletionRow:
        kl = {"vanilla": [vanilla], "euclidean": [euclidean], "slerp": [0.1]}
        return completions.CompletionRow("mini-math", "i", [2], [1], [9], kl)

    both = data(rows={"completions": [spans(0.3, 0.2), spans(0.4, 0.3)] * 3})
    assert verdicts(claims_rows.closer_on_spans, both) == {"mini-math": "holds"}
    one = data(rows={"completions": [spans(0.3, 0.05), spans(0.4, 0.04)] * 3})
    assert verdicts(claims_rows.closer_on_spans, one) == {"mini-math": "does not hold"}

    def settled(vanilla: int, slerp: int) -> agreement.AgreementRow:
        made = {
            name: agreement.Course([4], [0], [8], [count], [1])
            for name, count in (("vanilla", vanilla), ("slerp", slerp))
        }
        return agreement.AgreementRow("mini-math", "i", made, {})

    assert verdicts(claims_rows.settles, data(rows={"agreement": [settled(2, 5), settled(1, 3)] * 3})) == {
        "mini-math": "holds"
    }


def test_every_claim_belongs_to_an_experiment_and_says_when_nothing_was_measured() -> None:
    names = [each.name for each in EXPERIMENTS]
    assert {claim.experiment for claim in CLAIMS} == set(names) - {"frontier"}
    nothing = data({name: [] for name in names})
    assert {found.verdict for found in findings(nothing, names)} == {"not measured"}
    assert {found.where for found in findings(nothing, ["table4"])} == {"Table 4"}
