"""Display of arrays: the text equals NumPy's and fetches only the shown elements; pictures show the
owners, and a browser draws them completely."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from layouts import layouts, shapes
from magmath.layout import CutPieces, Cyclic, Layout, Mesh, Split, regions
from magmath.layout.regions import array_sections
from magmath.layout.svg import draw_layout, worker_colour

SVG = "{http://www.w3.org/2000/svg}"


# Text ---------------------------------------------------------------------------------------------


@given(
    shape=st.lists(st.integers(0, 12), max_size=3).map(tuple),
    threshold=st.integers(0, 60),
    edge=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "int64", "complex64", "bool"]),
)
def test_text_is_numpys(shape: tuple[int, ...], threshold: int, edge: int, dtype: str) -> None:
    truth = (np.random.default_rng(len(shape)).normal(size=shape) * 9).astype(dtype)
    with current("shared", 3), np.printoptions(threshold=threshold, edgeitems=edge):
        assert str(mm.asarray(truth)) == str(truth)


@given(
    shape=st.lists(st.integers(0, 12), max_size=3).map(tuple),
    threshold=st.sampled_from([None, 0, 20, 1 << 40]),
    edge=st.sampled_from([None, 1, 5]),
)
def test_options_of_the_text_are_numpys(
    shape: tuple[int, ...], threshold: int | None, edge: int | None
) -> None:
    truth = np.arange(math.prod(shape)).reshape(shape)
    options: dict[str, Any] = {"threshold": threshold, "edgeitems": edge, "separator": ", "}
    with current("inline"), np.printoptions(threshold=10, edgeitems=2):
        expected = np.array2string(truth, **options)
        assert mm.array2string(mm.asarray(truth), **options) == expected
        assert np.array2string(mm.asarray(truth), **options) == expected


def test_the_prompt_shows_values_shape_type_and_layout() -> None:
    with current("shared", 2):
        array = mm.asarray([[1.0, 2.0], [3.0, 4.0]], layout=mm.Layout.split(0))
        assert repr(array) == (
            "magmath.Array([[1., 2.],\n"
            "               [3., 4.]], shape=(2, 2), dtype=float32, layout=S(0))"
        )


def test_only_the_edges_of_a_large_array_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    with current("messages", 3) as pool:
        array = mm.asarray(np.arange(300 * 400).reshape(300, 400), layout=mm.Layout.cyclic(0))
        get = pool.get
        monkeypatch.setattr(pool, "get", lambda number: noted(get(number), fetched))
        text = str(array)
    assert text.startswith("[[     0      1      2 ...    397    398    399]")
    assert text.endswith("[119600 119601 119602 ... 119997 119998 119999]]")
    assert sum(fetched) == 49


def noted(values: Any, fetched: list[int]) -> Any:
    fetched.append(values.numel())
    return values


# Owners -----------------------------------------------------------------------------------------


@given(data=st.data())
def test_regions_are_what_the_workers_hold(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    layout = data.draw(layouts(shape))
    held = np.zeros((max(layout.mesh.workers) + 1, *shape), int)
    for panel in array_sections(layout):
        for region in panel.regions:
            for worker in region.holders:
                held[(worker, *[slice(*ends) for ends in region.box])] += 1
    truth = np.zeros_like(held)
    for worker in layout.mesh.workers:
        for tile in layout.tiles(worker):
            truth[np.ix_([worker], *[indices.indices() for indices in tile])] += 1
    np.testing.assert_array_equal(held, truth)


@given(data=st.data())
def test_omitted_parts_are_marked_and_the_others_are_correct(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(20, 90)), data.draw(st.integers(20, 90)))
    grid = Mesh((2, 3))
    layout = Layout(
        shape, grid, (Split(0, Cyclic(shape[0], 1, 2)), Split(1, Cyclic(shape[1], 2, 3)))
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regions, "MAX_RECTANGLES", 49)
        (panel,) = array_sections(layout)
    assert len(panel.regions) <= 49
    seen = np.zeros(shape, int)
    for region in panel.regions:
        seen[tuple(slice(*ends) for ends in region.box)] += 1
        for worker in region.holders:
            tile = layout.tiles(worker)[0]
            assert all(
                start in indices and stop - 1 in indices
                for (start, stop), indices in zip(region.box, tile, strict=True)
            )
    assert (seen == 1).all()
    assert any(not region.holders for region in panel.regions)


# The picture --------------------------------------------------------------------------------------


def drawings() -> dict[str, Layout]:
    """Layouts of every kind, with few and with hundreds of tiles."""
    line, square = Mesh.line(4), Mesh((2, 2), ("data", "model"))
    random = np.random.default_rng(0)
    strips = [
        ((i * 20, i * 20 + 20), (j * 30, j * 30 + 30)) for i, j in product(range(18), range(17))
    ]
    return {
        "rows": Layout.split(0).bind((1024, 512), line),
        "grid": Layout.grid((2, 2)).bind((6000, 9000), line),
        "uneven": Layout((100,), line, (Split(0, CutPieces((0, 10, 10, 70, 100), (2, 1, 0, 3))),)),
        "cyclic": Layout.cyclic(0).bind((1000000,), line),
        "block-cyclic": Layout.block_cyclic((64, 64), (2, 2)).bind((1000, 1000), line),
        "replicated": Layout.replicated().bind((300, 200), line),
        "shared": Layout.replicated_on((300, 200), line, shared=True),
        "pending": Layout((512, 512), square, (Split.even(0, 512, 2), None), (None, "sum")),
        "a number": Layout.replicated().bind((), line),
        "empty": Layout.split(0).bind((0, 5), line),
        "volume": Layout.split(0).bind((64, 224, 224), line),
        "few rows": Layout.split(0).bind((10,), Mesh.line(32)),
        "few sections": Layout.split(0).bind((5, 4, 4), Mesh.line(16)),
        "no rows": Layout.split(0).bind((0, 4), Mesh.line(32)),
        "batch": Layout.grid((2, 2, 2)).bind((128, 64, 56, 56), Mesh.line(8)),
        "many": Layout.grid((16, 16)).bind((8192, 8192), Mesh.line(256)),
        "many sections": Layout.split(0).bind((128, 3, 224, 224), Mesh.line(64)),
        "boxes": Layout(
            (360, 510), Mesh.line(9), (None, None),
            boxes=tuple((box, int(random.integers(9))) for box in strips),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", drawings())
def test_a_picture_is_plain_svg_that_names_every_worker(name: str) -> None:
    layout = drawings()[name]
    text = draw_layout(layout, 4, "Array", "float32")
    root = ElementTree.fromstring(text)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "defs", "pattern", "g", "rect", "text", "title"}
    assert "javascript" not in text
    assert len(text) < 100_000
    words = " ".join(element.text or "" for element in root.iter())
    for worker in layout.mesh.workers[:20]:
        assert f"worker {worker}:" in words
    assert str(layout) in words
    if layout.mesh.size > 30:
        assert re.search(r"… and \d+ more", words)


def test_a_region_says_what_it_is_and_how_large() -> None:
    text = draw_layout(Layout.split(0).bind((1000, 50), Mesh.line(2)), 8, "Array", "float64")
    assert "<title>[500:1000, 0:50] · worker 1 · 200 kB</title>" in text
    pending = Layout((4,), Mesh.line(2), (None,), ("max",))
    assert "2 parts whose max is the array" in draw_layout(pending)


def test_names_of_axes_are_text() -> None:
    mesh = Mesh((2, 2), ("<script>alert(1)</script>", "b"))
    layout = Layout.split(0, mesh_axis="b").bind((8, 8), mesh)
    assert "<script" not in layout._repr_html_()
    assert "&lt;script&gt;" in layout._repr_html_()


def test_an_array_shows_picture_and_values() -> None:
    with current("shared", 2):
        html = mm.asarray([[1.5, 2.5]] * 2, layout=mm.Layout.split(0))._repr_html_()
    ElementTree.fromstring(html)
    assert "Array 2 × 2 float32" in html
    assert "<pre" in html
    assert "[1.5 2.5]" in html


# In a browser -------------------------------------------------------------------------------------

CHROMIUM = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; apt-get install chromium")


def chromium(page: Path, *options: str) -> str:
    """What headless Chromium makes of a page."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent}/profile",
         *options, page.as_uri()],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@browser
