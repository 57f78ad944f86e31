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
MEANING = {
    "holds": "what was measured speaks for the claim",
    "does not hold": "what was measured speaks against the claim",
    "undecided": "what was measured says neither: the differences may be chance, or they point both ways",
    "not measured": "nothing was measured that could tell",
}
FIRST = ("frontier", "rivals", "table2")
"""Sections whose figure says most; the page begins with the first of these that has one, else with its first figure."""
INK = {
    "#000000": "currentColor",
    "#dddddd": "var(--line)",
    "#eeeeee": "var(--band)",
    "#ffffff": "var(--page)",
    "#b00020": "var(--bad)",
    "#0072b2": "var(--blue)",
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
        figure=_first_figure(report.sections, figures),
        contents="".join(_contents(report.sections)),
        counts="".join(_counts(report.findings)),
        findings="".join(_findings(report.findings, report.sections)),
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
            yield (
                f'<li><span class="verdict {_slug(verdict)}">{sign} {count} {escape(words)}</span> '
                f"<span>{MEANING[verdict]}</span></li>"
            )


def _findings(findings: Sequence[Finding], sections: Sequence[Section]) -> Iterator[str]:
    for (where, claim), group in groupby(findings, key=lambda each: (each.where, each.claim)):
        lines = "".join(
            f'<li><span class="verdict {_slug(each.verdict)}">{MARKS[each.verdict]} {escape(each.verdict)}</span> '
            f"<b>{escape(each.scope)}</b> <span>{escape(with_strength(each))}</span></li>"
            for each in group
        )
        place = next((each.name for each in sections if _label(each).lower() in where.lower()), "")
        link = f'<a href="#{escape(place)}">{escape(where)}</a>' if place else escape(where)
        yield f'<div class="claim"><h3>{escape(claim)} <small>{link}</small></h3><ul>{lines}</ul></div>'


def _label(section: Section) -> str:
    """`Table 2` of `Table 2: accuracy`."""
    return section.title.partition(":")[0]


def with_strength(finding: Finding) -> str:
    """The evidence, and the strength of the soft tokens that it is about, which no line end divides."""
    strength = finding.strength.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return f"{finding.evidence} ({strength})" if strength else finding.evidence


def _first_figure(sections: Sequence[Section], figures: Mapping[str, str]) -> str:
    """The figures of a section for readers who read nothing else; their ids differ from those further below."""
    found = {each.name: each for each in reversed(sections) if any(one.name in figures for one in each.drawings)}
    section = next((found[name] for name in (*FIRST, *reversed(found)) if name in found), None)
    if section is None:
        return ""
    shown = [each for each in section.drawings if each.name in figures]
    drawn = (_figure(section, each, figures[each.name], f"first-{each.name}", "First figure") for each in shown)
    more = f'<a href="#{escape(section.name)}">{escape(section.title)}</a>'
    return f'<div class="first">{"".join(drawn)}</div><p class="note">The table to it: {more}.</p>'


def _section(section: Section, figures: Mapping[str, str]) -> str:
    shown = [each for each in section.drawings if each.name in figures]
    drawn = "".join(_figure(section, each, figures[each.name], each.name) for each in shown)
    name, title = escape(section.name), escape(section.title)
    anchor = f'<a class="anchor" href="#{name}" aria-label="Link to {title}">#</a>'
    return (
        f'<section id="{name}"><h2>{title} {anchor}</h2><p>{escape(section.about)}</p>'
        f"{drawn}{''.join(map(to_html, section.tables))}"
        f'<p class="note"><b>Measured:</b> {escape(section.measured)}.<br>'
        f"<b>Not measured:</b> {escape(section.not_measured)}.</p></section>"
    )


def _figure(section: Section, drawing: Drawing, svg: str, name: str, what: str = "Figure") -> str:
    caption = f"<figcaption>{escape(drawing.caption)}</figcaption>"
    panels = len(drawing.arguments.get("panels", ()))
    scroll = f'class="scroll{" wide" * (panels > 1)}" style="--panels: {panels}" role="region" tabindex="0"'
    label = escape(f"{what}, {section.title}: {drawing.caption}")
    return f'<figure><div {scroll} aria-label="{label}">{inline(svg, name, label)}</div>{caption}</figure>'


def inline(svg: str, name: str, label: str) -> str:
    """A drawing inside the page: without its head, with ids of its own and the page's colours."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
    for colour, ink in INK.items():
        body = re.sub(colour, ink, body, flags=re.IGNORECASE)
    return body.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _protocol(value: Mapping[str, Any]) -> Iterator[str]:
    for name, each in value.items():
        if isinstance(each, dict | list):
            lines = "".join(
                f'<tr><th scope="row">{escape(key or name)}</th><td>{escape(text)}</td></tr>'
                for key, text in _flat(each)
            )
            body = f'<table class="plain"><tbody>{lines}</tbody></table>'
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
