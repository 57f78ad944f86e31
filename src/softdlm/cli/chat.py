"""`softdlm chat`: a conversation in the terminal."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from softdlm.cli.answer import check_pause
from softdlm.cli.option_tables import DECODING, LOADING, takes
from softdlm.cli.options import Model, Raw, load_model
from softdlm.errors import UsageError

HISTORY_HELP = "Give the model what was said before. Default: yes; no for builtin, which learned from single questions."
History = Annotated[bool | None, typer.Option("--history/--no-history", help=HISTORY_HELP)]
System = Annotated[str | None, typer.Option(help="A system message before the first question.")]
Pause = Annotated[float, typer.Option(help="On a terminal: show each pass for at least so many seconds.")]


@takes(words=DECODING, loading=LOADING)
def chat(
    words: dict[str, Any], loading: dict[str, Any], model: Model = "builtin", history: History = None,
    raw: Raw = False, system: System = None, pause: Pause = 0.1,
) -> None:  # fmt: skip
    """Talk to a model, and watch each answer while it is decoded. /help lists the commands."""
    check_pause(pause)
    if raw and (history or system is not None):
        raise UsageError(f"--raw gives the model each line alone: leave out {'--history' if history else '--system'}")
    from softdlm.chat.screen import Screen

    screen = Screen(pause)
    with screen.canvas(f"loading {model} ..."):
        from softdlm.chat.conversation import Conversation
        from softdlm.chat.method import Method
        from softdlm.chat.session import Session
        from softdlm.decoding import Decoding

        Decoding.of(**words)  # what it refuses is refused before the weights are read
        remembers = model != "builtin" if history is None else history
        conversation = Conversation(load_model(model, loading), Method(words), remembers and not raw, raw, system)
        session = Session(conversation, screen)
        title = session.title
    alone = "" if conversation.remembers else " Each question stands alone."
    screen.say(f"{model}: {title}.{alone} /help lists the commands, Ctrl-D leaves.")
    raise typer.Exit(session.run())
