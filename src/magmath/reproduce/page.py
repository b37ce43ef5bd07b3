"""The report as one HTML page: no other file, no script, readable on a telephone."""

from __future__ import annotations

from html import escape

from magmath.reproduce.drawing import inline_svg
from magmath.reproduce.report import Report, Result
from magmath.reproduce.section import Cell, Finding, Part, Plot, Table

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; color: #1b1b1b; background: #fff;
       font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; }
h2 { font-size: 1.25rem; line-height: 1.3; margin-top: 2.5rem; border-top: 2px solid #ccc;
     padding-top: 1rem; }
figure { margin: 1.5rem 0; }
figure svg { display: block; width: 100%; height: auto; max-width: 40rem; }
figcaption, caption { text-align: left; color: #444; font-size: 0.95rem; padding: 0.3rem 0; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: 0.95rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem 0.25rem 0; text-align: left;
         vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.finding { border-left: 0.4rem solid #999; padding: 0.1rem 0 0.1rem 0.8rem; margin: 1rem 0; }
.finding.agrees { border-color: #2a7d2a; }
.finding.differs { border-color: #b3261e; }
.finding p { margin: 0.2rem 0; }
.error { border: 2px solid #b3261e; padding: 0.5rem 0.8rem; white-space: pre-wrap; }
nav li { margin: 0.4rem 0; }
.note { color: #444; font-size: 0.95rem; }
"""
CLASSES = {True: "agrees", False: "differs", None: "open"}


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
    items = "\n".join(
        f'<li><a href="#{r.experiment.name}">{escape(r.experiment.title)}</a>: '
        f"{escape(r.verdict)}</li>"
        for r in report.results
    )
    remaining = ", ".join(report.remaining)
    unfinished = (
        f"<p><strong>Not finished: {escape(remaining)}.</strong></p>\n" if remaining else ""
    )
    return (
        f"<p>{kind}, on {escape(str(report.machine['cpu']))} with {report.machine['cores']} cores, "
        f"{escape(report.date)}.</p>\n{unfinished}<nav><ul>\n{items}\n</ul></nav>"
    )


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
    reason = f"<p>Why: {escape(finding.reason)}</p>\n" if finding.reason else ""
    return (
        f'<div class="finding {CLASSES[finding.agrees]}">\n'
        f"<p><strong>{escape(finding.statement)}</strong>: {finding.verdict}.</p>\n"
        f"<p>Paper: {escape(finding.paper)}</p>\n<p>Here: {escape(finding.ours)}</p>\n"
        f"{reason}</div>"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide"><table>\n<caption><strong>{escape(table.title)}</strong></caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def _cell(cell: Cell) -> str:
    kind = "" if isinstance(cell, str) else ' class="number"'
    return f"<td{kind}>{escape(cell_text(cell))}</td>"


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
