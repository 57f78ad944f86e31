"""Hostile input for a while: damaged checkpoints and journals, and command lines of options with edge values.

    python benchmarks/fuzz.py [--seconds 60] [--seed 0] [--only checkpoints,journals,commands]

Everything must work or be refused with one line. What does not is printed with what repeats it, and the exit code is 1.
The damages are those of tests/damage.py, of which the tests try a part; benchmarks/reliability.py counts them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import typer.main

import softdlm
from softdlm.cli.main import app, main
from softdlm.errors import CheckpointError, SoftDLMError
from softdlm.models.weights import digest
from softdlm.records.journal import SAMPLES, Journal, read_samples
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


class End(NamedTuple):
    """How an input ended: worked, refused, or one of the ways that must not be (traceback, hang, garbage)."""

    kind: str
    words: str = ""

    @property
    def fine(self) -> bool:
        return self.kind in ("worked", "refused")


Finding = tuple[str, End]
"""What repeats it, and how it ended."""


class Garbage(Exception):
    """Something was accepted in silence that had to be refused."""


def attempt(what: Callable[[], str]) -> End:
    """How this ends; `what` returns a remark on what worked."""
    signal.alarm(PATIENCE)
    try:
        return End("worked", what())
    except SoftDLMError as error:
        return End("refused" if str(error).isprintable() else "traceback", str(error))
    except Garbage as error:
        return End("garbage", str(error))
    except TimeoutError:
        return End("hang", f"does not end within {PATIENCE} s")
    except BaseException as error:
        return End("traceback", f"{type(error).__name__}: {str(error)[:200]!r}")
    finally:
        signal.alarm(0)


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
                if not all(stat.S_ISREG(each.lstat().st_mode) or each.is_dir() for each in folder.rglob("*")):
                    break  # a second damage would read the pipe or device that the first left
                with contextlib.suppress(Exception):  # what the first left may be beyond damaging
                    damage.do(folder)
            yield f"{family}: {[each.name for each in chosen]}", attempt(lambda f=folder, of=family: _use(f, of))


def _use(folder: Path, family: str) -> str:
    """Load and generate. Other values that a network may have cannot be told from its own, unless its digest is known:
    then they must be refused.
    """
    ids: dict[str, Any] = IDS[family.removesuffix("-sharded")]
    right, text = undamaged(family)
    model = softdlm.load(folder, device="cpu", **ids)
    made = _text(model)
    if any(token == model.mask_id or not 0 <= token < len(model.embedding) for token in made):
        raise Garbage(f"an answer of {made}")
    if made == text:
        return ""
    try:
        softdlm.load(folder, device="cpu", digest=right, **ids)
    except CheckpointError:
        return "another text, and refused by its digest"
    raise Garbage(f"{made} in place of {text}, though the digest was given")


def _text(model: Any) -> tuple[int, ...]:
    if len(model.embedding) > 7 and (model.max_length or 0) > 8:
        return tuple(softdlm.generate(model, [5, 6], max_new_tokens=4).ids)
    return ()


@cache
def undamaged(family: str) -> tuple[str, tuple[int, ...]]:
    """The digest and the answer of a whole checkpoint."""
    with tempfile.TemporaryDirectory() as place:
        folder = whole(Path(place) / "it", family)
        return digest(folder), _text(softdlm.load(folder, device="cpu", **IDS[family.removesuffix("-sharded")]))


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
            before = read_samples(file)[0]
            file.write_bytes(damaged_lines(file.read_bytes(), number))
            yield f"journal {number}", attempt(lambda place=place, before=before: _continue(Path(place), asked, before))


def _continue(folder: Path, asked: dict[str, str], before: dict[str, Any]) -> str:
    """Every item must be there once in the end. A line that is whole but says something else cannot be told."""
    with Journal(folder, {"a": 1}, {}, asked) as journal:
        journal.begin({})
        kept = dict(journal.samples)
        for item in asked.keys() - kept.keys():
            journal.append(sample(item))
    if read_samples(folder / SAMPLES)[0].keys() != asked.keys():
        raise Garbage("items are missing or foreign")
    return "" if kept.items() <= before.items() else "a line with other values of the right types"


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


def _in_a_child(words: list[str], place: Path) -> End:
    """How a command line ends."""
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
        late = os.WTERMSIG(status) == signal.SIGALRM
        return End("hang" if late else "traceback", f"ended by signal {os.WTERMSIG(status)}")
    last = text.strip().splitlines()[-1][:300] if text.strip() else f"exit {os.WEXITSTATUS(status)}, without a word"
    if "Traceback" in text or "a mistake in softdlm" in text or os.WEXITSTATUS(status) not in (0, 1, 2):
        return End("traceback", last)
    if os.WEXITSTATUS(status) == 0:
        return End("worked")
    return End("refused" if last.startswith("softdlm: ") else "traceback", last)


KINDS = {"checkpoints": checkpoints, "journals": journals, "commands": commands}


def fuzz(seconds: float, seed: int, only: list[str]) -> int:
    """Share the time among the kinds; the number of findings."""
    torch.set_num_threads(1)
    wrong = 0
    for kind in only:
        until, tried, before = time.monotonic() + seconds / len(only), 0, wrong
        for repeats, end in KINDS[kind](random.Random(seed)):
            tried += 1
            if not end.fine:
                wrong += 1
                print(f"{kind}: {repeats}: {end.kind}: {end.words}", flush=True)
            if time.monotonic() > until:
                break
        print(f"{kind}: {tried} inputs, {wrong - before} wrong", flush=True)
    return wrong


def patient() -> None:
    """Offline, and with an alarm that `attempt` understands."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    signal.signal(signal.SIGALRM, _too_late)


def _too_late(*_: object) -> None:
    raise TimeoutError


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS))
    given = parser.parse_args()
    patient()
    sys.exit(1 if fuzz(given.seconds, given.seed, given.only.split(",")) else 0)
