"""Where benchmark data come from."""

import json
from pathlib import Path

import pytest

from softdlm.errors import UsageError
from softdlm.evaluate import benchmark_data as data
from tests.conftest import BENCHMARKS, REAL_BENCHMARKS, needs_real_data


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("SOFTDLM_DATA", raising=False)
    return str(BENCHMARKS)


def test_the_folder_is_an_argument_or_a_variable(folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data.find_folder() is None
    monkeypatch.setenv("SOFTDLM_DATA", folder)
    assert data.find_folder() == Path(folder)
    assert data.find_folder(tmp_path) == tmp_path
    monkeypatch.setenv("SOFTDLM_DATA", "/nowhere")
    with pytest.raises(UsageError, match="SOFTDLM_DATA /nowhere: no such folder"):
        data.find_folder()


def test_a_folder_without_the_file_never_becomes_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds neither gsm8k_test nor gsm8k"):
        data.gsm8k(data_dir=str(tmp_path))
    (tmp_path / "humaneval.jsonl").write_text("")
    with pytest.raises(UsageError, match="is empty"):
        data.humaneval(data_dir=str(tmp_path))


def test_mbpp_splits_by_task_id(folder: str, tmp_path: Path) -> None:
    splits = data.mbpp(data_dir=folder)
    assert [row["task_id"] for row in splits["shots"]] == [2, 3, 4]
    assert [row["task_id"] for row in splits["test"]] == [11, 12]
    (tmp_path / "mbpp.jsonl").write_text(json.dumps({"task_id": 11}) + "\n")
    with pytest.raises(UsageError, match=r"lacks tasks \[2, 3, 4\]"):
        data.mbpp(data_dir=str(tmp_path))


def test_shots_come_with_the_package_where_the_folder_has_none(folder: str, tmp_path: Path) -> None:
    chain = data.gsm8k(data_dir=folder)["shots"]
    assert len(chain) == 8
    assert chain[0]["target"].endswith("The answer is 6.")
    minerva = data.math500(data_dir=folder)["shots"]
    assert minerva[0]["problem"].endswith(".}")  # task version 3.0, stray brace and all
    assert len(minerva) == 4
    (tmp_path / "gsm8k_test.jsonl").write_text((BENCHMARKS / "gsm8k_test.jsonl").read_text())
    (tmp_path / "gsm8k_cot_fewshot.jsonl").write_text(json.dumps({"question": "q", "target": "t"}) + "\n")
    assert list(data.gsm8k(data_dir=str(tmp_path))["shots"]) == [{"question": "q", "target": "t"}]


def test_the_digest_is_of_content_not_of_order_of_fields() -> None:
    assert data.digest([{"a": 1, "b": "é"}]) == data.digest([{"b": "é", "a": 1}])
    assert data.digest([{"a": 1}]) != data.digest([{"a": 2}])
    assert data.digest([{"a": 1}, {"a": 2}]) != data.digest([{"a": 2}, {"a": 1}])


@needs_real_data
def test_the_real_files_load_and_shipped_shots_equal_theirs() -> None:
    sizes = {
        name: len(getattr(data, name)(data_dir=str(REAL_BENCHMARKS))["test"])
        for name in ("math500", "humaneval", "mbpp")
    }
    assert sizes == {"math500": 500, "humaneval": 164, "mbpp": 500}
    gsm8k = data.gsm8k(data_dir=str(REAL_BENCHMARKS))
    assert len(gsm8k["test"]) == 1319
    assert list(gsm8k["shots"]) == data._harness_cot()
    shipped = data.read(data.TASKS / "minerva_math_fewshot.jsonl")
    assert list(data.math500(data_dir=str(REAL_BENCHMARKS))["shots"]) == shipped
