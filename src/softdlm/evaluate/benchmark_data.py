"""Benchmark data: from a folder of JSON Lines files, or from the Hugging Face hub.

The folder is named by `data_dir` or by the environment variable SOFTDLM_DATA and holds gsm8k_test, gsm8k_train,
math500_test, humaneval and mbpp, each as .jsonl.gz or .jsonl, with the fields of the data sets on the hub. With a
folder nothing is fetched: a file that is not there is an error.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from softdlm.errors import UsageError
from softdlm.records.canonical import content_digest

Row = dict[str, Any]
Splits = dict[str, Any]
"""Split name to datasets.Dataset, what lm-eval takes from a task's `custom_dataset`."""

VARIABLE = "SOFTDLM_DATA"
TASKS = Path(__file__).parent / "tasks"
PREFIX = "softdlm_"
"""The names of our tasks in lm-eval begin with it."""
_HUB: dict[str, tuple[str, str | None]] = {
    "gsm8k": ("openai/gsm8k", "main"),
    "math500": ("HuggingFaceH4/MATH-500", None),
    "humaneval": ("openai/openai_humaneval", None),
    "mbpp": ("google-research-datasets/mbpp", "full"),
}


def gsm8k(data_dir: str | None = None, **_: Any) -> Splits:
    """The test set, with the eight fixed chain-of-thought shots of lm-eval's gsm8k_cot."""
    folder = find_folder(data_dir)
    return _splits(test=_rows(folder, "gsm8k", "test"), shots=_shots(folder, "gsm8k_cot_fewshot", _harness_cot))


def gsm8k_train(data_dir: str | None = None, **_: Any) -> Splits:
    """The test set, with the training set to draw shots from, as lm-eval's gsm8k does."""
    folder = find_folder(data_dir)
    return _splits(test=_rows(folder, "gsm8k", "test"), shots=_rows(folder, "gsm8k", "train"))


def math500(data_dir: str | None = None, **_: Any) -> Splits:
    """MATH-500, with the four Minerva shots as task version 3.0 of lm-eval has them."""
    folder = find_folder(data_dir)
    shots = _shots(folder, "minerva_math_fewshot", lambda: read(TASKS / "minerva_math_fewshot.jsonl"))
    return _splits(test=_rows(folder, "math500", "test"), shots=shots)


def humaneval(data_dir: str | None = None, **_: Any) -> Splits:
    return _splits(test=_rows(find_folder(data_dir), "humaneval", "test"))


def mbpp(data_dir: str | None = None, **_: Any) -> Splits:
    """The 500 test tasks (11 to 510), with tasks 2, 3 and 4 as shots."""
    folder = find_folder(data_dir)
    rows = _rows(folder, "mbpp", "test") + ([] if folder else _rows(None, "mbpp", "prompt"))
    by_id = {row["task_id"]: row for row in rows}
    missing = {2, 3, 4} - by_id.keys()
    if missing:
        raise UsageError(f"mbpp lacks tasks {sorted(missing)}, the shots: {folder} must hold the whole file")
    test = [row for number, row in by_id.items() if 11 <= number <= 510]
    return _splits(test=test, shots=[by_id[2], by_id[3], by_id[4]])


def find_folder(data_dir: str | Path | None = None) -> Path | None:
    """The folder that was asked for, None for the hub."""
    asked = data_dir or os.environ.get(VARIABLE)
    if not asked:
        return None
    folder = Path(asked).expanduser()
    if not folder.is_dir():
        name = "data_dir" if data_dir else VARIABLE
        raise UsageError(f"{name} {asked}: no such folder; leave it out to take the data from the Hugging Face hub")
    return folder


def read(file: Path) -> list[Row]:
    opened: Any = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 of the rows' content, the same for a folder and for the hub."""
    return content_digest(*(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows))


def _find(folder: Path, *names: str) -> Path | None:
    files = [folder / f"{name}{ending}" for name in names for ending in (".jsonl.gz", ".jsonl")]
    return next((file for file in files if file.exists()), None)


def _rows(folder: Path | None, name: str, split: str) -> list[Row]:
    if folder is None:
        return _from_hub(name, split)
    file = _find(folder, f"{name}_{split}", name)
    if file is None:
        raise UsageError(f"{folder} holds neither {name}_{split} nor {name} as .jsonl.gz or .jsonl")
    rows = read(file)
    if not rows:
        raise UsageError(f"{file} is empty")
    return rows


def _from_hub(name: str, split: str) -> list[Row]:
    import datasets

    path, subset = _HUB[name]
    try:
        return list(datasets.load_dataset(path, subset, split=split))  # type: ignore[arg-type]
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"cannot get {path} from the Hugging Face hub ({reason}); offline, name a folder by {VARIABLE} or data_dir"
        ) from error


def _shots(folder: Path | None, name: str, otherwise: Callable[[], list[Row]]) -> list[Row]:
    file = _find(folder, name) if folder else None
    return read(file) if file else otherwise()


def _harness_cot() -> list[Row]:
    """The shots out of the installed lm-eval's own task file."""
    from importlib.resources import files

    import yaml

    config = yaml.safe_load((files("lm_eval") / "tasks" / "gsm8k" / "gsm8k-cot.yaml").read_text())
    return config["fewshot_config"]["samples"]


def _splits(**rows: list[Row]) -> Splits:
    import datasets

    return {name: datasets.Dataset.from_list(each) for name, each in rows.items()}
