"""Verdicts on data whose outcome is known, both ways and neither."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from softdlm.analysis import agreement, completions, geometry, joint
from softdlm.report.document import Finding
from softdlm.reproduce import agreement as agreement_experiment
from softdlm.reproduce import (
    b1,
    figure1,
    figure2,
    table1,
    table2,
    table3,
    table4,
    table5,
    table6,
    table7,
    table8,
)
from softdlm.reproduce.evidence import (
    Pair,
    Sign,
    against_limit,
    larger,
    more_solved,
    positive,
    verdict,
)
from softdlm.reproduce.experiments import EXPERIMENTS
from softdlm.reproduce.measurements import Measurements
from tests.reproduce.made import measured, result
from tests.reproduce.test_analysis_experiments import consistent, mixture, shape

WANTED: tuple[Literal["above", "below", "off"], ...] = ("above", "below", "off")
FOR, AGAINST, NEITHER = Sign(1, ""), Sign(-1, ""), Sign(0, "")


def test_all_for_holds_any_against_does_not_and_nothing_is_not_measured() -> None:
    assert verdict([FOR, FOR]) == "holds"
    assert verdict([FOR, NEITHER]) == "undecided"
    assert verdict([FOR, NEITHER, AGAINST]) == "does not hold"
    assert verdict([]) == "not measured"


def test_a_mean_decides_by_its_interval_from_six_items_on() -> None:
    up, both = [1.0, 2.0, 3.0] * 2, [-1.0, 2.0, -1.5, 1.0, 0.5, -0.7]
    assert [positive(values, "x").sign for values in (up, [-each for each in up], both)] == [1, -1, 0]
    assert positive(up, "gain").words.startswith("gain +2.000 [+1.")
    assert positive(up[:5], "x") == Sign(0, "x +1.800 (only 5)")
    assert positive([1.0], "x").sign == 0


def test_the_evidence_names_what_was_compared() -> None:
    """Both quantities and their difference, or the quantity and its limit: no reader has to subtract."""
    first, second = [0.2, 0.3, 0.4] * 2, [0.1] * 6
    found = larger(("candidates", "aggregate"), first, second)
    assert (found.sign, found.words[:53]) == (1, "candidates 0.300, aggregate 0.100, difference +0.200 ")
    assert larger(("a", "b"), second, first).sign == -1
    assert larger(("a", "b"), [0.4, 0.0], [0.1, 0.1], 2, [3, 1]).words == "a 0.30, b 0.10, difference +0.20 (only 2)"
    near = against_limit("mean |cosine|", first, "below", 0.1)
    assert near.sign == -1
    assert re.fullmatch(r"mean \|cosine\| 0\.300 \[0\.2\d\d, 0\.3\d\d\], limit 0\.1", near.words)
    signs = {limit: [against_limit("x", first, wanted, limit).sign for wanted in WANTED] for limit in (0.1, 0.3, 0.5)}
    assert signs == {0.1: [1, -1, 1], 0.3: [0, 0, 0], 0.5: [-1, 1, 1]}
    assert against_limit("x", first[:5], "above", 0.1).sign == 0


def verdicts(decide: Callable[[Measurements], Any], made: Measurements) -> dict[str, str]:
    return {scope: verdict(signs) for scope, signs in decide(made)}


def at_rates(root: Path, vanilla: Sequence[range], slerp: Sequence[range], name: str = "slerp") -> list:
    return [
        result(root, "mini-math", method, f"topn({n})", solved)
        for method, found in (("vanilla", vanilla), (name, slerp))
        for n, solved in zip((2, 4, 8), found, strict=True)
    ]


LITTLE, MUCH = range(2), range(18)


def overall(claim: Any, made: Measurements) -> Finding:
    """The one finding of a claim about all settings."""
    (found,) = claim.findings("here", [made], lambda *_: "")
    return found


@pytest.mark.parametrize(
    ("slow", "wanted", "share"),
    [
        ((MUCH, MUCH, MUCH), "holds", "3 of 3 settings (100 %)"),
        ((MUCH, MUCH, LITTLE), "holds", "2 of 3 settings (67 %)"),
        ((MUCH, LITTLE, LITTLE), "undecided", "1 of 3 settings (33 %)"),
        ((LITTLE,) * 3, "undecided", "0 of 3 settings (0 %)"),
    ],
)
def test_in_most_settings(tmp_path: Path, slow: Any, wanted: str, share: str) -> None:
    _, claim, _ = table2.EXPERIMENT.claims
    found = overall(claim, measured({"table2": at_rates(tmp_path, (LITTLE,) * 3, slow)}))
    assert (found.verdict, found.scope) == (wanted, "3 settings")
    assert f"leads in {share}" in found.evidence
    assert found.evidence.endswith("in the paper 42 of 48 settings (88 %)")


def test_a_share_that_contradicts_and_tests_that_agree(tmp_path: Path) -> None:
    _, claim, _ = table2.EXPERIMENT.claims
    made = at_rates(tmp_path, (LITTLE, MUCH, MUCH), (MUCH, LITTLE, LITTLE))
    assert overall(claim, measured({"table2": made})).verdict == "does not hold"


def test_norms(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", name, "topn(2)", solved)
        for name, solved in (("slerp", range(10)), ("slerp-candidate-norm", MUCH), ("euclidean-mask-norm", range(1)))
    ]
    found = measured({"table5": made})
    assert [overall(claim, found).verdict for claim in table5.EXPERIMENT.claims] == [
        "does not hold", "does not hold", "holds",
    ]  # fmt: skip


def test_several_comparisons_are_corrected_for_their_number(tmp_path: Path) -> None:
    """Six items gained and none lost: p = 0.031 alone, 0.094 among three."""
    pairs = [
        Pair("a", result(tmp_path, "mini-math", "vanilla", f"topn({n})", range(4)), result(
            tmp_path, "mini-math", "slerp", f"topn({n})", range(10))) for n in (2, 4, 8)
    ]  # fmt: skip
    assert [sign.sign for sign in more_solved(pairs[:1])] == [1]
    assert [sign.sign for sign in more_solved(pairs)] == [0, 0, 0]


def test_recovery_looks_only_at_what_single_tokens_solve(tmp_path: Path) -> None:
    single = result(tmp_path, "mini-math", "vanilla", "topn(1)", range(10, 20))
    _, claim, _, _ = table7.EXPERIMENT.claims
    made = at_rates(tmp_path, (range(10, 12),) * 3, (range(0, 12),) * 3)
    assert overall(claim, measured({"table7": [*made, single]})).verdict == "undecided"
    better = at_rates(tmp_path / "b", (range(0, 10),) * 3, (range(10, 20),) * 3)
    assert overall(claim, measured({"table7": [*better, single]})).verdict == "holds"
    assert overall(claim, measured({"table7": better})).verdict == "not measured"


def test_recovery_falls_with_the_rate(tmp_path: Path) -> None:
    single = result(tmp_path, "mini-math", "vanilla", "topn(1)", range(30), items=30)
    falling = [
        result(tmp_path, "mini-math", method, f"topn({n})", range(count), items=30)
        for method in ("vanilla", "euclidean", "slerp")
        for n, count in ((2, 30), (4, 18), (8, 4))
    ]
    found = verdicts(table7.recovery_falls, measured({"table7": [*falling, single]}))
    assert found == {"mini-math": "holds", "mini-code": "not measured"}


def test_adaptive_samplers_by_accuracy_and_by_passes(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", method, rate, solved, forwards=passes)
        for method, solved, passes in (("vanilla", LITTLE, 30), ("slerp", MUCH, 15))
        for rate in ("threshold(0.9)", "entropy(0.1)")
    ]
    found = measured({"table6": made})
    assert overall(table6.EXPERIMENT.claims[0], found).verdict == "holds"
    assert verdicts(table6.saves_passes, found)["mini-math"] == "holds"
    ((_, signs), _) = list(table6.saves_passes(found))
    assert "threshold 0.9: passes saved +15.0" in signs[0].words


def sweep(root: Path, lams: dict[float, range], ks: dict[int, range]) -> Measurements:
    rules = {f"slerp(lam={lam})": solved for lam, solved in lams.items()}
    rules |= {f"slerp(k={k})": solved for k, solved in ks.items()}
    return measured({"figure2": [result(root, "mini-math", rule, "topn(2)", rules[rule]) for rule in rules]})


def test_sensitivity(tmp_path: Path) -> None:
    found = sweep(tmp_path, {0.1: range(4), 0.3: range(19), 0.7: range(2)}, {2: range(18), 4: range(19)})
    assert overall(figure2.EXPERIMENT.claims[0], found).verdict == "holds"
    assert verdicts(figure2.large_lambda, found)["mini-math"] == "holds"
    assert verdicts(figure2.k_matters_less, found) == {"mini-math": "holds"}
    turned = sweep(tmp_path / "t", {0.1: range(12), 0.3: range(12), 0.7: range(19)}, {2: range(1), 4: range(19)})
    assert overall(figure2.EXPERIMENT.claims[0], turned).verdict == "does not hold"
    assert verdicts(figure2.large_lambda, turned)["mini-math"] == "does not hold"
    assert verdicts(figure2.k_matters_less, turned) == {"mini-math": "does not hold"}


def test_figure_1() -> None:
    def row(vanilla: list[float], slerp: list[float]) -> Measurements:
        return measured(
            rows={"joint": [joint.JointRow("p", ["ab", "ad", "cb", "cd"], {"vanilla": vanilla, "slerp": slerp})]}
        )

    parallel = [0.2, 0.3, 0.2, 0.2]
    assert verdicts(figure1.coherent, row(parallel, [0.6, 0.1, 0.1, 0.1])) == {"one prompt": "holds"}
    assert verdicts(figure1.coherent, row(parallel, [0.1, 0.5, 0.0, 0.0])) == {"one prompt": "does not hold"}
    mixed = [0.3, 0.35, 0.05, 0.2]  # more on the coherent ones than before, but "ad" is the likeliest
    assert verdicts(figure1.coherent, row(parallel, mixed)) == {"one prompt": "does not hold"}


def test_mixtures_and_consistency_pair_prompt_by_prompt() -> None:
    closer = measured(rows={"mixtures": [mixture([0.1], 0.3), mixture([0.5], 0.6)] * 3})
    assert verdicts(table1.multiplicative, closer) == {"6 prompts": "holds"}
    farther = measured(rows={"mixtures": [mixture([0.3], 0.1), mixture([0.6], 0.5)] * 3})
    assert verdicts(table1.multiplicative, farther) == {"6 prompts": "does not hold"}
    rows = measured(rows={"consistency": [consistent(2.0, 1.0), consistent(9.0, 7.0)] * 3})
    assert verdicts(partial(table4.closer, "slerp", "vanilla"), rows) == {"6 prompts": "holds"}
    assert verdicts(partial(table4.closer, "vanilla", "slerp"), rows) == {"6 prompts": "does not hold"}


def test_geometry() -> None:
    def rows(*shapes: geometry.Shape) -> Measurements:
        return measured(
            rows={"geometry": [geometry.Row("mini-math", str(index), each) for index, each in enumerate(shapes * 3)]}
        )

    usual = rows(shape(10, 0.4, 0.05), shape(10, 0.5, 0.06))
    odd = rows(shape(10, 0.1, 0.2, 0.5), shape(10, 0.1, 0.3, 0.5))
    for decide in (table3.aligned, table3.orthogonal):
        assert verdicts(decide, usual) == {"mini-math": "holds"}
        assert verdicts(decide, odd) == {"mini-math": "does not hold"}
    assert verdicts(b1.shortens, usual) == {"mini-math": "holds"}
    assert verdicts(b1.off_the_midpoint, usual) == {"mini-math": "holds"}
    assert verdicts(b1.off_the_midpoint, rows(shape(9, 0, 0, 0.3), shape(9, 0, 0, 0.2))) == {"mini-math": "holds"}
    assert verdicts(b1.off_the_midpoint, odd) == {"mini-math": "undecided"}


def test_completions_and_agreement() -> None:
    def spans(vanilla: float, euclidean: float) -> completions.CompletionRow:
        kl = {"vanilla": [vanilla], "euclidean": [euclidean], "slerp": [0.1]}
        return completions.CompletionRow("mini-math", "i", [2], [1], [9], kl)

    both = measured(rows={"completions": [spans(0.3, 0.2), spans(0.4, 0.3)] * 3})
    assert verdicts(table8.closer, both) == {"mini-math": "holds"}
    one = measured(rows={"completions": [spans(0.3, 0.05), spans(0.4, 0.04)] * 3})
    assert verdicts(table8.closer, one) == {"mini-math": "does not hold"}

    def settled(vanilla: int, slerp: int) -> agreement.AgreementRow:
        made = {
            name: agreement.Course([4], [0], [8], [count], [1])
            for name, count in (("vanilla", vanilla), ("slerp", slerp))
        }
        return agreement.AgreementRow("mini-math", "i", made, {})

    assert verdicts(
        agreement_experiment.settles_earlier, measured(rows={"agreement": [settled(2, 5), settled(1, 3)] * 3})
    ) == {"mini-math": "holds"}


def test_a_claim_says_when_nothing_was_measured_and_where_it_is_from() -> None:
    nothing = measured({each.name: [] for each in EXPERIMENTS})
    found = {each.name: each.findings(nothing) for each in EXPERIMENTS}
    assert {name for name, findings in found.items() if not findings} == {"frontier"}
    assert {finding.verdict for findings in found.values() for finding in findings} == {"not measured"}
    assert {finding.where for finding in found["table4"]} == {"Table 4"}
    assert {finding.where for finding in found["table6"]} == {"Table 6", "ours, with Table 6"}
