"""A file of problems as a task: what a line may hold, what is right, what names its cell."""

import json
from pathlib import Path
from typing import Any

import pytest

import softdlm
from softdlm.errors import TokenizerError, UsageError
from softdlm.evaluate.cell import TaskSpec, task_record
from softdlm.evaluate.file_task import FileTask, agrees
from softdlm.evaluate.paper import benchmark
from softdlm.evaluate.task import EvalItem, EvalTask, load_eval_task
from softdlm.generation import encode
from tests.conftest import DATA, IDS
from tests.tokenizers import checkpoint

LINES = [{"prompt": "What is 1 + 2?", "answer": 3}, {"id": "town", "prompt": "Which town?", "answer": "San  Diego"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return softdlm.load(checkpoint(tmp_path_factory.mktemp("file") / "llada", "llada"), device="cpu")


def write(path: Path, *lines: Any) -> str:
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines), encoding="utf-8")
    return str(path)


def test_a_line_is_a_user_turn_with_its_answer(model: Any, tmp_path: Path) -> None:
    task = load_eval_task(TaskSpec(write(tmp_path / "own.jsonl", LINES[0], "", LINES[1])), model)
    assert isinstance(task, EvalTask)
    assert all(isinstance(item, EvalItem) for item in task.items)
    assert [item.id for item in task.items] == ["1", "town"]
    assert encode(model, task.items[0].prompt, chat=False) == encode(model, "What is 1 + 2?")
    assert task.max_new_tokens is None
    assert task.score(task.items[0], "1 + 2 = 3") == {"correct": True, "reason": "solved", "consistent": True}
    assert task.score(task.items[0], "1 + 1 = 3") == {"correct": True, "reason": "solved", "consistent": False}
    assert [task.score(task.items[1], text)["reason"] for text in ("It is\nsan diego", "San", " ")] == [
        "solved",
        "wrong",
        "empty",
    ]


@pytest.mark.parametrize(
    ("answer", "text", "right"),
    [
        ("42", "so 40 + 2 = 42.", True),
        ("42", "42 - 2 = 40", False),
        ("42.0", "42", True),
        ("1,200", "It costs $1200", True),
        ("-3", "it is -3", True),
        ("42", "none", False),
        ("New York", "  new   york ", True),
        ("New York", "First San Diego.\nNEW YORK\n\n", True),
        ("New York", "New York\nSan Diego", False),
        ("a\nb", "A B", True),
        ("1/2", "It is\n1/2", True),
        ("yes", "", False),
    ],
)
def test_a_number_is_the_last_one_and_a_text_is_the_whole_or_the_last_line(answer: str, text: str, right: bool) -> None:
    assert agrees(answer, text) == right


def test_a_limit_takes_the_first_problems(model: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "own.jsonl", *LINES)
    assert [item.id for item in load_eval_task(TaskSpec(file, limit=1), model).items] == ["1"]
    assert len(load_eval_task(TaskSpec(file, limit=9), model).items) == 2


def test_problems_and_answers_name_the_cell_and_the_place_of_the_file_does_not(model: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    base = task_record(FileTask.of(TaskSpec(write(tmp_path / "a.jsonl", *LINES)), model))
    assert base["name"] == "file"
    assert task_record(FileTask.of(TaskSpec(write(tmp_path / "elsewhere" / "b.jsonl", *LINES)), model)) == base
    for change in ({"answer": 4}, {"prompt": "What is 2 + 1?"}, {"id": "x"}):
        file = write(tmp_path / "c.jsonl", {**LINES[0], **change}, LINES[1])
        assert task_record(FileTask.of(TaskSpec(file), model)) != base


def test_the_length_is_the_checkpoints_own_and_a_given_one_goes_first(model: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "own.jsonl", *LINES)
    folder = checkpoint(tmp_path / "model", "llada")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decoding": {"max_new_tokens": 8}}))
    for decoding, length in (({}, 8), ({"max_new_tokens": 4}, 4)):
        found = softdlm.evaluate(softdlm.load(folder, device="cpu"), file, decoding, out=tmp_path / "out")
        manifest = json.loads((found.folders[0] / "manifest.json").read_text())
        assert manifest["protocol"]["decoding"]["max_new_tokens"] == length
        assert manifest["protocol"]["task"]["name"] == "file"
        assert found.rows[0]["task"] == file


def test_a_file_is_no_benchmark_whatever_its_name() -> None:
    assert benchmark("gsm8k-mine.jsonl") is None
    assert TaskSpec("gsm8k.jsonl").name == "gsm8k.jsonl"
    with pytest.raises(UsageError, match=r"mine\.jsonl has no split 'validation'"):
        TaskSpec("mine.jsonl", split="validation")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty: put one JSON object per line"),
        (["{"], "line 1: not JSON"),
        (["[" * 100_000], "line 1: not JSON: JSON that is nested too deep"),
        ([LINES[0], "3"], "line 2: must be a JSON object, not 3"),
        ([{"prompt": "p"}], "'answer' must be a text or a number, not None"),
        ([{"prompt": "p", "answer": True}], "'answer' must be a text or a number, not True"),
        (['{"prompt": "p", "answer": NaN}'], "'answer' must be a text or a number, not nan"),
        ([{"prompt": "p", "answer": " "}], "'answer' must be a text"),
        ([{"prompt": 3, "answer": "a"}], "'prompt' must be a text, not 3"),
        ([{"prompt": "", "answer": "a"}], "'prompt' must be a text"),
        ([{"prompt": "p", "answer": "a", "id": 3}], "'id' must be a text, not 3"),
        ([{"prompt": "p", "answer": "a", "id": ""}], "'id' must not be empty"),
        ([{"prompt": "p", "answer": "a", "level": 3}], "unknown field level; known are prompt, answer, id"),
        (['{"prompt": "\\ud800", "answer": "a"}'], "'prompt' holds '\\\\ud800', which is no character"),
        ([{**LINES[1]}, {**LINES[1]}], "each with an id of its own; doubled: "),
    ],
)
def test_a_bad_line_is_named(model: Any, tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        task_record(load_eval_task(TaskSpec(write(tmp_path / "own.jsonl", *lines)), model))
    assert message.replace("\\\\", "\\") in str(refused.value)


def test_what_is_no_file_is_said(model: Any, tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("none.jsonl", "folder.jsonl"):
        with pytest.raises(UsageError, match="no such file"):
            load_eval_task(TaskSpec(str(tmp_path / name)), model)
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match="line 1: not JSON"):
        load_eval_task(TaskSpec(str(tmp_path / "bytes.jsonl")), model)
    bare = softdlm.load(DATA / "llada", device="cpu", **IDS["llada"])
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        load_eval_task(TaskSpec(write(tmp_path / "own.jsonl", *LINES)), bare)
