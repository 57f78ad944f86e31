"""The page at /, its files, and what it asks of the server besides answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from softdlm import registry
from softdlm.errors import UsageError
from softdlm.models.own_settings import RECOMMENDED, OwnSettings
from softdlm.records.files import read_input
from softdlm.report.player import page
from softdlm.serve.refusals import Refusal
from softdlm.trace import LARGEST

PAGE_PATHS = ("/", "/page/saved.html", *(f"/page/{name}" for name in page.files()))
"""What a browser loads before it can be given a key: the program, and nothing of the model or its users."""
HEADERS = {
    "Content-Security-Policy": page.SERVED_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TRACE_NAME = re.compile(r"[\w-][\w.-]{0,120}\.json", re.ASCII)
RATE = "topn(4)"


def add_page(app: FastAPI, traces: Path | None = None) -> None:
    """`traces`: a folder whose trace files can be linked to, as /?trace=traces/NAME.json."""
    bodies = {name: file.read_bytes() for name, file in page.files().items()}
    index, frame = page.index().encode(), page.saved_page(None).encode()

    @app.get("/", include_in_schema=False)
    async def at_root() -> Response:
        return Response(index, media_type="text/html; charset=utf-8", headers=HEADERS)

    @app.get("/page/saved.html", include_in_schema=False)
    async def saved_frame() -> Response:
        """As plain text: it is filled and saved by the page, and not to be opened here."""
        return Response(frame, media_type="text/plain; charset=utf-8", headers=HEADERS)

    @app.get("/page/settings.json", include_in_schema=False)
    async def settings() -> Any:
        service = app.state.service
        return {"model": service.names[0], **settings_of(service.worker.model.own)}

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in bodies:
            raise Refusal(404, f"the page has no file {name!r}")
        kind = page.KINDS[Path(name).suffix]
        return Response(bodies[name], media_type=f"{kind}; charset=utf-8", headers=HEADERS)

    @app.get("/traces/{name}", include_in_schema=False)
    def trace(name: str) -> Response:
        """A file of the operator's folder; a name cannot lead out of it."""
        if traces is None or not _TRACE_NAME.fullmatch(name):
            raise Refusal(404, "no such trace: the server was started without --traces, or the name is no NAME.json")
        try:
            data = read_input(traces / name, LARGEST)
        except UsageError:
            raise Refusal(404, f"there is no trace {name}") from None
        return Response(data, media_type="application/json", headers=HEADERS)


def settings_of(own: OwnSettings) -> dict[str, Any]:
    """The presets of the form; the rules that a method can name; the length of an answer."""
    k, lam = own.k or 3, own.lam or 0.3
    rules = {"Vanilla": "vanilla", "SLERP": f"slerp(k={k}, lam={lam})", "Euclidean": f"euclidean(k={k}, lam={lam})"}
    tuned = own if own.feedback or own.commit else RECOMMENDED
    name = "The model's own" if tuned is own else "Recommended"
    presets = [{"name": each, "feedback": rule, "commit": RATE} for each, rule in rules.items()]
    return {
        "presets": [*presets, {"name": name, "feedback": tuned.feedback or "", "commit": tuned.commit or ""}],
        "shown": ["Vanilla", "SLERP", name],
        "feedback": list(registry.names("feedback")),
        "commit": ["topn(1)", "topn(2)", "topn(4)", "topn(8)", "entropy(0.1)", "threshold(0.9)"],
        "max_new_tokens": own.max_new_tokens or 128,
    }
