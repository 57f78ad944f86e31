"""What an analysis records of its settings: all that decides its numbers, and nothing that does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm import Decoding, registry
from softdlm.analysis.plans import agreement_plan, completions_plan, geometry_plan
from softdlm.analysis.questions import Question
from softdlm.feedback import FeedbackRule
from tests.conftest import tiny

RULES: dict[str, FeedbackRule] = {"slerp": softdlm.Slerp(2, 0.3)}
QUESTION = Question("t", "0", [5, 8, 13], 6)
BASE = Decoding(softdlm.TopN(2), softdlm.Slerp(2, 0.4))
PLANS = [geometry_plan, agreement_plan, completions_plan]


def settings(plan: Any, decoding: Decoding = BASE, question: Question = QUESTION) -> dict[str, Any]:
    return plan(tiny("llada"), [question], RULES, decoding).settings


@pytest.mark.parametrize("plan", PLANS)
def test_settings_hold_the_rules_and_the_decoding(plan: Any) -> None:
    found = settings(plan)
    assert found["rules"] == {"slerp": "slerp(k=2, lam=0.3)"}
    assert (found["decoding"]["commit"], found["decoding"]["eos"]) == ("topn(2)", "allow")
    assert "max_new_tokens" not in found["decoding"]
    assert found == settings(plan, BASE.settled())
    assert found == settings(plan, replace(BASE, max_new_tokens=99))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    "change", [{"commit": softdlm.TopN(1)}, {"early_finish": False}, {"stop": ("x",)}, {"eos": "last"}], ids=str
)
def test_what_changes_a_decode_changes_the_settings(plan: Any, change: dict[str, Any]) -> None:
    assert settings(plan, replace(BASE, **change)) != settings(plan)
    assert settings(plan, question=replace(QUESTION, chat=False))["chat"] is False


def test_agreement_puts_its_rules_in_the_place_of_the_feedback() -> None:
    other = replace(BASE, feedback="euclidean", k=4)
    assert settings(agreement_plan, other) == settings(agreement_plan)
    rows = [list(agreement_plan(tiny("llada"), [QUESTION], RULES, each).rows(0)) for each in (BASE, other)]
    assert rows[0] == rows[1]
    assert settings(geometry_plan, other) != settings(geometry_plan)


def test_an_edited_rule_file_is_another_rule(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    code = (
        "from dataclasses import dataclass\nimport softdlm\n@dataclass(frozen=True)\nclass Mine(softdlm.Slerp): pass\n"
    )
    found = []
    for text in (code, code + "# edited\n"):
        file.write_text(text)
        rules = {"mine": registry.build("feedback", f"{file}:Mine(k=2)")}
        found.append(geometry_plan(tiny("llada"), [QUESTION], rules, BASE).settings)
    assert found[0]["rules"] == found[1]["rules"]
    assert found[0] != found[1]
