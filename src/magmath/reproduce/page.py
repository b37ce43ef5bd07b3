"""The report as one HTML page: no other file, no script, readable on a telephone."""

from __future__ import annotations

from datetime import datetime
from html import escape

from magmath.reproduce.drawing import inline_svg
from magmath.reproduce.report import Report, Result
from magmath.reproduce.section import Cell, Finding, Part, Plot, Table

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; color: #1b1b1b; background: #fff;
       font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h2 { font-size: 1.3rem; line-height: 1.3; margin-top: 3rem; border-top: 2px solid #ccc;
     padding-top: 1rem; }
a { color: #0b57a4; }
figure { margin: 1.5rem 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 40rem; }
figcaption, caption { text-align: left; color: #444; font-size: 0.95rem; padding: 0.3rem 0; }
.wide { overflow-x: auto; margin: 1.5rem 0 0.5rem;
        background: linear-gradient(90deg, #fff 40%, #fff0) 0 0 / 2rem 100%,
                    linear-gradient(270deg, #fff 40%, #fff0) 100% 0 / 2rem 100%,
                    linear-gradient(90deg, #0003, #0000) 0 0 / 0.7rem 100%,
                    linear-gradient(270deg, #0003, #0000) 100% 0 / 0.7rem 100%;
        background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
table { border-collapse: collapse; font-size: 0.95rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.3rem 1rem 0.3rem 0; text-align: left;
         vertical-align: top; }
th { border-bottom: 2px solid #bbb; vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.finding { border-left: 0.4rem solid #999; border-radius: 0.2rem; background: #f5f5f5;
           padding: 0.5rem 0.8rem; margin: 1rem 0; }
.finding.agrees { border-color: #2a7d2a; background: #f1f8f1; }
.finding.differs { border-color: #b3261e; background: #fdf3f2; }
.finding p { margin: 0 0 0.3rem; }
.finding dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 0.8rem;
              margin: 0; }
dt { color: #555; }
dd { margin: 0; min-width: 0; }
.sign, .verdict { font-weight: bold; color: #666; }
.sign { display: inline-block; width: 1.1em; }
.sign.agrees, .verdict.agrees { color: #2a7d2a; }
.sign.differs, .verdict.differs { color: #b3261e; }
.error { border: 2px solid #b3261e; padding: 0.5rem 0.8rem; white-space: pre-wrap; }
nav > ul { padding-left: 1.2rem; }
nav > ul > li { margin: 0.8rem 0; }
.statements { list-style: none; padding: 0; margin: 0.2rem 0; font-size: 0.95rem; }
.statements li { padding-left: 1.3em; text-indent: -1.3em; }
.statements .sign { text-indent: 0; }
.note { color: #444; font-size: 0.95rem; }
"""
CLASSES = {True: "agrees", False: "differs", None: "open"}
SIGNS = {True: "✓", False: "✗", None: "?"}


def page(report: Report) -> str:
    """Return the whole page as text."""
    sections = "\n".join(map(_section, report.results))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(report.title)}</h1>\n{_summary(report)}\n{sections}\n"
        f"{_machine(report)}\n</body>\n</html>\n"
    )


def _summary(report: Report) -> str:
    kind = "A quick run with reduced sizes" if report.quick else "A run with full sizes"
    items = "\n".join(map(_summary_item, report.results))
    date = f"{datetime.fromisoformat(report.date):%-d %B %Y, %H:%M} UTC"
    remaining = ", ".join(report.remaining)
    unfinished = (
        f"<p><strong>Not finished: {escape(remaining)}.</strong></p>\n" if remaining else ""
    )
    return (
        f"<p>{kind}, on {escape(str(report.machine['cpu']))} with {report.machine['cores']} cores, "
        f"{escape(date)}.</p>\n{unfinished}<nav><ul>\n{items}\n</ul></nav>"
    )


def _summary_item(result: Result) -> str:
    """Return the title of an experiment with its verdict, and below it the statements."""
    experiment = result.experiment
    title = f'<a href="#{experiment.name}">{escape(experiment.title)}</a>'
    findings = [] if result.section is None else result.section.of_kind(Finding)
    statements = "\n".join(
        f"<li>{_sign(finding)} {escape(finding.statement)}</li>" for finding in findings
    )
    below = f'\n<ul class="statements">\n{statements}\n</ul>' if statements else ""
    return f"<li>{title}: {escape(result.verdict)}{below}</li>"


def _sign(finding: Finding) -> str:
    return f'<span class="sign {CLASSES[finding.agrees]}">{SIGNS[finding.agrees]}</span>'


def _section(result: Result) -> str:
    experiment = result.experiment
    heading = (
        f'<section id="{experiment.name}">\n<h2>{escape(experiment.title)}</h2>\n'
        f'<p class="note">{escape(experiment.reference)}. '
        f"<code>magmath reproduce {experiment.name}</code>, {result.seconds:.0f} s.</p>"
    )
    if result.section is None:
        body = f'<div class="error">{escape(result.error)}</div>'
    else:
        parts = enumerate(result.section.parts)
        body = "\n".join(_part(part, f"{experiment.name}-{i}") for i, part in parts)
    return f"{heading}\n{body}\n</section>"


def _part(part: Part, name: str) -> str:
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Plot):
        caption = f"<strong>{escape(part.title)}.</strong> {escape(part.caption)}"
        svg = inline_svg(part.figure, name)
        return f"<figure>\n{svg}\n<figcaption>{caption}</figcaption>\n</figure>"
    if isinstance(part, Finding):
        return _finding(part)
    return f"<p>{escape(part)}</p>"


def _finding(finding: Finding) -> str:
    kind = CLASSES[finding.agrees]
    lines = {"Paper": finding.paper, "Here": finding.ours, "Why": finding.reason}
    rows = "\n".join(
        f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in lines.items() if text
    )
    return (
        f'<div class="finding {kind}">\n<p>{_sign(finding)} <strong>{escape(finding.statement)}'
        f'</strong>: <span class="verdict {kind}">{finding.verdict}</span></p>\n'
        f"<dl>\n{rows}\n</dl></div>"
    )


def _table(table: Table) -> str:
    cells = [*zip(*table.rows, strict=True)] or [()] * len(table.columns)
    head = "".join(
        f"<th{_class(any(not isinstance(cell, str) for cell in column))}>{escape(name)}</th>"
        for name, column in zip(table.columns, cells, strict=True)
    )
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide"><table>\n<caption><strong>{escape(table.title)}</strong></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def _cell(cell: Cell) -> str:
    return f"<td{_class(not isinstance(cell, str))}>{escape(cell_text(cell))}</td>"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def cell_text(cell: Cell) -> str:
    """Return a cell as text; floats with four significant digits."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 10_000 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _machine(report: Report) -> str:
    versions = {**report.versions, "commit": report.commit or "not a repository"}
    rows = [*report.machine.items(), *versions.items(), *report.environment.items()]
    table = Table.of(
        "Machine and versions",
        ("name", "value"),
        [(str(name), _machine_text(str(name), value)) for name, value in rows],
        f"Command: {report.command}",
    )
    return f'<section id="machine">\n<h2>Machine and versions</h2>\n{_table(table)}\n</section>'


def _machine_text(name: str, value: object) -> str:
    return f"{int(str(value)) / 2**30:.1f} GiB" if name == "memory" else str(value)
