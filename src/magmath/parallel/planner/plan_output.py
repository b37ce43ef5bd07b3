"""Network plans as text and as a picture: a row for each layer, with its division and its times."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from magmath.diagnostics.explanation import duration
from magmath.parallel.planner.layer_graph import BATCH, SPACE
from magmath.parallel.planner.layer_options import INPUT, OUTPUT, REPLICATED
from magmath.parallel.planner.layer_plan import LayerPlan

BAR: Final = 24
"""Characters of the longest bar."""
COLOURS: Final = {
    BATCH: "#4e79a7",
    OUTPUT: "#e15759",
    INPUT: "#f28e2b",
    SPACE: "#59a14f",
    REPLICATED: "#d0d0d0",
}
_PARTS: Final = (("compute", "#4e79a7"), ("exchange", "#e15759"), ("gradient", "#edc948"))


def plan_text(layers: Sequence[LayerPlan], heading: Sequence[str]) -> str:
    """Return a plan as its heading and a table with bars: computation █, exchanges ▓,
    gradients ░."""
    header = ("layer", "divides", "compute", "exchange", "gradient", "received", "memory")
    cells = [header, *[_cells(layer) for layer in layers]]
    names, divisions = (max(len(row[i]) for row in cells) for i in (0, 1))
    longest = max(_total(layer) for layer in layers) or 1.0
    bars = ["", *[_bar(layer, longest) for layer in layers]]
    rows = [
        f"{name:{names}}  {division:{divisions}}  {' '.join([f'{x:>9}' for x in numbers])}  {bar}"
        for (name, division, *numbers), bar in zip(cells, bars, strict=True)
    ]
    legend = "█ computation  ▓ exchange of activations  ░ exchange of gradients"
    return "\n".join([*heading, "", *[row.rstrip() for row in rows], "", legend])


def _cells(layer: LayerPlan) -> tuple[str, ...]:
    """Return the texts of a row of the table, without its bar."""
    times = [seconds_text(x) for x in (layer.compute, layer.exchange, layer.gradient)]
    sizes = [size_text(x) for x in (layer.received, layer.memory)]
    return (_label(layer), _division(layer), *times, *sizes)


def _label(layer: LayerPlan) -> str:
    return layer.name if layer.name.startswith(layer.kind) else f"{layer.name} ({layer.kind})"


def _division(layer: LayerPlan) -> str:
    return " × ".join(layer.option)


def _total(layer: LayerPlan) -> float:
    return layer.compute + layer.exchange + layer.gradient


def _bar(layer: LayerPlan, longest: float) -> str:
    parts = zip("█▓░", (layer.compute, layer.exchange, layer.gradient), strict=True)
    return "".join(sign * round(BAR * seconds / longest) for sign, seconds in parts)


def seconds_text(seconds: float) -> str:
    """Return a time with its unit; 0 without one."""
    return duration(seconds) if seconds else "0"


def size_text(nbytes: float) -> str:
    """Return a number of bytes with its unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} B"


def plan_svg(layers: Sequence[LayerPlan], heading: Sequence[str], axes: int) -> str:
    """Return the plan as SVG: for each layer one square for each mesh axis, coloured by what it
    divides, and a bar of its times."""
    height, left, bars = 22, 240, 420
    start = left + axes * height + 12
    longest = max(_total(layer) for layer in layers) or 1.0
    total = height * (len(layers) + 4)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{start + bars + 90}" height="{total}" '
        f'font-family="sans-serif" font-size="12">',
        f'<text x="4" y="15">{escape(heading[0])}; {escape(heading[1])}</text>',
    ]
    for row, layer in enumerate(layers, start=1):
        top = row * height
        lines.append(f'<text x="4" y="{top + 15}">{escape(_label(layer))}</text>')
        for axis, choice in enumerate(layer.option):
            lines.append(_box(left + axis * height, top + 2, 18, COLOURS[choice], choice))
        lines += _bars(layer, start, top, bars / longest)
    lines += _legend(height * (len(layers) + 2), left)
    return "\n".join([*lines, "</svg>", ""])


def _bars(layer: LayerPlan, start: int, top: int, scale: float) -> list[str]:
    """Return the bar of a layer: a box for each kind of time, and the total."""
    boxes, x = [], float(start)
    for name, colour in _PARTS:
        width = getattr(layer, name) * scale
        if width >= 0.5:
            boxes.append(
                _box(x, top + 4, width, colour, f"{name} {seconds_text(getattr(layer, name))}")
            )
        x += width
    return [*boxes, f'<text x="{x + 4:.1f}" y="{top + 15}">{seconds_text(_total(layer))}</text>']


def _legend(top: int, left: int) -> list[str]:
    """Return the colours of divisions and of times, with their names."""
    lines = []
    for y, table in ((top, tuple(COLOURS.items())), (top + 20, _PARTS)):
        for i, (name, colour) in enumerate(table):
            x = 4 + i * 110
            lines.append(_box(x, y, 14, colour, name))
            lines.append(f'<text x="{x + 18}" y="{y + 12}">{name}</text>')
    return lines


def _box(x: float, y: float, width: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="14" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
