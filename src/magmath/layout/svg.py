"""Pictures of layouts as SVG without script: the shape, and the workers that store each region.

The last two dimensions are drawn as a rectangle, the others as a row or grid of such sections. A
colour is a worker; stripes are replicas on several workers; a dashed frame is a pending reduction.
Text has the colour of the page text, so it is readable on light and dark pages.
"""

from __future__ import annotations

import colorsys
import math
import zlib
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Protocol, final

from magmath.layout.checks import LayoutParts
from magmath.layout.regions import ArraySection, Interval, Region, array_sections
from magmath.layout.split import Cyclic

WIDTH = 640
"""Maximum width of a picture in pixels."""
LEGEND = 24
"""Maximum number of workers in the legend."""
_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f",
)  # fmt: skip
_SYMBOLS = {"sum": "Σ", "prod": "Π", "max": "max", "min": "min", "any": "∨", "all": "∧"}
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MARGIN, _LINE, _GAP, _DEPTH = 6, 17, 20, 6


class DrawnLayout(LayoutParts, Protocol):
    """The attributes of a `Layout` that a picture uses."""

    @property
    def shared(self) -> bool:
        """True if the array is stored once per host."""

    @property
    def reduction(self) -> str | None:
        """The name of the pending reduction, or None."""

    @property
    def is_replicated(self) -> bool:
        """True if each worker of the mesh stores the whole array, with no pending reduction."""

    def axis_of(self, mesh_axis: int) -> int | None:
        """Return the dimension that `mesh_axis` splits, or None."""

    def local_size(self, worker: int) -> int:
        """Return the number of elements that a worker stores."""

    def encode(self) -> tuple[Any, ...]:
        """Return nested tuples that are equal for equal layouts."""


def draw_layout(
    layout: DrawnLayout, itemsize: int | None = None, kind: str = "Layout", dtype: str = ""
) -> str:
    """Return the SVG of an array in this layout.

    `itemsize`: bytes of an element; without it, sizes are given in elements. `kind` and `dtype` are
    part of the heading.
    """
    drawing = _Drawing(layout, itemsize)
    drawing.heading(kind, dtype)
    drawing.sections(array_sections(layout))
    drawing.legend()
    return drawing.svg()


def format_amount(elements: int, itemsize: int | None) -> str:
    """Format a number of elements: "1.5 MB", or "12 elements" without an itemsize."""
    if itemsize is None:
        return f"{elements:,} element{'s' * (elements != 1)}"
    size, unit = float(elements * itemsize), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def describe_placements(layout: DrawnLayout) -> list[str]:
    """Describe the placements of a layout in words."""
    if layout.boxes is not None:
        return [f"{len(layout.boxes)} rectangles, each on one worker"]
    if layout.shared:
        return ["one copy on each host, read by all its workers"]
    if layout.mesh.size == 1:
        return ["whole on one worker"]
    if layout.is_replicated:
        return ["whole on every worker"]
    return [
        _sentence(layout, axis) for axis in range(layout.mesh.ndim) if layout.mesh.shape[axis] > 1
    ]


def _sentence(layout: DrawnLayout, mesh_axis: int) -> str:
    count, axis, pending = (
        layout.mesh.shape[mesh_axis],
        layout.axis_of(mesh_axis),
        layout.partial[mesh_axis],
    )
    if pending is not None:
        return f"{count} parts whose {pending} is the array"
    if axis is None:
        return f"{count} copies"
    split = layout.splits[axis]
    assert split is not None
    if isinstance(split.pieces, Cyclic):
        return f"dimension {axis} dealt to {count}, {split.pieces.block} at a time"
    return (
        f"dimension {axis} in {count} parts"
        if split.pieces.span == count
        else f"dimension {axis} split"
    )


