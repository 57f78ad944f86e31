"""Whatever can be typed, piped or found on disk is one line and an exit code: 2 for what was asked, 1 for the rest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.main import get_command

import softdlm
from softdlm import PromptError, UsageError
from softdlm.cli.main import app, main
from softdlm.train.loop import METRICS
from tests.cli.test_main import SOURCE
from tests.conftest import tiny
from tests.tokenizers import checkpoint

HUGE = "9" * 30


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(checkpoint(tmp_path_factory.mktemp("model") / "llada", "llada"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in: a file, a folder, a pipe, and files that are damaged."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{\0")
    (tmp_path / "cells" / "cell").mkdir(parents=True)
    (tmp_path / "cells" / "cell" / "manifest.json").write_bytes(b"\xff\xfe{")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit code and the one line on standard error."""
    monkeypatch.setattr(sys, "argv", ["softdlm", *words])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("softdlm: ")
    return ended.value.code, err


@pytest.mark.usefixtures("unchecked", "place")
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["generate", "a\udcff", "-m", "MODEL"], 2, "the prompt is not UTF-8 text: it holds '\\udcff'"),
        (["generate", "x", "-m", "MODEL", "-t", HUGE], 2, "tokens_per_step must be a whole number of at most 64 bits"),
        (["generate", "x", "-m", "MODEL", "--block-length", HUGE], 2, "block_length must be a whole number of at most"),
        (["generate", "x", "-m", "MODEL", "--commit", f"topn({HUGE})"], 2, "must be a whole number of at most 64 bits"),
        (["generate", "x", "-m", "MODEL", "--cache", "dual", "--refresh", HUGE], 2, "refresh must be a whole number"),
        (["generate", "x", "-m", "MODEL", "--pause", "inf"], 2, "--pause must be a finite number"),
        (["generate", "x", "-m", "MODEL", "--device", "meta"], 2, "device 'meta' cannot be used here"),
        (["generate", "x", "-m", "MODEL", "--device", "cuda:99"], 2, "device 'cuda:99' was asked for"),
        (["generate", "x", "-m", "MODEL", "--dtype", "float8_e4m3fn"], 2, "not 'float8_e4m3fn'"),
        (["generate", "x", "-m", "~nobody-of-this-name/x"], 2, "no such folder: ~nobody-of-this-name/x"),
        (["generate", "x", "-m", "MODEL", "--temperature", "1e-40"], 2, "must be 0 or at least 1e-06, not 1e-40"),
        (["generate", "x", "-m", "MODEL", "--trace", "folder"], 1, "cannot write folder: it exists and is not a"),
        (["generate", "--prompts", "pipe", "-m", "MODEL"], 2, "pipe"),
        (["analyze", "joint", "--batch-size", "0"], 2, "batch_size must be at least 1, not 0"),
        (["analyze", "joint", "-m", "MODEL", "--limit", "0"], 2, "--limit must be at least 1, not 0"),
        (["analyze", "joint", "--out", "folder"], 1, "cannot write folder: Is a directory"),
        (["analyze", "agreement", "-m", "MODEL", "-n", "0"], 2, "max_new_tokens must be at least 1, not 0"),
        (["bench", "--out", "file", "--device", "cpu"], 1, "cannot write file: File exists"),
        (["train", "--out", "file", "--recipe", "toy", "--device", "cpu"], 1, "cannot write file: File exists"),
        (["redraw", "deep.json"], 2, "deep.json cannot be read: JSON that is nested too deep"),
        (["redraw", "bytes.json"], 2, "bytes.json cannot be read: 'utf-8' codec"),
        (["redraw", "pipe"], 1, "pipe is not a regular file"),
        (["results", "cells"], 1, "manifest.json cannot be read"),
        (["results", "file"], 2, "file holds no results"),
        (["eval", "-m", "MODEL", "--plot", "folder/x.svg/y.svg", "--out", "file"], 1, "cannot write file: File exists"),
    ],
)
def test_one_line_and_an_exit_code(
    words: list[str], code: int, message: str, model: str, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    found, line = said([model if word == "MODEL" else word for word in words], monkeypatch, capfd)
    assert (found, message in line) == (code, True), line


VERBS = [each.name for each in get_command(app).commands.values()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        *(
            ([verb, "--xyzzy"], f"no such option: --xyzzy; see softdlm {verb} --help")
            for verb in VERBS
            if verb != "analyze"
        ),
        (["analyze", "joint", "--xyzzy"], "no such option: --xyzzy; see softdlm analyze joint --help"),
        (["generate", "x", "--feedbck", "slerp"], "no such option: --feedbck (Possible options: --feedback, "),
        (["generate", "x", "-t", "abc"], "for '--tokens-per-step' / '-t': Input should be a valid integer"),
        (["generate", "x", "--eos"], "option '--eos' requires an argument; see softdlm generate --help"),
        (["genrate", "x"], "no such command 'genrate'. Did you mean 'generate'? See softdlm --help"),
        (["analyze", "jont"], "no such command 'jont'. Did you mean 'joint'? See softdlm analyze --help"),
        (["train"], "missing option '--out'; see softdlm train --help"),
        (["eval", "builtin"], "got unexpected extra argument(s) (builtin); see softdlm eval --help"),
    ],
    ids=lambda it: " ".join(it) if isinstance(it, list) else "",
)
def test_what_the_parser_refuses_is_one_line_too(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, line = said(words, monkeypatch, capfd)
    assert (code, message in line) == (2, True), line


@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_a_device_that_is_not_there_is_said_so(device: str) -> None:
    if torch.accelerator.is_available() and torch.accelerator.current_accelerator() == torch.device(device):
        pytest.skip(f"{device} is here")
    with pytest.raises(UsageError, match=rf"device '{device}' cannot be used here \("):
        softdlm.load("builtin", device=device)


@pytest.mark.parametrize(
    ("stdin", "message"), [(None, "no prompt: give one"), (b"a\xff", "on standard input is not UTF-8 text")]
)
def test_standard_input_may_be_closed_or_hold_anything(
    stdin: bytes | None, message: str, model: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin and io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
    code, line = said(["generate", "-m", model], monkeypatch, capfd)
    assert (code, message in line) == (2, True), line


def test_standard_output_may_be_full(model: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "softdlm", "models", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, env={"PYTHONPATH": SOURCE}, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "softdlm: [Errno 28] No space left on device: make room or choose another place\n"


def test_what_a_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    monkeypatch.setattr(sys, "argv", ["softdlm", "models"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert b"builtin" in shown.getvalue()


@pytest.mark.parametrize("debug", [False, True])
def test_debug_shows_where_a_mistake_is(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("\x1b[31mnought")

    monkeypatch.setattr("softdlm.cli.main.app", fail)
    monkeypatch.setattr(sys, "argv", ["softdlm", *(["--debug"] if debug else []), "models"])
    with pytest.raises(SystemExit) as ended:
        main()
    lines = capfd.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert lines[-1].startswith(r"softdlm: ZeroDivisionError: \x1b[31mnought: this is a mistake in softdlm")
    assert (len(lines) > 1) == debug


def test_a_vocabulary_that_is_forbidden_as_a_whole_is_refused() -> None:
    model = tiny("llada")
    with pytest.raises(UsageError, match="every token of the vocabulary is forbidden: leave one"):
        softdlm.generate(model, [5, 6], max_new_tokens=4, forbid=tuple(range(len(model.embedding))))
    some = [token for token in range(len(model.embedding)) if token not in (7, model.mask_id)]
    assert set(softdlm.generate(model, [5, 6], max_new_tokens=4, forbid=tuple(some)).canvas_ids) == {7}


def test_text_that_is_no_text_is_refused(model: str) -> None:
    with pytest.raises(PromptError, match="the prompt is not UTF-8 text"):
        softdlm.generate(softdlm.load(model, device="cpu"), "a\ud800", max_new_tokens=2)


def test_a_training_that_ended_before_its_first_state_can_be_begun_again(tmp_path: Path) -> None:
    """Without --resume it starts over, as --resume says."""
    from tests.train.test_training import SMALL, quiet_run, train

    (tmp_path / METRICS).write_text(json.dumps({"step": 1})[:-3])
    with pytest.raises(UsageError, match=r"nothing to resume: .* leave out --resume to start"):
        train(SMALL, quiet_run(tmp_path, resume=True))
    train(SMALL, quiet_run(tmp_path))
    with pytest.raises(UsageError, match="is not empty: give another --out"):
        train(SMALL, quiet_run(tmp_path))
