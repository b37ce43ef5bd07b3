"""Draws the pictures of `docs/arrays.md` into the folder that is given, or this one."""

from __future__ import annotations

import sys
from pathlib import Path

from magmath import Layout, Mesh
from magmath.layout.svg import draw_layout

PICTURES = {
    "block_cyclic": Layout.block_cyclic((128, 128), (2, 2)).bind((512, 768), Mesh.line(4)),
    "batch": Layout.grid((2, 2)).bind((128, 64, 56, 56), Mesh.line(4)),
}


def draw(folder: Path) -> None:
    """Write each picture, its text in a grey that can be read on white and on black."""
    for name, layout in PICTURES.items():
        drawn = draw_layout(layout, 4, "Array", "float32")
        (folder / f"{name}.svg").write_text(drawn.replace("<svg ", '<svg color="#808080" ', 1))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