def worker_colour(worker: int) -> str:
    """Return the colour of a worker: from a table, then hues at maximal distance."""
    if worker < len(_COLOURS):
        return _COLOURS[worker]
    hue = worker * 0.618033988749895 % 1  # the golden ratio: never near the ones before
    red, green, blue = colorsys.hls_to_rgb(hue, 0.55, 0.45)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _text_colour(background: str) -> str:
    """Return black or white, the more readable one on a background colour."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


@final
class _Scale:
    """Maps indices to pixels along one dimension, proportionally, with a minimum width."""

    def __init__(self, pieces: Sequence[Interval], pixels: float) -> None:
        hidden = sum(piece.hidden for piece in pieces) * _GAP
        shown = sum(p.stop - p.start for p in pieces if not p.hidden)
        min_width = min(7.0, (pixels - hidden) / max(1, len(pieces)))
        self.ends: dict[int, float] = {}
        at = 0.0
        for piece in pieces:
            self.ends[piece.start] = at
            part = (pixels - hidden) * ((piece.stop - piece.start) / shown if shown else 1)
            at += _GAP if piece.hidden else max(min_width, part)
            self.ends[piece.stop] = at
        self.pixels = at

    def __getitem__(self, index: int) -> float:
        return self.ends[index]


@final
class _Drawing:
    """The elements of a picture, and the current vertical position."""

    def __init__(self, layout: DrawnLayout, itemsize: int | None) -> None:
        self.layout = layout
        self.itemsize = itemsize
        self.parts: list[str] = []
        self.patterns: dict[tuple[int, ...], str] = {}
        self.key = f"{zlib.crc32(repr(layout.encode()).encode()):08x}"
        self.width = 0.0
        self.y = float(_MARGIN)

    # Parts of a picture.

    def heading(self, kind: str, dtype: str) -> None:
        layout = self.layout
        shape = " × ".join(map(str, layout.shape)) or "of no dimensions"
        title = " ".join(filter(None, (kind, shape, dtype)))
        size = format_amount(layout.size, self.itemsize)
        self.line(title, bold=True)
        self.line(f"{size} · {layout} · {', '.join(describe_placements(layout))}")
        self.y += _MARGIN

    def sections(self, found: list[ArraySection]) -> None:
        first, labelled = found[0], self.layout.ndim > 2
        columns = _columns(found)
        if len(found) == 1:
            side = min(420.0, max(220.0, 19.0 * max(len(first.rows), len(first.columns))))
        else:
            side = max(64.0, min(140.0, WIDTH / columns - 48))
        high, wide = _extents(self.layout, side)
        down, across = _Scale(first.rows, high), _Scale(first.columns, wide)
        left = _MARGIN + _tick_width(first.rows[-1].stop) if self.layout.ndim > 1 else _MARGIN
        pitch = down.pixels + _LINE * labelled + _DEPTH + 8
        top = self.y + _LINE + _DEPTH * labelled
        for number, panel in enumerate(found):
            x = left + number % columns * (across.pixels + 26)
            y = top + number // columns * pitch
            self._panel(panel, x, y, down, across)
            if number % columns == 0 and self.layout.ndim > 1:
                self._ticks_down(panel.rows, down, x - 5, y)
            if number < columns and self.layout.ndim > 0:
                self._ticks_across(panel.columns, across, x, y - 5 - _DEPTH * labelled)
            end = x + across.pixels + _tick_width(first.columns[-1].stop) / 2
            self.width = max(self.width, end)
            self.y = max(self.y, y + down.pixels + _LINE * labelled)
        self.y += 12

    def legend(self) -> None:
        """Add the colour and share of each worker, up to `LEGEND` workers."""
        workers = sorted(self.layout.mesh.workers)
        shown = workers if len(workers) <= LEGEND else workers[: LEGEND - 1]
        texts = [f"worker {worker}: {self._share(worker)}" for worker in shown]
        if len(shown) < len(workers):
            texts.append(f"… and {len(workers) - len(shown)} more")
        wide = 28 + 6.3 * max(len(text) for text in texts)
        columns = max(1, int(max(self.width, 520) // wide))
        for number, text in enumerate(texts):
            x = _MARGIN + number % columns * wide
            y = self.y + number // columns * _LINE
            if number < len(shown):
                self._swatch(shown[number], x, y)
            self._text(x + 17, y + 10, text)
            self.width = max(self.width, x + wide)
        self.y += -(-len(texts) // columns) * _LINE

    def svg(self) -> str:
        width, height = math.ceil(self.width + _MARGIN), math.ceil(self.y + _MARGIN)
        patterns = "".join(self._pattern(holders, name) for holders, name in self.patterns.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="system-ui, sans-serif" '
            f'font-size="11" fill="currentColor">'
            f"<defs>{patterns}</defs>{''.join(self.parts)}</svg>"
        )

    # A section.

    def _panel(self, panel: ArraySection, x: float, y: float, rows: _Scale, across: _Scale) -> None:
        if self.layout.ndim > 2:
            sides = [
                _range_text(*ends, n)
                for ends, n in zip(panel.lead, self.layout.shape, strict=False)
            ]
            self._text(x, y + rows.pixels + 13, f"[{', '.join(sides)}]", opacity=0.75)
        if panel.hidden:
            self._text(x + across.pixels / 2, y + rows.pixels / 2, "⋯", anchor="middle", size=18)
            return
        if math.prod([stop - start for start, stop in panel.lead]) > 1:
            for offset in (_DEPTH, _DEPTH // 2):
                self._frame(x + offset, y - offset, across.pixels, rows.pixels, 0.35)
        if not panel.regions or not self.layout.size:
            self._frame(x, y, across.pixels, rows.pixels, 0.6, dash=True)
            self._text(x + across.pixels / 2, y + rows.pixels / 2 + 4, "empty", anchor="middle")
            return
        dashes = ' stroke-dasharray="4 3"' if self.layout.is_partial else ""
        self.parts.append(f'<g stroke="currentColor" stroke-opacity=".55" {dashes}>')
        boxes = [_rectangle(region, x, y, rows, across) for region in panel.regions]
        for region, box in zip(panel.regions, boxes, strict=True):
            self._region(region, *box)
        self.parts.append('</g><g text-anchor="middle" pointer-events="none">')
        for region, box in zip(panel.regions, boxes, strict=True):
            self._label(region, *box)
        self.parts.append("</g>")
        self._frame(x, y, across.pixels, rows.pixels, 0.8, dash=self.layout.is_partial)

    def _region(self, region: Region, left: float, top: float, wide: float, high: float) -> None:
        if region.holders:
            self.parts.append(
                f'<rect x="{left:.4g}" y="{top:.4g}" width="{wide:.4g}" height="{high:.4g}" '
                f'fill="{self._fill(region.holders)}">'
                f"<title>{escape(self._title(region))}</title></rect>"
            )

    def _label(self, region: Region, left: float, top: float, wide: float, high: float) -> None:
        """Add the worker numbers of a region if they fit; on stripes with a dark background."""
        x, y = left + wide / 2, top + high / 2
        if not region.holders:
            sign = "⋯" if wide >= high else "⋮"
            self.parts.append(f'<text x="{x:.4g}" y="{y + 4:.4g}" opacity=".7">{sign}</text>')
            return
        label = self._names(region.holders)
        if 6.5 * len(label) + 4 > wide or high < 13:
            return
        ink = _text_colour(worker_colour(region.holders[0]))
        if self._fill(region.holders).startswith("url"):
            ground, ink = 6.5 * len(label) + 8, "#fff"
            self.parts.append(
                f'<rect x="{x - ground / 2:.4g}" y="{y - 8:.4g}" width="{ground:.4g}" height="16" '
                f'rx="4" fill="#000" fill-opacity=".65"/>'
            )
        self.parts.append(f'<text x="{x:.4g}" y="{y + 4:.4g}" fill="{ink}">{escape(label)}</text>')

    def _names(self, holders: tuple[int, ...]) -> str:
        """Return a short label of workers."""
        pending = self.layout.reduction
        symbol = f"{_SYMBOLS[pending]} " if pending else ""
        if len(holders) == 1:
            return f"{symbol}{holders[0]}"
        if self.layout.shared:
            return "shared"
        if len(holders) == self.layout.mesh.size:
            return f"{symbol}all"
        return symbol + " ".join(map(str, holders))

    def _title(self, region: Region) -> str:
        """Return the tooltip of a region."""
        box = f"[{', '.join(f'{start}:{stop}' for start, stop in region.box)}]"
        size = format_amount(math.prod([b - a for a, b in region.box]), self.itemsize)
        names = ", ".join(map(str, region.holders[:16])) + ", …" * (len(region.holders) > 16)
        return f"{box} · worker{'s' * (len(region.holders) > 1)} {names} · {size}"

    def _ticks_down(self, pieces: Sequence[Interval], scale: _Scale, x: float, y: float) -> None:
        for end in _visible_ticks(pieces, scale, lambda end: 13.0):
            self._text(x, y + scale[end] + 4, str(end), anchor="end", opacity=0.75)

    def _ticks_across(self, pieces: Sequence[Interval], scale: _Scale, x: float, y: float) -> None:
        for end in _visible_ticks(pieces, scale, _tick_width):
            self._text(x + scale[end], y, str(end), anchor="middle", opacity=0.75)

    # Colours.

    def _share(self, worker: int) -> str:
        layout = self.layout
        if layout.shared and worker != layout.mesh.workers[0]:
            return "reads the shared copy"
        held = layout.local_size(worker)
        return format_amount(held, self.itemsize) if held else "nothing"

    def _swatch(self, worker: int, x: float, y: float) -> None:
        holds = self.layout.local_size(worker) > 0
        fill = worker_colour(worker) if holds else "none"
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" rx="2" fill="{fill}" '
            f'stroke="{worker_colour(worker)}"/>'
        )

    def _fill(self, holders: tuple[int, ...]) -> str:
        if self.layout.shared:
            holders = holders[:1]
        if len(holders) == 1:
            return worker_colour(holders[0])
        name = self.patterns.setdefault(holders, f"mm{self.key}-{len(self.patterns)}")
        return f"url(#{name})"

    def _pattern(self, holders: tuple[int, ...], name: str) -> str:
        """Return a pattern of diagonal stripes in the holders' colours."""
        stripe, shown = 7, holders[:8]
        bars = "".join(
            f'<rect x="{i * stripe}" width="{stripe}" height="8" fill="{worker_colour(worker)}"/>'
            for i, worker in enumerate(shown)
        )
        return (
            f'<pattern id="{name}" width="{stripe * len(shown)}" height="8" '
            f'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">{bars}</pattern>'
        )

    # Signs.

    def line(self, text: str, bold: bool = False) -> None:
        """Add a line of text below the current position."""
        self.y += _LINE - 3
        self._text(_MARGIN, self.y, text, size=13 if bold else 11, weight="600" if bold else "400")
        self.y += 3
        self.width = max(self.width, _MARGIN + len(text) * (7.4 if bold else 6.0))

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        size: int = 11,
        weight: str = "400",
        opacity: float = 1.0,
    ) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill-opacity="{opacity}">{escape(text)}</text>'
        )

    def _frame(
        self, x: float, y: float, wide: float, high: float, opacity: float, dash: bool = False
    ) -> None:
        dashes = ' stroke-dasharray="4 3"' if dash else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="none" '
            f'stroke="currentColor" stroke-opacity="{opacity}"{dashes}/>'
        )


