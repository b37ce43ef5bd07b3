"""Pictures of layouts as SVG without script: the shape, and the workers that store each region.

The last two dimensions are drawn as a rectangle, the others as a row or grid of such sections. A
colour is a worker; stripes are replicas on several workers; a dashed frame is a pending reduction.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple, Protocol, final

from magmath.layout.boxes import box_size, show_box
from magmath.layout.checks import LayoutParts
from magmath.layout.regions import ArraySection, Interval, Region, array_sections
from magmath.layout.split import Cyclic
from magmath.layout.svg_canvas import SvgCanvas, numbered_colour, text_colour

WIDTH = 640
"""Maximum width of a picture in pixels."""
LEGEND = 24
"""Maximum number of workers in the legend."""
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
    lengths = enumerate(layout.mesh.shape)
    return [_describe_placement(layout, axis) for axis, length in lengths if length > 1]


def _describe_placement(layout: DrawnLayout, mesh_axis: int) -> str:
    count, axis = layout.mesh.shape[mesh_axis], layout.axis_of(mesh_axis)
    pending = layout.partial[mesh_axis]
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
    """Return the colour of a worker."""
    return numbered_colour(worker)


@final
class _Scale:
    """Maps indices to pixels along one dimension, proportionally, with a minimum width."""

    def __init__(self, intervals: Sequence[Interval], pixels: float) -> None:
        hidden = sum(interval.hidden for interval in intervals) * _GAP
        shown = sum(i.stop - i.start for i in intervals if not i.hidden)
        min_width = min(7.0, (pixels - hidden) / max(1, len(intervals)))
        self.ends: dict[int, float] = {}
        position = 0.0
        for interval in intervals:
            self.ends[interval.start] = position
            share = (interval.stop - interval.start) / shown if shown else 1
            width = max(min_width, (pixels - hidden) * share)
            position += _GAP if interval.hidden else width
            self.ends[interval.stop] = position
        self.pixels = position

    def __getitem__(self, index: int) -> float:
        return self.ends[index]


@final
class _Drawing:
    """The picture of a layout, and the position below which the next part of it is drawn."""

    def __init__(self, layout: DrawnLayout, itemsize: int | None) -> None:
        self.layout = layout
        self.itemsize = itemsize
        self.canvas = SvgCanvas(f"{zlib.crc32(repr(layout.encode()).encode()):08x}")
        self.width = 0.0
        self.y = float(_MARGIN)

    def svg(self) -> str:
        return self.canvas.svg(self.width + _MARGIN, self.y + _MARGIN)

    # Parts of a picture.

    def heading(self, kind: str, dtype: str) -> None:
        layout = self.layout
        shape = " × ".join(map(str, layout.shape)) or "of no dimensions"
        title = " ".join(filter(None, (kind, shape, dtype)))
        size = format_amount(layout.size, self.itemsize)
        self._line(title, bold=True)
        self._line(f"{size} · {layout} · {', '.join(describe_placements(layout))}")
        self.y += _MARGIN

    def _line(self, text: str, bold: bool = False) -> None:
        """Add a line of text below the current position."""
        self.y += _LINE - 3
        size, weight = (13, "600") if bold else (11, "400")
        self.canvas.text(_MARGIN, self.y, text, size=size, weight=weight)
        self.y += 3
        self.width = max(self.width, _MARGIN + len(text) * (7.4 if bold else 6.0))

    def sections(self, sections: list[ArraySection]) -> None:
        first, labelled = sections[0], self.layout.ndim > 2
        columns = _column_count(sections)
        if len(sections) == 1:
            side = min(420.0, max(220.0, 19.0 * max(len(first.rows), len(first.columns))))
        else:
            side = max(64.0, min(140.0, WIDTH / columns - 48))
        height, width = _extents(self.layout, side)
        down, across = _Scale(first.rows, height), _Scale(first.columns, width)
        left = _MARGIN + _tick_width(first.rows[-1].stop) if self.layout.ndim > 1 else _MARGIN
        pitch = down.pixels + _LINE * labelled + _DEPTH + 8
        top = self.y + _LINE + _DEPTH * labelled
        for number, section in enumerate(sections):
            x = left + number % columns * (across.pixels + 26)
            y = top + number // columns * pitch
            self._section(section, x, y, down, across)
            if number % columns == 0 and self.layout.ndim > 1:
                self._ticks_down(section.rows, down, x - 5, y)
            if number < columns and self.layout.ndim > 0:
                self._ticks_across(section.columns, across, x, y - 5 - _DEPTH * labelled)
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
        width = 28 + 6.3 * max(len(text) for text in texts)
        columns = max(1, int(max(self.width, 520) // width))
        for number, text in enumerate(texts):
            x = _MARGIN + number % columns * width
            y = self.y + number // columns * _LINE
            if number < len(shown):
                self._swatch(shown[number], x, y)
            self.canvas.text(x + 17, y + 10, text)
            self.width = max(self.width, x + width)
        self.y += -(-len(texts) // columns) * _LINE

    def _share(self, worker: int) -> str:
        layout = self.layout
        if layout.shared and worker != layout.mesh.workers[0]:
            return "reads the shared copy"
        elements = layout.local_size(worker)
        return format_amount(elements, self.itemsize) if elements else "nothing"

    def _swatch(self, worker: int, x: float, y: float) -> None:
        is_empty = self.layout.local_size(worker) == 0
        fill = "none" if is_empty else worker_colour(worker)
        self.canvas.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" rx="2" fill="{fill}" '
            f'stroke="{worker_colour(worker)}"/>'
        )

    # A section.

    def _section(
        self, section: ArraySection, x: float, y: float, down: _Scale, across: _Scale
    ) -> None:
        canvas, width, height = self.canvas, across.pixels, down.pixels
        if self.layout.ndim > 2:
            pairs = zip(section.lead, self.layout.shape, strict=False)
            sides = [_range_text(*ends, extent) for ends, extent in pairs]
            canvas.text(x, y + height + 13, f"[{', '.join(sides)}]", opacity=0.75)
        if section.hidden:
            canvas.text(x + width / 2, y + height / 2, "⋯", anchor="middle", size=18)
            return
        if math.prod([stop - start for start, stop in section.lead]) > 1:
            for offset in (_DEPTH, _DEPTH // 2):
                canvas.frame(x + offset, y - offset, width, height, 0.35)
        if not section.regions or not self.layout.size:
            canvas.frame(x, y, width, height, 0.6, dashed=True)
            canvas.text(x + width / 2, y + height / 2 + 4, "empty", anchor="middle")
            return
        self._regions(section.regions, x, y, down, across)
        canvas.frame(x, y, width, height, 0.8, dashed=self.layout.is_partial)

    def _regions(
        self, regions: Sequence[Region], x: float, y: float, down: _Scale, across: _Scale
    ) -> None:
        """Add the regions of a section, then their labels on top."""
        rectangles = [_rectangle(region, x, y, down, across) for region in regions]
        dashes = ' stroke-dasharray="4 3"' if self.layout.is_partial else ""
        self.canvas.add(f'<g stroke="currentColor" stroke-opacity=".55" {dashes}>')
        for region, rectangle in zip(regions, rectangles, strict=True):
            self._region(region, rectangle)
        self.canvas.add('</g><g text-anchor="middle" pointer-events="none">')
        for region, rectangle in zip(regions, rectangles, strict=True):
            self._label(region, rectangle)
        self.canvas.add("</g>")

    def _region(self, region: Region, rectangle: _Rectangle) -> None:
        if region.holders:
            left, top, width, height = rectangle
            self.canvas.add(
                f'<rect x="{left:.4g}" y="{top:.4g}" width="{width:.4g}" height="{height:.4g}" '
                f'fill="{self._fill(region.holders)}">'
                f"<title>{escape(self._title(region))}</title></rect>"
            )

    def _label(self, region: Region, rectangle: _Rectangle) -> None:
        """Add the worker numbers of a region if they fit; on stripes with a dark background."""
        left, top, width, height = rectangle
        x, y = left + width / 2, top + height / 2
        if not region.holders:
            sign = "⋯" if width >= height else "⋮"
            self.canvas.add(f'<text x="{x:.4g}" y="{y + 4:.4g}" opacity=".7">{sign}</text>')
            return
        label = self._names(region.holders)
        if 6.5 * len(label) + 4 > width or height < 13:
            return
        colour = text_colour(worker_colour(region.holders[0]))
        if self._fill(region.holders).startswith("url"):
            background, colour = 6.5 * len(label) + 8, "#fff"
            self.canvas.add(
                f'<rect x="{x - background / 2:.4g}" y="{y - 8:.4g}" width="{background:.4g}" '
                f'height="16" rx="4" fill="#000" fill-opacity=".65"/>'
            )
        self.canvas.add(f'<text x="{x:.4g}" y="{y + 4:.4g}" fill="{colour}">{escape(label)}</text>')

    def _fill(self, holders: tuple[int, ...]) -> str:
        shown = holders[:1] if self.layout.shared else holders
        return self.canvas.fill(tuple([worker_colour(worker) for worker in shown]))

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
        size = format_amount(box_size(region.box), self.itemsize)
        names = ", ".join(map(str, region.holders[:16])) + ", …" * (len(region.holders) > 16)
        workers = f"worker{'s' * (len(region.holders) > 1)} {names}"
        return f"{show_box(region.box)} · {workers} · {size}"

    def _ticks_down(self, intervals: Sequence[Interval], scale: _Scale, x: float, y: float) -> None:
        for end in _visible_ticks(intervals, scale, lambda end: 13.0):
            self.canvas.text(x, y + scale[end] + 4, str(end), anchor="end", opacity=0.75)

    def _ticks_across(
        self, intervals: Sequence[Interval], scale: _Scale, x: float, y: float
    ) -> None:
        for end in _visible_ticks(intervals, scale, _tick_width):
            self.canvas.text(x + scale[end], y, str(end), anchor="middle", opacity=0.75)


def _extents(layout: DrawnLayout, side: float) -> tuple[float, float]:
    """Return height and width in pixels, proportional to the last two extents within limits."""
    if layout.ndim < 2:
        return 40.0, min(2.0 * side, WIDTH - 80) if layout.ndim else 40.0
    rows, columns = (max(1, extent) for extent in layout.shape[-2:])
    ratio = min(2.2, max(0.4, columns / rows))
    height = side if ratio <= 1 else side * max(0.6, 1 / ratio)
    return height, height * ratio


@final
class _Rectangle(NamedTuple):
    """A rectangle of a picture, in pixels."""

    left: float
    top: float
    width: float
    height: float


def _rectangle(region: Region, x: float, y: float, down: _Scale, across: _Scale) -> _Rectangle:
    """Return the rectangle of a region of a section at a position."""
    vertical, horizontal = ((0, 1), (0, 1), *region.box)[-2:]
    left, right = across[horizontal[0]], across[horizontal[1]]
    top, bottom = down[vertical[0]], down[vertical[1]]
    return _Rectangle(x + left, y + top, right - left, bottom - top)


def _column_count(sections: list[ArraySection]) -> int:
    """Return the number of columns of sections: for two leading dimensions, the extent of the
    second."""
    last = len({section.lead[-1] for section in sections}) if sections[0].lead else 1
    return last if 1 < last < len(sections) and last <= 8 else min(len(sections), 6)


def _tick_width(number: int) -> float:
    """Return the width of a tick label in pixels."""
    return 6.5 * len(str(number)) + 8


def _range_text(start: int, stop: int, extent: int) -> str:
    return ":" if (start, stop) == (0, extent) else f"{start}:{stop}"


def _visible_ticks(
    intervals: Sequence[Interval], scale: _Scale, label_pixels: Callable[[int], float]
) -> list[int]:
    """Return the tick positions whose labels do not overlap; the outermost are always included."""
    ends = sorted({end for interval in intervals for end in (interval.start, interval.stop)})

    def are_apart(first: int, second: int) -> bool:
        needed = (label_pixels(first) + label_pixels(second)) / 2
        return scale[second] - scale[first] >= needed

    shown = [ends[0]]
    for end in ends[1:-1]:
        if are_apart(shown[-1], end) and are_apart(end, ends[-1]):
            shown.append(end)
    return shown if len(ends) == 1 else [*shown, ends[-1]]
