"""Figures for the report, and their conversion to SVG that is embedded in an HTML page."""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 5.0
"""The width of figures in inches: text of 10 points stays legible on a telephone."""


def new_figure(height: float = 3.4) -> Figure:
    """Return an empty figure, as wide as the report's column; `height` in inches.

    Several panels are placed below each other, not next to each other.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def inline_svg(figure: Figure, name: str) -> str:
    """Return the figure as an SVG element; `name`, a word, makes its identifiers unique in a page.

    Unused identifiers are removed. Text remains text.
    """
    import matplotlib as mpl

    stream = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:xlink:)?href="#([^"]+)"', svg)) | set(
        re.findall(r"url\(#([^)]+)\)", svg)
    )
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'((?:xlink:)?href="#)([^"]+")', rf"\g<1>{name}-\g<2>", svg)
    return re.sub(r"(url\(#)", rf"\g<1>{name}-", svg)
