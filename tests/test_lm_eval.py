"""`python -m softdlm.lm_eval`: lm-eval's command line with our model, tasks and cache keys."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BENCHMARKS
from tests.evaluate.harness_runs import folder

FLAGS = ["--apply_chat_template", "--fewshot_as_multiturn", "false", "--log_samples", "--limit", "3"]
ITEMS = 3
Run = Callable[..., int]


class Interrupted(Exception):
    pass


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process, without indexing lm-eval's own tasks; counts the answers decoded.

    `stop` interrupts the run when that many have been. The task is Dream's, whose answers are drawn at random.
    """
    import lm_eval.tasks

    from softdlm.evaluate import harness
    from softdlm.lm_eval import main

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", partial(lm_eval.tasks.TaskManager, include_defaults=False))
    monkeypatch.setenv("SOFTDLM_DATA", str(BENCHMARKS))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    def once(*arguments: str, stop: int | None = None, as_json: bool = False, **words: Any) -> int:
        decoded = 0

        def counted(*given: Any, **options: Any) -> Any:
            nonlocal decoded
            if decoded == stop:
                raise Interrupted
            decoded += 1
            return generate(*given, **options)

        said = {"pretrained": folder("dream"), "max_new_tokens": 8, "commit": "topn(4)", **words}
        model_args = json.dumps(said) if as_json else ",".join(f"{name}={value}" for name, value in said.items())
        command = ["softdlm.lm_eval", "--tasks", "softdlm_gsm8k_dream", "--model_args", model_args, *FLAGS, *arguments]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(harness, "generate", counted)
            patch.setattr(sys, "argv", command)
            main()
        return decoded

    generate = harness.generate
    return once


def texts(output: Path) -> list[str]:
    (file,) = output.rglob("samples_*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row["resps"][0][0] for row in sorted(rows, key=lambda row: row["doc_id"])]


def test_methods_never_share_answers_and_runs_resume(run: Run, tmp_path: Path) -> None:
    cache = ["--use_cache", str(tmp_path / "answers")]
    with pytest.raises(Interrupted):
        run("--output_path", str(tmp_path / "none"), *cache, feedback="slerp", lam=0.3, stop=2)
    assert run("--output_path", str(tmp_path / "resumed"), *cache, feedback="slerp", lam=0.3) == ITEMS - 2
    assert run("--output_path", str(tmp_path / "other"), *cache, feedback="slerp", lam=0.7) == ITEMS
    assert run("--output_path", str(tmp_path / "again"), *cache, feedback="slerp", lam=0.3) == 0
    assert run("--output_path", str(tmp_path / "fresh"), feedback="slerp", lam=0.3) == ITEMS
    assert texts(tmp_path / "resumed") == texts(tmp_path / "again") == texts(tmp_path / "fresh")
    assert len(list(tmp_path.glob("answers-*_rank0.db"))) == 2


def test_errors_of_ours_are_one_line_and_exit_2(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run("--output_path", str(tmp_path), "--use_cache", str(tmp_path / "x"), metod="slerp")
    assert exit_.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("softdlm: unknown model_args metod")


def test_rules_with_several_parameters_are_given_as_words_or_as_json(run: Run, tmp_path: Path) -> None:
    cache = ["--use_cache", str(tmp_path / "answers")]
    run("--output_path", str(tmp_path / "words"), feedback="slerp", k=2, lam=0.9)
    run("--output_path", str(tmp_path / "json"), *cache, as_json=True, feedback="slerp(k=2, lam=0.9)")
    assert run("--output_path", str(tmp_path / "again"), *cache, as_json=True, feedback="slerp(k=2, lam=0.9)") == 0
    assert texts(tmp_path / "words") == texts(tmp_path / "json")


def adapted(tmp_path: Path, file: str = "", **flags: Any) -> argparse.Namespace:
    from softdlm.lm_eval import adapt

    config = None
    if file:
        config = tmp_path / "config.yaml"
        config.write_text(file)
    arguments = argparse.Namespace(config=config, model=None, model_args=None, device=None, use_cache=None)
    arguments.include_path = None
    vars(arguments).update(flags)
    adapt(arguments)
    return arguments


def test_the_command_fills_in_model_device_and_tasks(tmp_path: Path) -> None:
    from softdlm.evaluate.benchmark_data import TASKS

    plain = adapted(tmp_path)
    assert (plain.model, plain.model_args) == ("softdlm", {"pretrained": "builtin"})
    assert plain.device in ("cpu", "cuda")
    assert plain.include_path == [str(TASKS)]
    theirs = adapted(tmp_path, model="hf", include_path="/mine", use_cache="answers", model_args={"pretrained": "gpt2"})
    assert theirs.include_path == [str(TASKS), "/mine"]
    assert (theirs.use_cache, theirs.device, theirs.model_args) == ("answers", None, {"pretrained": "gpt2"})


def test_a_configuration_file_is_heard(tmp_path: Path) -> None:
    file = "use_cache: answers\ndevice: cpu\nmodel_args: 'lam=0.1,k=2'\ninclude_path: [/a, /b]\n"
    ours = adapted(tmp_path, file)
    assert ours.model_args == {"pretrained": "builtin", "lam": 0.1, "k": 2}
    assert ours.use_cache.startswith("answers-")
    assert ours.include_path[1:] == ["/a", "/b"]
    assert adapted(tmp_path, file, model_args={"lam": 0.3, "k": 2}).use_cache != ours.use_cache


def test_the_real_command_lists_and_runs(tmp_path: Path) -> None:
    """A process of its own, offline, with lm-eval's whole index."""
    model_args = f"pretrained={folder('dream')},max_new_tokens=4,feedback=slerp,k=2,lam=0.3,commit=topn(4)"
    flags = ["--apply_chat_template", "--log_samples", "--limit", "1", "--output_path", str(tmp_path)]
    tasks = ["--tasks", "softdlm_gsm8k_dream", "--model_args", model_args]
    done = subprocess.run(
        [sys.executable, "-m", "softdlm.lm_eval", "run", *tasks, *flags],
        env={**os.environ, "SOFTDLM_DATA": str(BENCHMARKS), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|softdlm_gsm8k_dream|" in done.stdout
    (results,) = tmp_path.rglob("results_*.json")
    assert json.loads(results.read_text())["config"]["softdlm"]["decoding"]["commit"] == "topn(4)"
    (samples,) = tmp_path.rglob("samples_*.jsonl")
    prompt = json.loads(samples.read_text())["arguments"]["gen_args_0"]["arg_0"]
    assert prompt.endswith("How many pens has she?\nA:<|im_end|>\n<|im_start|>assistant\n")
