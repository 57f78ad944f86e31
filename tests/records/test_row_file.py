"""Rows on disk: stopped anywhere, continued, never mixed with another measurement."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest

import softdlm
from softdlm.analysis import agreement, plans
from softdlm.analysis.plans import Plan, run
from softdlm.analysis.questions import Question
from softdlm.errors import ResultsError, UsageError
from softdlm.feedback import FeedbackRule
from softdlm.records.row_file import RowFile
from tests.analysis import exact
from tests.conftest import tiny

RULES: dict[str, FeedbackRule] = {"slerp": softdlm.Slerp(2, 0.3)}
DECODING = softdlm.Decoding(commit=softdlm.TopN(2))
QUESTIONS = [Question("t", str(index), [5, 8, 13 + index], 6) for index in range(3)]


def plan(rules: dict[str, FeedbackRule] = RULES) -> Plan[agreement.AgreementRow]:
    return plans.agreement_plan(tiny("llada"), QUESTIONS, rules, DECODING, batch_size=2)


def test_a_run_is_the_same_whether_or_not_it_was_stopped(tmp_path: Path) -> None:
    whole, file = run(tiny("llada"), plan()), tmp_path / "rows.jsonl"
    assert [row.item for row in whole.rows] == ["0", "1", "2"]

    def stop(done: int, total: int) -> None:
        assert total == 3
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny("llada"), plan(), file, stop)
    with file.open("a") as torn:
        torn.write('{"task": "t", "item"')
    done: list[int] = []
    again = run(tiny("llada"), plan(), file, lambda count, _: done.append(count))
    assert done == [3]
    assert again.rows == whole.rows
    assert again.summary == whole.summary
    head, *rows = map(json.loads, file.read_bytes().splitlines())
    assert head["settings"] == json.loads(json.dumps(whole.settings))
    assert rows == [dataclasses.asdict(row) for row in whole.rows]
    assert json.loads(json.dumps(whole.record()))["rows"] == rows


def test_a_finished_file_is_read_and_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    first = run(tiny("llada"), plan(), file)
    text = file.read_text()
    assert run(tiny("llada"), plan(), file, lambda *_: pytest.fail("measured")).rows == first.rows
    assert file.read_text() == text


def test_other_settings_do_not_join_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    run(tiny("llada"), plan(), file)
    text = file.read_text()
    with pytest.raises(UsageError, match="was measured with another rules: choose another --out"):
        run(tiny("llada"), plan({"slerp": softdlm.Slerp(2, 0.4)}), file)
    other = copy.copy(tiny("llada"))
    other.embedding = other.embedding + 1e-3
    retrained = plans.agreement_plan(other, QUESTIONS, RULES, DECODING)
    with pytest.raises(UsageError, match="was measured with another mask_embedding: choose"):
        run(other, retrained, file)
    assert file.read_text() == text


def test_files_of_something_else_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"mine": 1}\n')
    with pytest.raises(UsageError, match="is not a file of rows"):
        run(tiny("llada"), plan(), file)
    assert file.read_text() == '{"mine": 1}\n'
    with pytest.raises(UsageError, match="does not exist"):
        run(tiny("llada"), plan(), tmp_path / "no" / "rows.jsonl")


@pytest.mark.parametrize("text", ["notes\n", '{"softdlm_analysis": 1}\n', "[1]\n", '{"softdlm_analysis": 1, "sett'])
def test_a_file_without_a_head_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match="is not a file of rows"):
        run(tiny("llada"), plan(), file)
    assert file.read_text() == text


@dataclasses.dataclass(frozen=True)
class Row:
    text: str


def rows_of(file: Path, kind: type = Row) -> RowFile:
    return RowFile(file, {"k": 3}, {}, kind)


def test_any_text_comes_back(tmp_path: Path) -> None:
    texts = [Row("a\u2028b"), Row("c\x85d"), Row("\ud800"), Row("e\r\nf")]
    with rows_of(tmp_path / "rows.jsonl") as file:
        for each in texts:
            file.append(each)
    with rows_of(tmp_path / "rows.jsonl") as file:
        assert file.rows == texts


def test_a_file_has_one_writer(tmp_path: Path) -> None:
    with rows_of(tmp_path / "rows.jsonl"), pytest.raises(ResultsError, match="another process is writing"):
        rows_of(tmp_path / "rows.jsonl")
    rows_of(tmp_path / "rows.jsonl").close()


def test_rows_of_another_kind_are_refused_and_kept(tmp_path: Path) -> None:
    with rows_of(tmp_path / "rows.jsonl") as file:
        file.append(Row("a"))
    other = dataclasses.make_dataclass("Other", [("number", int)])
    before = (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"a row that cannot be read \(Other has no field text\)"):
        rows_of(tmp_path / "rows.jsonl", other)
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_table_4_counts_the_prompts_that_qualify() -> None:
    fits = exact.network_case("llada")
    does_not = dataclasses.replace(fits, a=fits.a[:-1])
    made = run(tiny("llada"), plans.consistency_plan(tiny("llada"), [fits, does_not, fits], RULES))
    assert (made.settings["qualify"], made.settings["of"], len(made.rows)) == (2, 3, 2)
