"""A report on disk: tables, figures, and one HTML page with all of it that fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from softdlm.records.files import ready_folder, write_text
from softdlm.report.document import Drawing, Finding, Report, Section
from softdlm.report.formats import to_csv, to_html, to_latex, to_markdown

TEMPLATE = Path(__file__).parent / "page.html"
MARKS = {"holds": "✓", "does not hold": "✗", "undecided": "?", "not measured": "·"}
PLURAL = {"holds": "hold", "does not hold": "do not hold"}
INK = {
    "#000000": "currentColor",
    "#dddddd": "var(--line)",
    "#eeeeee": "var(--band)",
    "#ffffff": "var(--page)",
    "#b00020": "var(--bad)",
}
"""Colours of a figure that follow the page's, so that it can be read on a dark one."""


def write(report: Report, out: Path, name: str, *, figures: bool = True) -> Path:
    """Tables in three formats, figures, and the page, which is returned."""
    for folder in ("tables", "figures") if figures else ("tables",):
        ready_folder(out / folder)
    drawn = {}
    for section in report.sections:
        for table in section.tables:
            for ending, text in (("md", to_markdown(table)), ("csv", to_csv(table)), ("tex", to_latex(table))):
                write_text(out / "tables" / f"{table.name}.{ending}", text)
        for drawing in section.drawings if figures else ():
            file = out / "figures" / f"{drawing.name}.svg"
            drawing.draw(file, report.mark)
            drawn[drawing.name] = file.read_text(encoding="utf-8")
    file = out / f"{name}.html"
    write_text(file, page(report, drawn))
    return file


def page(report: Report, figures: Mapping[str, str]) -> str:
    """`figures`: SVG by name."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(report.title),
        mark=f'<p class="banner">{escape(report.mark)}</p>' if report.mark else "",
        lead=escape(report.lead),
        failed="".join(f'<p class="banner">Failed: {escape(line)}</p>' for line in report.failed),
        contents="".join(_contents(report.sections)),
        counts="".join(_counts(report.findings)),
        findings="".join(_findings(report.findings)),
        sections="".join(_section(section, figures) for section in report.sections),
        protocol="".join(_protocol(report.protocol)),
    )


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    names = [("findings", "Findings"), *((each.name, each.title) for each in sections), ("protocol", "Protocol")]
    return (f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title in names)


def _counts(findings: Sequence[Finding]) -> Iterator[str]:
    for verdict, sign in MARKS.items():
        count = sum(each.verdict == verdict for each in findings)
        words = verdict if count == 1 else PLURAL.get(verdict, verdict)
        if count:
            yield f'<span class="verdict {_slug(verdict)}">{sign} {count} {escape(words)}</span> '


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for (where, claim), group in groupby(findings, key=lambda each: (each.where, each.claim)):
        lines = "".join(
            f'<li><span class="verdict {_slug(each.verdict)}">{MARKS[each.verdict]} {escape(each.verdict)}</span> '
            f"<b>{escape(each.scope)}</b> <span>{escape(with_strength(each))}</span></li>"
            for each in group
        )
        yield f'<div class="claim"><p>{escape(claim)} <small>{escape(where)}</small></p><ul>{lines}</ul></div>'


def with_strength(finding: Finding) -> str:
    """The evidence, and the strength of the soft tokens that it is about."""
    return f"{finding.evidence} ({finding.strength})" if finding.strength else finding.evidence


def _section(section: Section, figures: Mapping[str, str]) -> str:
    drawn = "".join(_figure(each, figures[each.name]) for each in section.drawings if each.name in figures)
    return (
        f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2><p>{escape(section.about)}</p>'
        f"{''.join(map(to_html, section.tables))}{drawn}"
        f'<p class="note"><b>Measured:</b> {escape(section.measured)}.<br>'
        f"<b>Not measured:</b> {escape(section.not_measured)}.</p></section>"
    )


def _figure(drawing: Drawing, svg: str) -> str:
    caption = f"<figcaption>{escape(drawing.caption)}</figcaption>"
    return f"<figure><div>{inline(svg, drawing.name)}</div>{caption}</figure>"


def inline(svg: str, name: str) -> str:
    """A drawing inside the page: without its head, with ids of its own and the page's colours."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
    for colour, ink in INK.items():
        body = re.sub(colour, ink, body, flags=re.IGNORECASE)
    return re.sub(r"<svg ", '<svg role="img" ', body, count=1)


def _protocol(value: Mapping[str, Any]) -> Iterator[str]:
    for name, each in value.items():
        if isinstance(each, dict | list):
            lines = "".join(f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in _flat(each))
            body = f'<div class="scroll"><table class="plain"><tbody>{lines}</tbody></table></div>'
            yield f"<details><summary>{escape(name.replace('_', ' '))}</summary>{body}</details>"
        else:
            yield f"<p>{escape(name.replace('_', ' '))}: {escape(str(each))}</p>"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as lines; short lists stay whole."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _flat(each, f"{name}.{index}" if name else str(index))
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _slug(text: str) -> str:
    return text.replace(" ", "-")
