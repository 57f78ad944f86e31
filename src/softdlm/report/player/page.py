"""The page as the server gives it, and as one file that holds its traces and fetches nothing."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from softdlm.errors import UsageError
from softdlm.report.player.marks import marked
from softdlm.trace import Trace

ASSETS = Path(__file__).parent
KINDS = {".js": "text/javascript", ".css": "text/css"}
"""Files that the page loads, by their ending."""
NAMES = {"vanilla": "Vanilla", "slerp": "SLERP", "euclidean": "Euclidean"}
"""What rules are called in headings."""
SHARED = "object-src 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
SERVED_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    f"frame-ancestors 'none'; {SHARED}"
)
"""Content security policy of the served page: no inline script, and text never becomes markup."""
_HEAD = '<link rel="stylesheet" href="page/page.css">\n<script type="module" src="page/main.js"></script>\n'
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<name>\w+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


@dataclass(frozen=True)
class Method:
    """One answer on the page."""

    label: str
    trace: Trace

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "trace": self.trace.to_json()}


def files() -> dict[str, Path]:
    """What the served page loads, by name."""
    return {file.name: file for file in sorted(ASSETS.iterdir()) if file.suffix in KINDS}


def index() -> str:
    return (ASSETS / "index.html").read_text(encoding="utf-8")


def data_of(methods: Sequence[Method], title: str = "", note: str = "") -> dict[str, Any]:
    """What a saved page holds."""
    question = next((each.trace.prompt for each in methods), "")
    listed = [each.to_json() for each in methods]
    return {"softdlm_page": 1, "title": title, "question": question, "note": note, "methods": listed}


def saved_page(data: Any) -> str:
    """One file with the page's style, script and data; None for a frame whose data is filled in later."""
    style, script = (ASSETS / "page.css").read_text(encoding="utf-8"), bundle()
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; {SHARED}"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n'
    held = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    tail = f'<script type="application/json" id="traces">{held}</script>\n<script type="module">{script}</script>\n'
    page = index().replace(_HEAD, head)
    return page.replace("</body>", f"{tail}</body>")


def held_in(page: str) -> Any:
    """The data of a saved page."""
    return json.loads(page.split('<script type="application/json" id="traces">')[1].split("</script>")[0])


def bundle() -> str:
    """The modules as one, each before those that import it. They import names of each other, and nothing else."""
    return "".join(_EXPORT.sub("", _IMPORT.sub("", _module(name))) for name in _in_order("main.js"))


def _in_order(name: str, seen: set[str] | None = None) -> Iterator[str]:
    seen = set() if seen is None else seen
    seen.add(name)
    for found in _IMPORT.finditer(_module(name)):
        if found["name"] not in seen:
            yield from _in_order(found["name"], seen)
    yield name


def _module(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def label_of(trace: Trace) -> str:
    """What a trace's method is called: the name of its feedback rule, without numbers (as in files.js)."""
    rule = str(trace.method.get("feedback", ""))
    short = re.sub(r"\(\w+=[^(),]*\)", "", re.sub(r", \w+=[^(),]*", "", rule))
    return NAMES.get(rule.partition("(")[0], short or "Answer")


def read_methods(files: Sequence[Path]) -> list[Method]:
    """Traces from files, with their equations checked. Methods of one name are told apart by their files."""
    traces = [marked(Trace.load(file)) for file in files]
    for file, trace in zip(files, traces, strict=True):
        if not trace.passes:
            raise UsageError(f"{file} holds no passes: there is nothing to show")
    return named_apart(traces, [file.stem for file in files])


def named_apart(traces: Sequence[Trace], marks: Sequence[str]) -> list[Method]:
    """Each by its feedback rule; those of one rule also by their marks."""
    labels = [label_of(trace) for trace in traces]
    return [
        Method(label if labels.count(label) == 1 else f"{label} ({mark})", trace)
        for label, trace, mark in zip(labels, traces, marks, strict=True)
    ]
