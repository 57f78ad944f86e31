"""The transcription against what the paper's numbers must obey and what its text repeats."""

from collections.abc import Iterator
from typing import Any

import pytest

from softdlm.reproduce import b1, table1, table2, table5, table6
from softdlm.reproduce.experiments import EXPERIMENTS
from softdlm.reproduce.study import MODELS, TITLES

COLUMNS = {
    "table1": table1.MIXTURES,
    "table2": table2.METHODS,
    "table3": ("candidate", "aggregate"),
    "b1": ("angle", *b1.OF_SOFT_TOKEN),
    "table5": table5.METHODS,
    "table6": table6.METHODS,
    "table7": table2.METHODS,
}
"""What the numbers of a row are, where the paper's table has rows."""

SIZES = {"gsm8k": 1319, "math500": 500, "humaneval": 164, "mbpp": 500}
# solved at one token a step: what the recovery rates are fractions of (no such number fits the ones left out)
SOLVED = {
    "LLaDA": {"gsm8k": 985, "math500": 128, "humaneval": 76, "mbpp": 200},
    "LLaDA-1.5": {"gsm8k": 949, "math500": 122, "humaneval": 79, "mbpp": 200},
    "LLaDA-2.0-mini": {"math500": 206, "humaneval": 132, "mbpp": 319},
    "Dream": {"gsm8k": 1081, "math500": 171, "humaneval": 95, "mbpp": 291},
}
# printed so, though no count of items gives it
SLIPS_OF_TABLE_2 = [
    ("table2", "LLaDA-2.0-mini", "gsm8k", 4, "slerp", 87.40),
    ("table2", "LLaDA-2.0-mini", "gsm8k", 8, "slerp", 54.20),
    ("table2", "LLaDA-1.5", "gsm8k", 2, "euclidean", 71.40),
    ("table2", "LLaDA", "humaneval", 2, "euclidean", 41.47),
]
SLIPS_OF_TABLE_7 = [
    ("LLaDA-2.0-mini", "mbpp", 8, "vanilla", 34.99),
    ("LLaDA-1.5", "math500", 8, "vanilla", 40.00),
    ("Dream", "math500", 2, "vanilla", 42.37),
    ("Dream", "math500", 8, "euclidean", 0.59),
    ("Dream", "mbpp", 2, "euclidean", 70.80),
    ("Dream", "mbpp", 4, "euclidean", 40.50),
    ("Dream", "mbpp", 8, "euclidean", 24.41),
    ("Dream", "mbpp", 8, "slerp", 28.09),
]
COUNTS = {
    "table1": 8, "table2": 144, "table3": 16, "table4": 12, "b1": 4,
    "table5": 18, "table6": 16, "table7": 144, "table8": 18,
}  # fmt: skip


def named(value: Any, columns: tuple[str, ...]) -> Any:
    """The same numbers with every row as a dictionary."""
    if isinstance(value, dict):
        return {name: named(each, columns) for name, each in value.items()}
    return dict(zip(columns, value, strict=True)) if isinstance(value, tuple) else value


NUMBERS = {each.name: named(each.paper, COLUMNS.get(each.name, ())) for each in EXPERIMENTS if each.paper}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, value


def is_fraction(percent: float, size: int) -> bool:
    return abs(100 * round(percent * size / 100) / size - percent) < 0.0051


def test_what_counts_as_a_fraction() -> None:
    assert is_fraction(41.46, 164)
    assert is_fraction(65.63, 128)
    assert not is_fraction(41.36, 164)


def test_every_printed_number_is_there() -> None:
    assert {table: len(list(leaves(found))) for table, found in NUMBERS.items()} == COUNTS
    assert {path[0] for found in NUMBERS.values() for path, _ in leaves(found)} == set(MODELS.values())
    for table in ("table2", "table3", "table5", "table6", "table7", "table8"):
        assert {path[1] for path, _ in leaves(NUMBERS[table])} <= set(TITLES)


def test_accuracies_are_fractions_of_the_test_sets() -> None:
    wrong = [
        (table, *path, percent)
        for table in ("table2", "table5", "table6")
        for path, percent in leaves(NUMBERS[table])
        if not is_fraction(percent, 500 if table == "table6" and path[1] == "gsm8k" else SIZES[path[1]])
    ]
    assert sorted(wrong) == sorted(SLIPS_OF_TABLE_2)


def test_recovery_rates_are_fractions_of_what_single_tokens_solve() -> None:
    odd = [
        (*path, percent)
        for path, percent in leaves(NUMBERS["table7"])
        if (path[0], path[1]) != ("LLaDA-2.0-mini", "gsm8k") and not is_fraction(percent, SOLVED[path[0]][path[1]])
    ]
    assert sorted(odd) == sorted(SLIPS_OF_TABLE_7)


def test_the_ablations_first_column_is_table_2_at_two_tokens() -> None:
    for (model, benchmark, method), percent in leaves(NUMBERS["table5"]):
        if method == "slerp":
            assert percent == NUMBERS["table2"][model][benchmark][2]["slerp"]


def test_differences_that_the_text_prints() -> None:
    two, six, seven = (NUMBERS[f"table{number}"] for number in (2, 6, 7))
    gsm, human = two["LLaDA-2.0-mini"]["gsm8k"], two["Dream"]["humaneval"]
    assert gsm[4]["slerp"] == 87.40
    assert gsm[4]["slerp"] - gsm[4]["vanilla"] == pytest.approx(4.31)
    assert gsm[4]["slerp"] - gsm[4]["euclidean"] == pytest.approx(1.58)
    assert human[4]["slerp"] - human[4]["vanilla"] == pytest.approx(14.64)
    assert human[4]["slerp"] - human[4]["euclidean"] == pytest.approx(8.54)
    gains = [pair["slerp"] - pair["vanilla"] for m in six.values() for b in m.values() for pair in b.values()]
    assert (min(gains), max(gains)) == (pytest.approx(0.40), pytest.approx(3.66))
    eight = {model: [seven[model]["humaneval"][8][method] for method in ("vanilla", "slerp")] for model in seven}
    assert (eight["LLaDA-1.5"], eight["Dream"]) == ([22.78, 37.97], [5.26, 24.21])


def test_the_winners_are_those_of_the_text() -> None:
    """Lowest divergence (Tables 4 and 8), multiplicative closer (1), best ablation (5), better aligned (3)."""
    for _, each in pairs("table1"):
        assert each["multiplicative"] < each["additive"]
    for table, better in (("table4", min), ("table8", min), ("table5", max)):
        for _, each in pairs(table):
            assert better(each, key=lambda method: each[method]) == "slerp"
    for _, each in pairs("table3"):
        assert each["aggregate"] < 0.1 < each["candidate"]


def pairs(table: str) -> Iterator[tuple[tuple[Any, ...], dict[str, float]]]:
    """The innermost dictionaries."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for path, value in leaves(NUMBERS[table]):
        groups.setdefault(path[:-1], {})[path[-1]] = value
    yield from groups.items()
