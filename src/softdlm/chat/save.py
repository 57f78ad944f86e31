"""Files of what was decoded, by their endings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from softdlm.engine.answer import Generation
from softdlm.errors import UsageError
from softdlm.records.files import check_replaceable, write_text
from softdlm.report.player.marks import marked
from softdlm.report.player.page import data_of, named_apart, saved_page

Saver = Callable[[Sequence[Generation], Path], list[Path]]


def save(answers: Sequence[Generation], file: Path | None) -> list[Path]:
    """Write what was decoded last, and say to which files."""
    known = ", ".join(SAVERS)
    if file is None or file.suffix.lower() not in SAVERS:
        raise UsageError(f"/save takes a file that ends in {known}" + (f", not {str(file)!r}" if file else ""))
    if not answers:
        raise UsageError("nothing has been decoded yet: ask a question first")
    if not file.parent.is_dir():
        raise UsageError(f"the folder {file.parent} does not exist: make it, or choose another")
    return SAVERS[file.suffix.lower()](answers, file)


def save_traces(answers: Sequence[Generation], file: Path) -> list[Path]:
    """One trace in the file itself; several in files with numbers."""
    files = [file] if len(answers) == 1 else [file.with_stem(f"{file.stem}-{n}") for n in range(1, len(answers) + 1)]
    for each in files:
        check_replaceable(each)
    for answer, each in zip(answers, files, strict=True):
        answer.trace.save(each)
    return files


def save_page(answers: Sequence[Generation], file: Path) -> list[Path]:
    """All of them on one page that plays them and needs no server."""
    check_replaceable(file)
    traces = [marked(answer.trace) for answer in answers]
    methods = named_apart(traces, [str(number) for number in range(1, len(traces) + 1)])
    write_text(file, saved_page(data_of(methods, title=traces[0].prompt[:60])))
    return [file]


SAVERS: dict[str, Saver] = {".json": save_traces, ".html": save_page}
"""By ending. Another kind of file is one line here."""