def _extents(layout: DrawnLayout, side: float) -> tuple[float, float]:
    """Return height and width in pixels, proportional to the last two extents within limits."""
    if layout.ndim < 2:
        return 40.0, min(2.0 * side, WIDTH - 80) if layout.ndim else 40.0
    high, wide = (max(1, extent) for extent in layout.shape[-2:])
    ratio = min(2.2, max(0.4, wide / high))
    return (
        (side, side * ratio)
        if ratio <= 1
        else (side * max(0.6, 1 / ratio), side * max(0.6, 1 / ratio) * ratio)
    )


def _rectangle(
    region: Region, x: float, y: float, rows: _Scale, across: _Scale
) -> tuple[float, float, float, float]:
    """Return left, top, width and height of a region in pixels."""
    vertical, horizontal = ((0, 1), (0, 1), *region.box)[-2:]
    left, right = across[horizontal[0]], across[horizontal[1]]
    top, bottom = rows[vertical[0]], rows[vertical[1]]
    return x + left, y + top, right - left, bottom - top


def _columns(found: list[ArraySection]) -> int:
    """Return the number of columns of sections: for two leading dimensions, the extent of the
    second."""
    last = len({panel.lead[-1] for panel in found}) if found[0].lead else 1
    return last if 1 < last < len(found) and last <= 8 else min(len(found), 6)


def _tick_width(number: int) -> float:
    """Return the width of a tick label in pixels."""
    return 6.5 * len(str(number)) + 8


def _range_text(start: int, stop: int, extent: int) -> str:
    return ":" if (start, stop) == (0, extent) else f"{start}:{stop}"


def _visible_ticks(
    pieces: Sequence[Interval], scale: _Scale, room: Callable[[int], float]
) -> list[int]:
    """Return the tick positions whose labels do not overlap; the outermost are always included."""
    ends = sorted({end for piece in pieces for end in (piece.start, piece.stop)})
    shown = [ends[0]]
    for end in ends[1:-1]:
        apart = (room(shown[-1]) + room(end)) / 2
        before = scale[ends[-1]] - scale[end] >= (room(end) + room(ends[-1])) / 2
        if scale[end] - scale[shown[-1]] >= apart and before:
            shown.append(end)
    return shown if len(ends) == 1 else [*shown, ends[-1]]
