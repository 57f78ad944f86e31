"""The command line as a person meets it: a real process in most tests, its output, its exit code."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import softdlm
from softdlm import Alternate, EntropyBound, HardOnly, Slerp, Steps, Trace
from softdlm.cli.main import app, main
from tests.conftest import DATA, FAMILIES
from tests.tokenizers import checkpoint

SOURCE = str(Path(softdlm.__file__).parents[1])


def run(*words: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "softdlm", *words],
        capture_output=True,
        text=True,
        input=stdin if stdin is not None else "",
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "COLUMNS": "80", "PYTHONPATH": SOURCE, **env},
        timeout=120,
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: str(checkpoint(root / family, family)) for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_as_json(folders: dict[str, str], family: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run(
        "generate", "the cat", "-m", folders[family], "-n", "12", "-t", "3", "--json", "--trace", str(trace),
        "--feedback", "slerp", "--block-length", "8", "--cache", "dual", "--refresh", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["forwards"] >= 1
    assert answer["tokens_per_forward"] == pytest.approx(len(answer["ids"]) / answer["forwards"], abs=1e-4)
    assert answer["decoding"]["feedback"] == "slerp(k=3, lam=0.3)"
    assert answer["decoding"]["cache"] == "dual(refresh=2)"
    saved = Trace.load(trace)
    assert len(saved.passes) == answer["forwards"]
    assert saved.replay()[: len(answer["ids"])] == answer["ids"]


def test_generate_prints_the_text_and_says_the_rest_on_stderr(folders: dict[str, str]) -> None:
    done = run("generate", "-", "-m", folders["dream"], "-n", "8", "--method", "vanilla", stdin="the cat\n")
    assert done.returncode == 0, done.stderr
    same = json.loads(
        run("generate", "the cat", "-m", folders["dream"], "-n", "8", "--method", "vanilla", "--json").stdout
    )
    assert done.stdout == same["text"] + "\n"
    assert "passes" in done.stderr


def test_ids_need_no_tokenizer() -> None:
    done = run(
        "generate", "5, 6 7", "--ids", "-m", str(DATA / "llada2"), "--mask-id", "155", "-n", "6", "--eos-ids", "152"
    )
    assert done.returncode == 0, done.stderr
    assert all(0 <= int(token) < 160 for token in done.stdout.split())


def test_watch_shows_the_canvas_and_prints_the_answer(folders: dict[str, str]) -> None:
    words = ("generate", "the cat", "-m", folders["llada"], "-n", "8", "-t", "4")
    done = run(*words, "--watch", "--pause", "3", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm")
    assert done.returncode == 0, done.stderr
    for part in ("loading", "pass 1", "pass 2", "0 open", "committed in this pass", "open: likeliest token"):
        assert part in done.stderr
    (seconds,) = re.findall(r"([0-9.]+) s, ended", done.stderr)
    assert float(seconds) < 3  # two passes of a tiny network, without the pause between them
    plain = run(*words, "--watch", "--pause", "3000")  # nobody watches
    assert plain.stdout == done.stdout == run(*words).stdout
    assert "∎ end\n" in plain.stderr
    assert "pass 2" in plain.stderr
    assert "pass 1" not in plain.stderr


def test_watch_says_that_it_loads_before_torch_is_imported() -> None:
    code = (
        "import io, sys; from rich.console import Console; from softdlm.report.canvas import LiveCanvas\n"
        "screen = io.StringIO()\n"
        "with LiveCanvas(Console(file=screen, force_terminal=True), 'loading builtin'):\n"
        "    assert 'loading' in screen.getvalue()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": SOURCE})


def test_every_prompt_of_a_file_is_answered_in_order(folders: dict[str, str], tmp_path: Path) -> None:
    words = ("-m", folders["llada"], "-n", "8", "-t", "2", "--rank", "margin", "--temperature", "1", "--top-k", "5")
    prompts = ["the cat sat", "a", "the dog"]
    (tmp_path / "p.txt").write_text("\n".join([*prompts, ""]))
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prompt": each, "id": 1}) for each in prompts))
    plain = run("generate", "--prompts", str(tmp_path / "p.txt"), *words)
    assert plain.returncode == 0, plain.stderr
    assert plain.stderr.startswith("3 answers: ")
    lines = run("generate", "--prompts", str(tmp_path / "p.jsonl"), *words, "--json").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["prompt"] for each in found] == prompts
    assert plain.stdout == "".join(f"{each['text']}\n" for each in found)
    assert (found[0]["decoding"]["top_k"], found[0]["decoding"]["commit"]) == (5, "topn(2, rank='margin')")
    alone = json.loads(run("generate", prompts[0], *words, "--json").stdout)
    assert alone["ids"] == found[0]["ids"]


def test_the_version_and_completion() -> None:
    assert run("--version").stdout == f"softdlm {softdlm.__version__}\n"
    asked = {"_SOFTDLM_COMPLETE": "complete_bash", "COMP_WORDS": "softdlm gen", "COMP_CWORD": "1"}
    assert CliRunner().invoke(app, [], prog_name="softdlm", env=asked).stdout == "generate\n"
    assert "--show-completion" in run("--help").stdout


def test_compare_puts_methods_side_by_side(folders: dict[str, str]) -> None:
    done = run("compare", "the cat", "-m", folders["llada"], "-n", "16", "-t", "4", "--eos", "forbid")
    assert done.returncode == 0, done.stderr
    for word in ("vanilla", "euclidean", "slerp", "passes", "differs from the first at"):
        assert word in done.stdout
    wide = run("compare", "the cat", "-m", folders["llada"], "-n", "16", "-t", "4", COLUMNS="140").stdout
    assert any("vanilla" in line and "slerp" in line for line in wide.splitlines())
    rows = json.loads(
        run("compare", "the cat", "-m", folders["llada"], "-n", "16", "-t", "4", "--eos", "forbid", "--json").stdout
    )["methods"]
    assert [row["method"] for row in rows] == ["vanilla", "euclidean", "slerp"]
    assert rows[0]["differs_at"] == []
    first = rows[0]["ids"]
    for row in rows[1:]:
        assert row["differs_at"] == [i for i, (a, b) in enumerate(zip(first, row["ids"], strict=True)) if a != b]


def test_rules_inside_rules_on_the_command_line(folders: dict[str, str]) -> None:
    """A list of nested spellings, strengths that reach the inner rule, and the commit rule of a request."""
    rules = "alternate(slerp(k=1, lam=0.5), period=3), alternate(slerp), vanilla"
    words = ("the cat", "-m", folders["llada"], "-n", "12", "--commit", "hard_only(topn(4))", "--json")
    made = json.loads(run("compare", *words, "--feedback", rules, "--k", "2").stdout)["methods"]
    assert [row["method"] for row in made] == [
        "alternate(slerp(k=1, lam=0.5), period=3)",
        "alternate(slerp)",
        "vanilla",
    ]
    assert {row["forwards"] for row in made} == {3}
    done = run("generate", *words, "--feedback", "alternate(slerp(k=1, lam=0.5))")
    assert json.loads(done.stdout)["forwards"] == 3, done.stderr
    done = run("generate", *words, "--feedback", "alternate(slerp(k=1, lam=0.5)")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is not the spelling of a feedback rule" in done.stderr or "literals" in done.stderr


def test_lists_of_an_evaluation_are_rules_at_strengths() -> None:
    from softdlm.cli.evaluate import decodings

    lists = {"feedback": "alternate(slerp), alternate(slerp(k=1, lam=0.5), 3)", "lam": "0.2,0.4"}
    lists["commit"] = "hard_only(entropy(0.1)), steps(8, schedule='power')"
    made = [each.settled() for each in decodings(lists, {})]
    assert {each.rules[0] for each in made} == {HardOnly(EntropyBound(0.1)), Steps(8, "power")}
    assert {each.rules[1] for each in made} == {
        Alternate(Slerp(3, 0.2)), Alternate(Slerp(3, 0.4)), Alternate(Slerp(1, 0.5), 3),
    }  # fmt: skip
    assert len(made) == 6


def test_models_and_doctor() -> None:
    names = [row["model"] for row in json.loads(run("models", "--json").stdout)]
    assert {"builtin", "GSAI-ML/LLaDA-8B-Instruct"} <= set(names)
    shown = run("models").stdout
    assert all(name in shown for name in (*names, "<|role_end|>", "LLaDA-2", "7.1 M"))
    assert max(map(len, shown.splitlines())) <= 80
    report: dict[str, Any] = json.loads(run("doctor", "--json").stdout)
    assert {"python", "torch", "transformers", "CPU cores"} <= set(report["machine"])
    assert [row["model"] for row in report["models"]] == names
    assert "torch" in run("doctor").stdout


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "x", "-m", "nowhere"], "no such folder: nowhere"),
        (["generate", "x", "-m", "LLADA", "--lam", "2"], "lam must lie in [0, 1], not 2.0"),
        (["generate", "x", "-m", "LLADA", "--k", "0"], "k must be at least 1, not 0"),
        (["generate", "x", "-m", "LLADA", "-n", "0"], "max_new_tokens must be at least 1, not 0"),
        (["generate", "x", "-m", "LLADA", "--block-length", "0"], "block_length must be at least 1"),
        (
            ["generate", "x", "-m", "LLADA", "--eos", "never"],
            "eos must be one of allow, last, forbid, forbid-first, not 'never'",
        ),
        (["generate", "x", "-m", "LLADA", "--method", "magic"], "unknown feedback rule 'magic'; known are vanilla"),
        (["generate", "x", "-m", "LLADA", "-t", "2", "--threshold", "0.9"], "exclude each other"),
        (["generate", "a <|mdm_mask|> b", "-m", "LLADA"], "holds the mask token (id 187)"),
        (["generate", "a b", "--ids", "-m", "LLADA"], "--ids must be a number, not 'a'"),
        (["generate", "", "--raw", "-m", "DREAM"], "an empty prompt"),
        (["generate", "hello", "-m", str(DATA / "llada")], "has no tokenizer: give token ids"),
        (["generate", "x", "-m", "LLADA", "-n", "5000"], "the model's context is 4096"),
        (
            ["generate", "x", "-m", "LLADA", "--pause", "nan"],
            "--pause must be a finite number of seconds, 0 or more",
        ),
        (
            ["generate", "x", "-m", "LLADA", "--pause", "-1"],
            "0 or more, at most 3600, not -1.0",
        ),
        (
            ["generate", "x", "-m", "LLADA", "--prompts", "p.txt"],
            "answers a whole file: leave out a prompt",
        ),
        (["generate", "x", "-m", "LLADA", "--rank", "length"], "rank must be one of confidence, margin, entropy"),
        (["generate", "x", "-m", "no/where"], "; check the name, the revision and the network, or give a folder\n"),
        (["compare", "x", "-m", "LLADA", "--methods", "vanilla,magic"], "unknown feedback rule 'magic'"),
        (["compare", "x", "-m", "LLADA", "--cache", "suffix"], "unknown cache rule 'suffix'; known are prefix, dual"),
        (["generate", "x", "-m", "LLADA", "--refresh", "2"], "refresh 2 belongs to a cache: give cache as well"),
        (["compare", "x", "-m", "LLADA", "--renew", "2"], "renew 2 belongs to a cache: give cache as well"),
    ],
)
def test_errors_are_one_line_and_exit_2(
    folders: dict[str, str],
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without a process for each, which spends seconds on imports; the next test has one."""
    trace = tmp_path / "trace.json"
    words = [{"LLADA": folders["llada"], "DREAM": folders["dream"]}.get(word, word) for word in words]
    extra = ["--trace", str(trace)] if words[0] == "generate" else []
    monkeypatch.setattr(sys, "argv", ["softdlm", *words, *extra])
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == 2
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert not trace.exists()


def test_a_trace_that_cannot_be_written_is_said_before_the_work(folders: dict[str, str], tmp_path: Path) -> None:
    done = run("generate", "x", "-m", folders["llada"], "--trace", str(tmp_path / "no" / "trace.json"))
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert done.stderr.count("\n") == 1


def test_unknown_options_exit_2() -> None:
    assert run("generate", "--lamda", "0.3").returncode == 2


def test_no_color_is_honoured(folders: dict[str, str]) -> None:
    words = ("compare", "the cat", "-m", folders["llada"], "-n", "16", "-t", "4")
    assert "\x1b[" in run(*words, FORCE_COLOR="1").stdout
    assert "\x1b[3" not in run(*words, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_help_starts_fast_and_loads_nothing_heavy() -> None:
    """Within a second of Python's own start plus typer's."""

    def best(*command: str) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    assert best("-m", "softdlm", "--help") < best("-c", "import typer, rich.console") + 1
