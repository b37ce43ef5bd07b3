"""Plans as text and as a picture: a row for each layer, with its division and its times."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from magmath.parallel.planner.layer_graph import BATCH, SPACE
from magmath.parallel.planner.options import INPUT, OUTPUT, REPLICATED

if TYPE_CHECKING:
    from magmath.parallel.planner.plan import LayerPlan, Plan

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


def plan_text(plan: Plan) -> str:
    """Return the plan as a table with bars: computation █, exchanges ▓, gradients ░."""
    head = [
        f"{plan.machine.source}: {plan.mesh.workers} workers, mesh {plan.mesh}, batch "
        f"{plan.graph.batch}",
        f"{_time(plan.seconds)} a step, {plan.samples_per_second:,.0f} samples/s, "
        f"{_size(plan.received)} received and {_size(plan.memory)} of memory a worker",
        f"optimality gap {plan.gap:.1%} over {plan.found.meshes} meshes; "
        f"{plan.found.simulated} plans simulated",
    ]
    compared = [
        f"{name} {'needs more memory' if step is None else _time(step.seconds)}"
        for name, step in plan.found.strategies.items()
    ]
    names = max(len(one.name) for one in plan.layers)
    divisions = max(len(_division(one)) for one in plan.layers)
    longest = max(_total(one) for one in plan.layers) or 1.0
    rows = [
        f"{'layer':{names}}  {'divides':{divisions}}  {'compute':>9} {'exchange':>9} "
        f"{'gradient':>9} {'received':>9} {'memory':>9}"
    ]
    rows += [
        f"{one.name:{names}}  {_division(one):{divisions}}  {_time(one.compute):>9} "
        f"{_time(one.exchange):>9} {_time(one.gradient):>9} {_size(one.received):>9} "
        f"{_size(one.memory):>9}  {_bar(one, longest)}".rstrip()
        for one in plan.layers
    ]
    legend = "█ computation  ▓ exchange of activations  ░ exchange of gradients"
    return "\n".join([*head, f"for comparison: {', '.join(compared)}", "", *rows, "", legend])


def _division(one: LayerPlan) -> str:
    return " × ".join(one.option)


def _total(one: LayerPlan) -> float:
    return one.compute + one.exchange + one.gradient


def _bar(one: LayerPlan, longest: float) -> str:
    parts = zip("█▓░", (one.compute, one.exchange, one.gradient), strict=True)
    return "".join(sign * round(BAR * seconds / longest) for sign, seconds in parts)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs" if seconds else "0"


def _size(nbytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} B"


def plan_svg(plan: Plan) -> str:
    """Return the plan as SVG: for each layer one square for each mesh axis, coloured by what it
    divides, and a bar of its times."""
    height, left, bars = 22, 150, 420
    axes = len(plan.mesh.shape)
    start = left + axes * height + 12
    longest = max(_total(one) for one in plan.layers) or 1.0
    total = height * (len(plan.layers) + 4)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{start + bars + 90}" height="{total}" '
        f'font-family="sans-serif" font-size="12">',
        f'<text x="4" y="15">{escape(plan.machine.source)}: {plan.mesh.workers} workers, mesh '
        f"{plan.mesh}, {_time(plan.seconds)} a step</text>",
    ]
    for row, one in enumerate(plan.layers, start=1):
        top = row * height
        lines.append(f'<text x="4" y="{top + 15}">{escape(one.name)}</text>')
        for axis, choice in enumerate(one.option):
            lines.append(_box(left + axis * height, top + 2, 18, COLOURS[choice], choice))
        lines += _bars(one, start, top, bars / longest)
    lines += _legend(height * (len(plan.layers) + 2), left)
    return "\n".join([*lines, "</svg>", ""])


def _bars(one: LayerPlan, start: int, top: int, scale: float) -> list[str]:
    found, x = [], float(start)
    for name, colour in _PARTS:
        width = getattr(one, name) * scale
        if width >= 0.5:
            found.append(_box(x, top + 4, width, colour, f"{name} {_time(getattr(one, name))}"))
        x += width
    return [*found, f'<text x="{x + 4:.1f}" y="{top + 15}">{_time(_total(one))}</text>']


def _legend(top: int, left: int) -> list[str]:
    found = []
    for y, table in ((top, tuple(COLOURS.items())), (top + 20, _PARTS)):
        for i, (name, colour) in enumerate(table):
            x = 4 + i * 110
            found.append(_box(x, y, 14, colour, name))
            found.append(f'<text x="{x + 18}" y="{y + 12}">{name}</text>')
    return found


def _box(x: float, y: float, width: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="14" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
