"""`softdlm chat` from line to line: questions, and commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from softdlm.chat.conversation import Conversation
from softdlm.chat.method import OWN, Method, described
from softdlm.chat.save import save
from softdlm.chat.screen import Interrupts, Screen, SecondInterrupt
from softdlm.engine.answer import Generation
from softdlm.errors import SoftDLMError, UsageError, one_line
from softdlm.parsing import between_commas
from softdlm.report.terminal import print_comparison, summary
from softdlm.report.words import count

MOST = 4
"""Methods that are compared at once."""
AGAIN = "Ctrl-C again, or Ctrl-D, leaves"


class Command(NamedTuple):
    usage: str
    about: str
    run: Callable[[Session, str], None]


class Session:
    """Reads lines until the last. What fails costs one line and nothing of the conversation."""

    def __init__(self, conversation: Conversation, screen: Screen) -> None:
        self.conversation, self.screen = conversation, screen
        self.leaving, self.warned, self.exit_code = False, False, 0

    def run(self) -> int:
        """The exit code: 0, or in a pipe that of the last line that failed."""
        self.screen.complete(list(COMMANDS))
        while not self.leaving:
            try:
                self._next()
            except KeyboardInterrupt as error:
                self.warned |= isinstance(error, SecondInterrupt)
                self._interrupted()
        return 0 if self.screen.interactive else self.exit_code

    def _next(self) -> None:
        try:
            line = self.screen.read()
            self.warned = False
            if line is None:
                self._leave()
            else:
                self.take(line.strip())
        except SoftDLMError as error:
            self._failed(str(error), error.exit_code)
        except OSError:
            raise  # nobody reads the answers any more
        except Exception as error:  # of a rule's file, or of the device
            self._failed(f"{type(error).__name__}: {error}", 1)

    def take(self, line: str) -> None:
        """A command or a question; `//` begins a question with a slash."""
        if line.startswith("/") and not line.startswith("//"):
            name, _, rest = line.partition(" ")
            _command(name).run(self, rest.strip())
        elif line:
            self.ask(line.removeprefix("/"))

    def ask(self, question: str) -> None:
        with Interrupts() as interrupts, self.screen.canvas("the first pass ...", interrupts.stopped) as canvas:
            watch = canvas.watch(self.conversation.model, self.title) if canvas.animated else None
            turn = self.conversation.ask(question, watch, interrupts.stopped)
        if turn.kept:
            self.screen.answer(turn.answer.text)
        if interrupts.noted:
            kept = "the text above is kept" if turn.kept else "there was no text yet, the question is dropped"
            self._stopped(f"stopped after {count(turn.answer.forwards, 'pass')}: {kept}")
        else:
            self.screen.say(summary([turn.answer], turn.seconds - canvas.paused))

    def compare(self, methods: Mapping[str, Method]) -> None:
        answers: dict[str, Generation] = {}
        seconds: dict[str, float] = {}
        with Interrupts() as interrupts, self.screen.canvas("the first pass ...", interrupts.stopped) as canvas:
            for name, method in methods.items():
                paused, watch = canvas.paused, canvas.watch(self.conversation.model, name)
                turn = self.conversation.again(method, watch if canvas.animated else None, interrupts.stopped)
                answers[name], seconds[name] = turn.answer, turn.seconds - (canvas.paused - paused)
        if interrupts.noted:
            self._stopped("stopped: nothing is compared")
            return
        self.conversation.latest = list(answers.values())
        print_comparison(self.conversation.model, answers, seconds)

    @property
    def title(self) -> str:
        return described(self.conversation.method.settled(self.conversation.model))

    def change(self, method: Method) -> None:
        """Take another method, if the model can be decoded with it."""
        method.settled(self.conversation.model)
        self.conversation.method = method
        self.screen.say(self.title)

    def _stopped(self, what: str) -> None:
        """After Ctrl-C while a question was decoded; in a pipe it leaves."""
        self.screen.say(what + (f"; {AGAIN}" if self.screen.interactive else ""))
        if not self.screen.interactive:
            raise KeyboardInterrupt
        self.warned = True

    def _interrupted(self) -> None:
        """Ctrl-C at the prompt, or a second one elsewhere; in a pipe the first leaves."""
        if not self.screen.interactive:
            self.leaving, self.exit_code = True, 130
        elif self.warned:
            self._leave()
        else:
            self.screen.say("")
            self.screen.say(AGAIN)
            self.warned = True

    def _leave(self) -> None:
        """At the prompt, whose line has no end yet."""
        self.leaving = True
        if self.screen.interactive:
            self.screen.say("")

    def _failed(self, text: str, exit_code: int) -> None:
        self.exit_code = exit_code
        self.screen.say(one_line(text), "bold")


def _command(name: str) -> Command:
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name}; known are {', '.join(COMMANDS)}; // begins a question with a slash")
    return COMMANDS[name]


def _method(session: Session, text: str) -> None:
    method = session.conversation.method
    session.change(method.own() if text == OWN else method.using(text)) if text else session.screen.say(session.title)


def _rate(session: Session, text: str) -> None:
    session.change(session.conversation.method.at(text)) if text else session.screen.say(session.title)


def _compare(session: Session, text: str) -> None:
    """By default the method at hand, vanilla and SLERP, all with the commit rule at hand."""
    here, model = session.conversation.method, session.conversation.model
    named = list(dict.fromkeys(each.strip() for each in between_commas(text) if each.strip()))
    found = {} if len(named) > 1 else {session.title: here}
    for name in named or ("vanilla", "slerp"):
        method = here.own() if name == OWN else here.using(name)
        if method.settled(model) not in [each.settled(model) for each in found.values()]:
            found[name] = method
    if not 1 < len(found) <= MOST:
        raise UsageError(f"{len(found)} methods cannot be compared: give two to {MOST} that differ, between commas")
    session.compare(found)


def _save(session: Session, text: str) -> None:
    for file in save(session.conversation.latest, Path(text).expanduser() if text else None):
        session.screen.say(f"saved {file}")


def _reset(session: Session, text: str) -> None:
    session.conversation.reset()
    session.screen.say("the conversation begins anew; the method stays")


def _help(session: Session, text: str) -> None:
    session.screen.help([(each.usage, each.about) for each in COMMANDS.values()])


def _quit(session: Session, text: str) -> None:
    session.leaving = True


COMMANDS = {
    each.usage.split()[0]: each
    for each in (
        Command(
            "/method RULES", f"A feedback rule, a commit rule, or both: slerp(k=3, lam=0.3) topn(4); or {OWN}.", _method
        ),
        Command("/rate N|RULE", "How many tokens a pass commits: 4, entropy(0.1), threshold(0.9).", _rate),
        Command("/compare [RULES, ...]", "The last question by two to four methods, and where they part.", _compare),
        Command("/save FILE", "What was decoded last: a trace (.json), or a page to look at (.html).", _save),
        Command("/reset", "Forget what was said.", _reset),
        Command("/help", "This list. Ctrl-C stops an answer; // begins a question with a slash.", _help),
        Command("/quit", "Leave, as Ctrl-D does.", _quit),
    )
}
