"""`softdlm chat` through pipes: what is said where, and what a bad line costs."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

import softdlm
from softdlm import Trace
from softdlm.chat.conversation import Conversation, check_talks
from softdlm.chat.method import Method
from softdlm.chat.screen import Interrupts, Screen, SecondInterrupt
from softdlm.chat.session import Session
from softdlm.cli.main import app
from softdlm.decoding import Decoding
from softdlm.engine.queue import Engine
from softdlm.errors import TokenizerError, UsageError
from softdlm.report.player.page import held_in
from tests.conftest import DATA
from tests.tokenizers import checkpoint

WORDS = {"max_new_tokens": 16, "eos": "forbid", "commit": "topn(4)"}
OPTIONS = ("-n", "16", "--eos", "forbid", "--commit", "topn(4)", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("chat") / "llada", "llada")


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return softdlm.load(folder, device="cpu")


def talk(folder: Path, *lines: str | bytes, options: tuple[str, ...] = (), code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of a conversation through pipes."""
    said = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    words = ["chat", "-m", str(folder), *OPTIONS, *options]
    done = CliRunner().invoke(app, words, input=said, env={"COLUMNS": "60"})
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_answers_are_those_of_generate_and_stand_alone_on_standard_output(folder: Path, model: Any) -> None:
    out, err = talk(folder, "the cat", "", "/method slerp(k=2, lam=0.4)", "the dog", "/rate 8", "/reset", "a")
    first = softdlm.generate(model, [user("the cat")], **WORDS)
    said = [user("the cat"), {"role": "assistant", "content": first.text}, user("the dog")]
    slerp = {**WORDS, "feedback": "slerp(k=2, lam=0.4)"}
    second = softdlm.generate(model, said, **slerp)
    third = softdlm.generate(model, [user("a")], **{**slerp, "commit": "topn(8)"})
    assert out == "".join(f"{each.text}\n" for each in (first, second, third))
    assert "\x1b" not in out + err
    assert [int(each) for each in re.findall(r"in (\d+) passes", err)] == [4, 4, 2]


