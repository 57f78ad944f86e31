"""Claims about many settings: the share that the paper counts, and the tests behind it."""

from pathlib import Path

import pytest

from softdlm.reproduce import table2, table5, table6, table7
from softdlm.reproduce.experiment import ShareClaim
from softdlm.reproduce.leads import Lead, by_share, judge, lead, leading, printed, significant, slerp_leads
from softdlm.reproduce.measurements import consistent
from tests.reproduce.made import measured, result, study

BOTH = (0, 1)


def test_the_papers_own_tables_give_the_papers_conclusions() -> None:
    """Section 6.2, appendix B.2, B.4 and C: counted by hand in Tables 2, 5, 6 and 7."""
    accuracy, recovery = (list(printed(each, 2, BOTH)) for each in (table2.PAPER, table7.PAPER))
    assert [(leading(leads), len(leads)) for leads in (accuracy, recovery)] == [(40, 48), (39, 48)]
    assert by_share(accuracy, "most")
    assert by_share(recovery, "most")
    assert not by_share(accuracy, "all")
    for numbers, ours, others, count in ((table5.PAPER, 0, (1, 2), 6), (table6.PAPER, 1, (0,), 8)):
        found = list(printed(numbers, ours, others))
        assert (leading(found), len(found)) == (count, count)
        assert by_share(found, "all")


def test_the_paper_stands_the_other_way_round_for_vanilla() -> None:
    """The judge can say no: vanilla leads in few settings of the paper."""
    vanilla = list(printed(table2.PAPER, 0, (1, 2)))
    assert leading(vanilla) == 4
    assert not by_share(vanilla, "most")
    ties = list(printed({"m": {"b": {2: (1.0, 2.0, 2.0)}}}, 2, BOTH))
    assert ties == [Lead(0.0)]
    assert leading(ties) == 0


def test_half_of_the_settings_are_not_most_of_them() -> None:
    assert not by_share([Lead(1.0), Lead(-1.0)], "most")
    assert by_share([Lead(1.0), Lead(1.0), Lead(-1.0)], "most")


BETTER, WORSE, SAME = Lead(9.0, 0.001), Lead(-9.0, 0.001), Lead(1.0, 0.8)


@pytest.mark.parametrize(
    ("leads", "most", "all_"),
    [
        ([BETTER, BETTER, BETTER], "holds", "holds"),
        ([SAME, SAME, SAME], "undecided", "undecided"),
        ([BETTER, BETTER, WORSE], "holds", "does not hold"),
        ([BETTER, SAME, Lead(-1.0, 0.9)], "holds", "undecided"),
        ([BETTER, WORSE, WORSE], "does not hold", "does not hold"),
        ([BETTER, WORSE, Lead(0.0, 1.0)], "undecided", "does not hold"),
        ([], "not measured", "not measured"),
    ],
)
def test_a_verdict_needs_the_share_and_the_tests(leads: list[Lead], most: str, all_: str) -> None:
    assert judge(leads, "most")[0] == most
    assert judge(leads, "all")[0] == all_


def test_tests_are_corrected_for_their_number() -> None:
    assert significant([Lead(3.0, 0.03)]) == (1, 0)
    assert significant([Lead(3.0, 0.03), Lead(-2.0, 0.03)]) == (0, 0)
    assert significant([Lead(3.0), Lead(-2.0, 0.01)]) == (0, 1)


def test_a_lead_is_over_the_best_of_the_others_on_the_same_items(tmp_path: Path) -> None:
    ours, weak, strong = (
        result(tmp_path, "mini-math", name, "topn(2)", range(count))
        for name, count in (("slerp", 12), ("vanilla", 2), ("euclidean", 15))
    )
    assert lead(ours, [weak]).points == 50.0
    found = lead(ours, [weak, strong])
    assert found.points == -15.0
    assert found.p == 0.25  # three items lost, none won
    single = result(tmp_path, "mini-math", "vanilla", "topn(1)", range(10, 14))
    assert lead(ours, [weak, strong], single).points == -50.0  # of items 10 to 13 it solves two, the best other all


def test_consistency_leads_by_its_own_verdicts(tmp_path: Path) -> None:
    made = [
        result(tmp_path, "mini-math", name, "topn(2)", range(10), consistent=range(count))
        for name, count in (("slerp", 15), ("vanilla", 5))
    ]
    assert lead(made[0], [made[1]]).points == 0
    assert lead(made[0], [made[1]], of=consistent).points == 50.0


def test_settings_without_all_methods_do_not_count(tmp_path: Path) -> None:
    made = [result(tmp_path, "mini-math", name, "topn(2)", range(5)) for name in ("slerp", "vanilla")]
    made.append(result(tmp_path, "mini-math", "slerp", "topn(4)", range(5)))
    found = slerp_leads("table2", table2.BENCHMARKS, ["vanilla"], table2.RATES.values())(measured({"table2": made}))
    assert len(list(found)) == 1


def test_settings_of_several_models_are_counted_together(tmp_path: Path) -> None:
    """Two models with opposite outcomes: neither side has most of the settings."""
    every = []
    for place, (slerp, vanilla) in enumerate(((range(18), range(2)), (range(2), range(18)))):
        cells = [
            result(tmp_path / str(place), "mini-math", name, f"topn({n})", solved)
            for name, solved in (("slerp", slerp), ("vanilla", vanilla))
            for n in (2, 4, 8)
        ]
        every.append(measured({"table2": cells}, study=study(tasks=("mini-math",))))
    claim = ShareClaim("w", slerp_leads("table2", table2.BENCHMARKS, ["vanilla"], table2.RATES.values()))
    (found,) = claim.findings("Table 2", every, lambda measured, scope: "k = 3")
    assert (found.scope, found.verdict, found.strength) == ("6 settings of 2 models", "undecided", "k = 3")
    assert "3 of 6 settings (50 %); of 6 paired tests 3 significant for it, 3 against it" in found.evidence
