"""`softdlm eval` as processes that are killed, interrupted and started twice."""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from softdlm.records.journal import MANIFEST, SAMPLES, SUMMARY
from tests.tokenizers import checkpoint

ITEMS = 16
GRID = ["--task", "mini-math", "--method", "slerp", "-t", "2", "--limit", str(ITEMS), "-n", "48", "--device", "cpu"]

LONG = [*GRID, "--limit", "100", "-n", "100"]


def main(words: list[str], log: str) -> None:
    """What the console command does, in a process of its own."""
    import torch

    from softdlm.cli.main import main as command

    torch.set_num_threads(1)
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        stream.flush()
        os.dup2(os.open(f"{log}.{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["softdlm", *words]
    command()


class Shell:
    """Starts commands as real processes, forked from one that has the heavy imports behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.started = folder, 0
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([__name__, "tests.evaluate.warm"])

    def start(self, *words: str) -> tuple[BaseProcess, str]:
        """The process, and where it logs."""
        self.started += 1
        log = str(self.folder / str(self.started))
        process = self.context.Process(target=main, args=(list(words), log), daemon=True)
        process.start()
        return process, log

    def run(self, *words: str) -> tuple[int | None, str, str]:
        process, log = self.start(*words)
        process.join(120)
        return process.exitcode, Path(f"{log}.1").read_text(), Path(f"{log}.2").read_text()


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("eval") / "llada", "llada"))


def lines(out: Path) -> dict[str, list[str]]:
    """Whole lines of every cell's file."""
    return {
        file.parent.name: [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        for file in sorted(out.glob(f"*/{SAMPLES}"))
    }


def answers(out: Path) -> dict[str, dict[str, Any]]:
    rows = {key: [json.loads(line) for line in found] for key, found in lines(out).items()}
    assert all(len({row["id"] for row in found}) == len(found) for found in rows.values())
    return {key: {row["id"]: {**row, "seconds": 0} for row in found} for key, found in rows.items()}


def wait_for_samples(out: Path, process: BaseProcess, count: int = 1) -> None:
    deadline = time.monotonic() + 60
    while process.is_alive() and sum(map(len, lines(out).values())) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def tear(out: Path) -> None:
    """Leave what a kill within a write leaves."""
    for file in out.glob(f"*/{SAMPLES}"):
        if not (file.parent / SUMMARY).exists():
            with file.open("a") as stream:
                stream.write('{"id": "mini-ma')


def test_killed_ten_times_a_run_ends_as_an_undisturbed_one(shell: Shell, model: str, tmp_path: Path) -> None:
    words = ["eval", "-m", model, *GRID, "--json", "--out"]
    code, printed, _ = shell.run(*words, str(tmp_path / "undisturbed"))
    assert code == 0
    chance, out = random.Random(), tmp_path / "out"
    before: dict[str, list[str]] = {}
    partial = 0
    for kill in range(10):
        process, _ = shell.start(*words, str(out))
        wait_for_samples(out, process, sum(map(len, before.values())) + chance.randint(0, 2))
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.join()
        done = lines(out)
        assert all(done[key][: len(found)] == found for key, found in before.items())  # nothing lost or done again
        before = done
        partial += 0 < sum(map(len, done.values())) < 2 * ITEMS
        if kill % 2:
            tear(out)
    assert partial > 0
    code, again, _ = shell.run(*words, str(out))
    assert code == 0
    done = lines(out)
    assert all(done[key][: len(found)] == found for key, found in before.items())
    assert answers(out) == answers(tmp_path / "undisturbed")
    for key in ("accuracy", "passes", "recovery", "p"):
        assert [row[key] for row in json.loads(again)["rows"]] == [row[key] for row in json.loads(printed)["rows"]]


def test_a_second_process_on_a_cell_says_so_and_stops(shell: Shell, model: str, tmp_path: Path) -> None:
    words = ["eval", "-m", model, *LONG, "--no-single", "--out", str(tmp_path)]
    first, _ = shell.start(*words)
    wait_for_samples(tmp_path, first)
    code, printed, said = shell.run(*words)
    assert first.is_alive()
    first.kill()
    assert (code, printed) == (1, "")
    assert "another process is writing" in said
    assert f"(process {first.pid} on " in said
    assert said.count("\n") == 1


def test_interrupted_it_says_how_to_go_on(shell: Shell, model: str, tmp_path: Path) -> None:
    words = ["eval", "-m", model, *LONG, "--out", str(tmp_path)]
    process, log = shell.start(*words)
    wait_for_samples(tmp_path, process)
    os.kill(process.pid or 0, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    said = Path(f"{log}.2").read_text().splitlines()[-1]
    assert said == f"stopped; every finished sample is in {tmp_path}. To go on: softdlm {' '.join(words)}"


def test_a_missing_model_costs_its_cells_and_the_exit_code(shell: Shell, model: str, tmp_path: Path) -> None:
    words = [
        "eval",
        "-m",
        f"/no/where,{model}",
        "--task",
        "either-or",
        "--method",
        "vanilla",
        "-t",
        "2",
        "--limit",
        "2",
    ]
    code, printed, said = shell.run(*words, "--device", "cpu", "--out", str(tmp_path))
    assert code == 1
    assert "softdlm: no such folder: /no/where" in said
    assert "either-or · 2 items" in printed
    assert "2 a step" in printed
    assert "1 a step" in printed
    assert len(list(tmp_path.glob(f"*/{SUMMARY}"))) == 2
    code, shown, _ = shell.run("results", str(tmp_path))
    assert code == 0
    assert all(folder.name[:8] in shown for folder in tmp_path.iterdir())
    code, shown, _ = shell.run("results", str(tmp_path), "--markdown")
    assert shown.startswith("| model | task | method | rate | items | accuracy % |")
    assert shown.count("\n") == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "slurp"], "unknown feedback rule 'slurp'; known are vanilla"),
        (["--task", "gsm9k"], "unknown task 'gsm9k': one of mini-math"),
        (["--split", "tests"], "mini-math has no split 'tests'"),
        (["-t", "1,two"], "tokens_per_step must be a number, not 'two'"),
        (["-t", "0"], "n must be at least 1, not 0"),
        (["--lam", "0.3,3"], "lam must lie in [0, 1], not 3.0"),
        (["--k", ","], "--k names nothing: ','"),
        (["--eos", "never"], "eos must be one of allow, last, forbid, forbid-first, not 'never'"),
        (["--batch-size", "0"], "batch_size must be at least 1, not 0"),
        (["--executor", "cloud"], "unknown executor 'cloud'"),
        (["--workers", "2"], "--ray-address and --workers are for --executor ray"),
        (["--recipe", "pasta"], "unknown recipe 'pasta'"),
        (["-m", "a,b", "--revision", "main"], "give a single --model"),
        (["-m", "/no/where"], "no such folder: /no/where"),
        (["-n", "5000"], "the model's context is"),
    ],
)
def test_a_bad_value_is_one_line_before_anything_is_run(
    shell: Shell, tmp_path: Path, words: list[str], message: str
) -> None:
    code, printed, said = shell.run("eval", "--limit", "2", *words, "--out", str(tmp_path / "out"))
    assert (code, printed) == (2, "")
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_said(shell: Shell, model: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    code, _, said = shell.run("eval", "-m", model, *GRID, "--out", str(tmp_path / "file"))
    assert code == 1
    assert "cannot write" in said
    assert said.count("\n") == 1


def test_the_manifest_says_what_was_run(shell: Shell, model: str, tmp_path: Path) -> None:
    words = ["--task", "either-or", "--method", "slerp", "--threshold", "0.9", "--limit", "2", "--no-single"]
    code, *_ = shell.run("eval", "-m", model, *words, "--k", "2", "--eos", "last", "--out", str(tmp_path))
    assert code == 0
    (file,) = tmp_path.glob(f"*/{MANIFEST}")
    manifest = json.loads(file.read_text())
    assert manifest["labels"] == {
        "model": model,
        "task": "either-or",
        "method": "slerp k=2 lam=0.3",
        "rate": "threshold 0.9",
    }
    assert manifest["protocol"]["decoding"] == {
        "commit": "threshold(0.9)",
        "feedback": "slerp(k=2, lam=0.3)",
        "max_new_tokens": 4,
        "eos": "last",
        "temperature": 0,
        "seed": 0,
    }
    assert manifest["sessions"][0]["batch_size"] == 1