def test_history_system_message_and_raw_text(folder: Path, model: Any) -> None:
    system = {"role": "system", "content": "be kind"}
    alone = [softdlm.generate(model, [system, user(each)], **WORDS).text for each in ("a", "b")]
    out, _ = talk(folder, "a", "b", options=("--no-history", "--system", "be kind"))
    assert out == "".join(f"{each}\n" for each in alone)
    out, _ = talk(folder, "a", "b", options=("--raw",))
    assert out == "".join(f"{softdlm.generate(model, each, chat=False, **WORDS).text}\n" for each in ("a", "b"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/methods x", "unknown command /methods; known are /method"),
        ("/method magic", "unknown rule 'magic'; feedback rules are vanilla"),
        ("/method slerp euclidean", "names two feedback rules"),
        ("/method slerp(k=0)", "k must be at least 1"),
        ("/rate 0", "must be at least 1"),
        ("/rate fast", "unknown commit rule 'fast'"),
        ("/rate -1", "is not the spelling of a commit rule"),
        ("/compare vanilla, vanilla", "give two to 4 that differ"),
        ("/compare a, b", "unknown rule 'a'"),
        ("/save", "/save takes a file that ends in .json, .html"),
        ("/save x.txt", "/save takes a file that ends in .json"),
        ("/save no/where/x.json", "the folder no/where does not exist"),
        (b"\xff", "the line is not UTF-8 text"),
        ("a <|mdm_mask|> b", "holds the mask token"),
        ("x" * 5000, "the model's context is 4096"),
    ],
)
def test_a_bad_line_costs_itself_only(
    folder: Path, line: str | bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = talk(folder, "the cat", line, "the dog", code=2)
    assert message in " ".join(err.split())
    assert (out, list(tmp_path.iterdir())) == (talk(folder, "the cat", "the dog")[0], [])


def test_a_comparison_changes_nothing_and_is_saved(folder: Path, model: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    compared = "/compare vanilla topn(2), slerp topn(8)"
    out, err = talk(folder, "the cat", compared, f"/save {file}", f"/save {tmp_path / 'run.html'}", "the dog")
    plain, _ = talk(folder, "the cat", "the dog")
    shown = out.removeprefix(plain.splitlines(keepends=True)[0]).removesuffix(plain.splitlines(keepends=True)[1])
    assert len(out) == len(shown) + len(plain)
    assert [line.split()[2:4] for line in shown.splitlines() if re.match(r"(vanilla|slerp) topn.*\d\d", line)][:2] == [
        ["8", "16"],
        ["2", "16"],
    ]
    assert "▸" in shown
    for number, words in enumerate(({"commit": "topn(2)"}, {"commit": "topn(8)", "feedback": "slerp"}), 1):
        saved, made = Trace.load(tmp_path / f"run-{number}.json"), softdlm.generate(model, "the cat", **WORDS | words)
        assert (saved.replay(), len(saved.passes)) == (made.canvas_ids, made.forwards)
        assert saved.passes[0].candidates
    assert not file.exists()
    page = held_in((tmp_path / "run.html").read_text())
    assert [each["label"] for each in page["methods"]] == ["Vanilla", "SLERP"]
    assert page["methods"][1]["trace"] == json.loads((tmp_path / "run-2.json").read_text())
    assert "the cat" in page["question"]
    assert str(tmp_path / "run-2.json") in "".join(err.split())


def test_a_model_that_cannot_talk_is_refused(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--raw", "--history"], ["--raw", "--system", "x"], ["--pause", "nan"], ["--commit", "magic"]):
        done = CliRunner().invoke(app, ["chat", "-m", "nowhere", *words])
        assert isinstance(done.exception, UsageError), words  # before the model is looked for
    done = CliRunner().invoke(app, ["chat", "-m", str(DATA / "llada"), "--device", "cpu"])
    assert isinstance(done.exception, TokenizerError)
    assert "softdlm generate --ids" in str(done.exception)
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    with pytest.raises(TokenizerError, match="has no chat template: add --raw"):
        check_talks(model, raw=False)
    check_talks(model, raw=True)


@pytest.mark.parametrize(
    ("text", "feedback", "commit"),
    [
        ("slerp", "slerp(k=2, lam=0.4)", "topn(4)"),
        ("topn(2) alternate(slerp(k=1), 3)", "alternate(slerp(k=1, lam=0.4), period=3)", "topn(2)"),
        ("lrd lrd", "lrd", "lrd"),
        ("entropy(0.1), vanilla", "vanilla", "entropy(0.1)"),
    ],
)
def test_a_method_is_a_feedback_rule_a_commit_rule_or_both(model: Any, text: str, feedback: str, commit: str) -> None:
    method = Method({**WORDS, "rank": "confidence", "feedback": "slerp", "k": 2, "lam": 0.4}).using(text)
    wanted = Decoding.of(**WORDS | {"feedback": feedback, "commit": commit}).settled(model.own)
    assert method.settled(model) == wanted
    assert method.own().settled(model) == Decoding.of(max_new_tokens=16, eos="forbid").settled(model.own)


def test_an_answer_that_is_stopped_frees_its_slot(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[Engine] = []

    class Seen(Engine):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            engines.append(self)

        def close(self, keep: bool = True) -> None:
            assert (self.busy, self.held_bytes, keep) == (False, 0, True)
            super().close(keep)

    monkeypatch.setattr("softdlm.chat.conversation.Engine", Seen)
    words = {**WORDS, "commit": "topn(1)", "block_length": 1}  # from left to right: each pass adds to the text
    talk = Conversation(model, Method(words))
    passes: list[int] = []
    turn = talk.ask("the cat", lambda step, _: passes.append(step.index), lambda: len(passes) == 5)
    assert (turn.answer.forwards, turn.answer.finish_reason, passes) == (5, "cancelled", [1, 2, 3, 4, 5])
    assert turn.answer.ids == softdlm.generate(model, "the cat", **words).ids[:5]
    assert talk.turns == [turn]
    assert not talk.ask("at once", stopped=lambda: True).kept
    assert talk.turns == [turn]
    said = [user("the cat"), {"role": "assistant", "content": turn.answer.text}, user("on")]
    assert talk.ask("on").answer.text == softdlm.generate(model, said, **words).text
    assert len(engines) == 3


def test_a_pass_that_fails_leaves_the_conversation(folder: Path, model: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Bad:\n"
        "    def __call__(self, prediction, active, context):\n        raise KeyError('mine')\n"
    )
    out, err = talk(folder, f"/rate {tmp_path / 'bad.py'}:Bad", "the dog", "/rate topn(4)", "the cat", code=1)
    assert "KeyError: 'mine'\n" in err
    assert out == softdlm.generate(model, "the cat", **WORDS).text + "\n"


@pytest.mark.parametrize(
    ("events", "read"),
    [
        ([KeyboardInterrupt(), KeyboardInterrupt(), "never"], 2),
        ([KeyboardInterrupt(), "", KeyboardInterrupt(), None], 4),
        ([SecondInterrupt(), "never"], 1),
    ],
)
def test_a_second_interrupt_leaves(model: Any, events: list[Any], read: int) -> None:
    screen = MagicMock(spec=Screen, interactive=True)
    screen.read.side_effect = events
    assert Session(Conversation(model, Method(WORDS)), screen).run() == 0
    assert screen.read.call_count == read
    screen.answer.assert_not_called()


def test_two_slashes_begin_a_question_with_one(model: Any) -> None:
    session = Session(Conversation(model, Method(WORDS)), Screen())
    session.take("//a")
    assert [turn.question for turn in session.conversation.turns] == ["/a"]


def test_the_first_interrupt_is_noted_and_the_second_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.stopped()
        with pytest.raises(SecondInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_the_help_names_every_command(folder: Path) -> None:
    _, err = talk(folder, "/help")
    assert max(map(len, err.splitlines()[1:])) <= 60
    for word in ("/method", "/rate", "/compare", "/save", "/reset", "/help", "/quit"):
        assert word in err
    assert talk(folder, "/quit", "the cat")[0] == ""
