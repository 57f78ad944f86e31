"""What asdict made is read back whole; what does not fit is refused with the value."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pytest

from softdlm.records.rebuild import rebuild


@dataclass(frozen=True)
class Leaf:
    number: float
    word: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Tree:
    name: str
    leaves: tuple[Leaf, ...]
    by_name: dict[str, Leaf]
    places: list[int | None]
    value: float | str | None
    flag: bool
    anything: Any


TREE = Tree("t", (Leaf(1.5), Leaf(2, "b")), {"x": Leaf(0.0)}, [1, None], None, True, {"free": [1, "x"]})


def test_a_dataclass_comes_back_from_json() -> None:
    assert rebuild(Tree, json.loads(json.dumps(asdict(TREE)))) == TREE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": 3}, "3 where a str belongs"),
        ({"leaves": [7]}, "7 where a dict belongs"),
        ({"leaves": {}}, "{} where a list belongs"),
        ({"leaves": [{"number": True}]}, "True where a float belongs"),
        ({"by_name": {"x": {"number": 1, "word": "c"}}}, "'c' is none of 'a', 'b'"),
        ({"places": [1.5]}, "1.5 is none of"),
        ({"value": []}, r"\[\] is none of"),
        ({"flag": 1}, "1 where a bool belongs"),
        ({"colour": "red"}, "Tree has no field colour"),
        ({"leaves": [{}]}, "Leaf: .*missing"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rebuild(Tree, {**json.loads(json.dumps(asdict(TREE))), **change})
