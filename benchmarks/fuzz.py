"""Hostile input for a while: damaged checkpoints and journals, and command lines of options with edge values.

    python benchmarks/fuzz.py [--seconds 60] [--seed 0] [--only checkpoints,journals,commands]

Everything must work or be refused with one line. What does not is printed with what repeats it, and the exit code is 1.
The damages are those of tests/damage.py, of which the tests try a part.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import typer.main

import softdlm
from softdlm.cli.main import app, main
from softdlm.errors import SoftDLMError
from softdlm.records.journal import SAMPLES, Journal
from tests.conftest import IDS
from tests.damage import command_lines, damaged_lines, damages, whole
from tests.evaluate.cells import sample
from tests.tokenizers import checkpoint

PATIENCE = 30
"""Seconds after which an input counts as one that never ends."""
VERBS: dict[str, tuple[str, ...]] = {
    "generate": ("hello", "-n", "8", "-m", "MODEL"),
    "compare": ("hello", "-n", "8", "-m", "MODEL"),
    "eval": ("-m", "MODEL", "--limit", "1", "-n", "4", "-t", "4", "--no-single", "--task", "either-or"),
    "analyze joint": (),
    "analyze agreement": ("-m", "MODEL", "--limit", "1", "-n", "4"),
    "results": (),
    "redraw": ("data.json",),
}
Finding = tuple[str, str]
"""What repeats it, and what it did."""


def attempt(what: Callable[[], object]) -> str:
    """What is wrong with how this ends; empty where it works or is refused with one line."""
    signal.alarm(PATIENCE)
    try:
        what()
    except SoftDLMError as error:
        return "" if str(error).isprintable() else f"a message of several lines: {error!r}"
    except TimeoutError:
        return f"does not end within {PATIENCE} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    finally:
        signal.alarm(0)
    return ""


def checkpoints(draw: random.Random) -> Iterator[Finding]:
    """Every damage once, in any order, then a second one on top."""
    families = ("llada", "dream", "llada2", "llada-sharded")
    known = [(family, damage) for family in families for damage in damages(family)]
    draw.shuffle(known)
    for number in range(2 * len(known)):
        family, first = known[number % len(known)]
        chosen = [first] if number < len(known) else [first, draw.choice(damages(family))]
        with tempfile.TemporaryDirectory() as place:
            folder = whole(Path(place) / "it", family)
            for damage in chosen:
                with contextlib.suppress(OSError, ValueError, AttributeError, StopIteration):  # the first left nothing
                    damage.do(folder)
            ids = IDS[family.removesuffix("-sharded")]
            yield f"{family}: {[each.name for each in chosen]}", attempt(lambda f=folder, i=ids: _use(f, **i))


def _use(folder: Path, **ids: object) -> None:
    model = softdlm.load(folder, device="cpu", **ids)  # type: ignore[arg-type]
    if len(model.embedding) > 7 and (model.max_length or 0) > 8:
        softdlm.generate(model, [5, 6], max_new_tokens=4)


def journals(draw: random.Random) -> Iterator[Finding]:
    """A journal with one fault, opened and continued."""
    asked = {"a": "p", "b": "p", "c": "p"}
    while True:
        number = draw.randrange(10**9)
        with tempfile.TemporaryDirectory() as place:
            with Journal(Path(place), {"a": 1}, {}) as journal:
                journal.begin({})
                for item in asked:
                    journal.append(sample(item, text=f"{item}\n\u2028"))
            file = Path(place) / SAMPLES
            file.write_bytes(damaged_lines(file.read_bytes(), number))
            yield f"journal {number}", attempt(lambda place=place: _continue(Path(place), asked))


def _continue(folder: Path, asked: dict[str, str]) -> None:
    with Journal(folder, {"a": 1}, {}, asked) as journal:
        journal.begin({})
        for item in asked.keys() - journal.samples.keys():
            journal.append(sample(item))


def commands(draw: random.Random) -> Iterator[Finding]:
    """Command lines, each in a process of its own that has everything loaded."""
    found = typer.main.get_command(app)
    with tempfile.TemporaryDirectory() as place:
        model = str(checkpoint(Path(place) / "model", "llada"))
        Path(place, "data.json").write_text("{}")
        softdlm.evaluate(model, "either-or", {"tokens_per_step": 4}, limit=1, out=Path(place) / "results")  # loads all
        while True:
            verb = draw.choice(sorted(VERBS))
            command = found
            for word in verb.split():
                command = command.commands[word]  # type: ignore[attr-defined]
            words = command_lines(verb, command, draw, VERBS[verb])
            yield f"softdlm {words}", _in_a_child([model if word == "MODEL" else word for word in words], Path(place))


def _in_a_child(words: list[str], place: Path) -> str:
    """What is wrong with how a command line ends."""
    said = place / "said"
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        os.chdir(place)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        sys.argv = ["softdlm", *words]
        code = 70
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    text = said.read_text(errors="replace")
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}"
    bad = "Traceback" in text or "a mistake in softdlm" in text or os.WEXITSTATUS(status) not in (0, 1, 2)
    return text.strip().splitlines()[-1][:300] if bad and text.strip() else f"exit {status}" if bad else ""


KINDS = {"checkpoints": checkpoints, "journals": journals, "commands": commands}


def fuzz(seconds: float, seed: int, only: list[str]) -> int:
    """Share the time among the kinds; the number of findings."""
    torch.set_num_threads(1)
    wrong = 0
    for kind in only:
        end, tried, before = time.monotonic() + seconds / len(only), 0, wrong
        for repeats, fault in KINDS[kind](random.Random(seed)):
            tried += 1
            if fault:
                wrong += 1
                print(f"{kind}: {repeats}: {fault}", flush=True)
            if time.monotonic() > end:
                break
        print(f"{kind}: {tried} inputs, {wrong - before} wrong", flush=True)
    return wrong


def _too_late(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS))
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGALRM, _too_late)
    sys.exit(1 if fuzz(given.seconds, given.seed, given.only.split(",")) else 0)