def test_a_browser_finds_everything_inside_the_picture(tmp_path: Path) -> None:
    """Fonts differ: what is drawn, as the browser measures it, must not be cut off."""
    pictures = "".join(draw_layout(layout, 4, "Array", "float32") for layout in drawings().values())
    page = tmp_path / "page.html"
    page.write_text(
        f"<body>{pictures}<p id='found'></p><script>"
        "const all = [...document.querySelectorAll('svg')].map(svg => { const box = svg.getBBox();"
        "return [box.x, box.y, box.x + box.width - svg.width.baseVal.value,"
        "box.y + box.height - svg.height.baseVal.value].map(Math.round).join(',') });"
        "document.getElementById('found').textContent = all.join(' ');</script></body>"
    )
    (found,) = re.findall(r'<p id="found">(.*?)</p>', chromium(page, "--dump-dom"))
    measured = [[int(number) for number in box.split(",")] for box in found.split()]
    for name, (left, top, right, bottom) in zip(drawings(), measured, strict=True):
        assert left >= 0, name
        assert top >= 0, name
        assert right <= 0, name
        assert bottom <= 0, name


@browser
@pytest.mark.parametrize(("paper", "ink"), [("#fff", "#222"), ("#111", "#ddd")])
def test_a_browser_paints_each_workers_share(paper: str, ink: str, tmp_path: Path) -> None:
    cuts = (0, 100, 300, 600, 1000)
    layout = Layout.split(0, cuts).bind((1000, 1000), Mesh.line(4))
    page, shot = tmp_path / "page.html", tmp_path / "shot.png"
    page.write_text(
        f"<body style='background: {paper}; color: {ink}'>{draw_layout(layout, 4)}</body>"
    )
    chromium(page, f"--screenshot={shot}", "--window-size=700,500")
    pixels = np.round(matplotlib.image.imread(shot)[:, :, :3] * 255).astype(int)
    areas = [painted(pixels, worker_colour(worker)) for worker in range(4)]
    shares = np.array(areas) / sum(areas)
    np.testing.assert_allclose(shares, np.diff(cuts) / 1000, atol=0.03)
    assert painted(pixels, "#" + "".join(2 * sign for sign in ink[1:])) > 50, (
        "text has the page's colour"
    )


def painted(pixels: np.ndarray[Any, Any], name: str) -> int:
    """How many pixels have a colour."""
    wanted = np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)])
    return math.prod(pixels.shape[:2]) - int((abs(pixels - wanted) > 2).any(axis=2).sum())
