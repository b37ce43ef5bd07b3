"""An SVG picture under construction: texts, frames, and fills of one colour or stripes of several.

Text has the colour of the page text, so it is readable on light and dark pages.
"""

from __future__ import annotations

import colorsys
import math
from html import escape
from typing import final

_COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f",
)  # fmt: skip
_STRIPE_PIXELS = 7
_MAX_STRIPES = 8


def numbered_colour(number: int) -> str:
    """Return the colour of a number: from a table, then hues at maximal distance."""
    if number < len(_COLOURS):
        return _COLOURS[number]
    hue = number * 0.618033988749895 % 1  # the golden ratio: never near the ones before
    red, green, blue = colorsys.hls_to_rgb(hue, 0.55, 0.45)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def text_colour(background: str) -> str:
    """Return black or white, the more readable one on a background colour."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


@final
class SvgCanvas:
    """The elements of a picture. `key`: a prefix of identifiers that no other picture of a page
    has."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._elements: list[str] = []
        self._patterns: dict[tuple[str, ...], str] = {}

    def add(self, markup: str) -> None:
        """Add an element, or an opening or closing tag."""
        self._elements.append(markup)

    def text(
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
        """Add a text at a position, which `anchor` ("start", "middle" or "end") describes."""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill-opacity="{opacity}">{escape(text)}</text>'
        )

    def frame(
        self, x: float, y: float, width: float, height: float, opacity: float, dashed: bool = False
    ) -> None:
        """Add the outline of a rectangle."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self.add(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="none" '
            f'stroke="currentColor" stroke-opacity="{opacity}"{dashes}/>'
        )

    def fill(self, colours: tuple[str, ...]) -> str:
        """Return the value of `fill` for one colour, or for stripes of several."""
        if len(colours) == 1:
            return colours[0]
        name = self._patterns.setdefault(colours, f"mm{self._key}-{len(self._patterns)}")
        return f"url(#{name})"

    def svg(self, width: float, height: float) -> str:
        """Return the picture of a size in pixels."""
        columns, rows = math.ceil(width), math.ceil(height)
        patterns = "".join(_stripes(colours, name) for colours, name in self._patterns.items())
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns}" height="{rows}" '
            f'viewBox="0 0 {columns} {rows}" role="img" font-family="system-ui, sans-serif" '
            f'font-size="11" fill="currentColor">'
            f"<defs>{patterns}</defs>{''.join(self._elements)}</svg>"
        )


def _stripes(colours: tuple[str, ...], name: str) -> str:
    """Return a pattern of diagonal stripes, of the first colours if there are many."""
    shown = colours[:_MAX_STRIPES]
    bars = "".join(
        f'<rect x="{i * _STRIPE_PIXELS}" width="{_STRIPE_PIXELS}" height="8" fill="{colour}"/>'
        for i, colour in enumerate(shown)
    )
    return (
        f'<pattern id="{name}" width="{_STRIPE_PIXELS * len(shown)}" height="8" '
        f'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">{bars}</pattern>'
    )
