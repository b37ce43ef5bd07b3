"""Meshes, layouts and layout rules: owners, printing, encoding, errors."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts import layouts, meshes, pieces, shapes
from magmath.core.index_set import IndexSet, tile_shape
from magmath.errors import LayoutError
from magmath.layout import CutPieces, Cyclic, Layout, Mesh, Rule, Split, even_cuts

POOL = Mesh.line(4)
NAMED = Mesh((2, 2), ("data", "model"))


# Meshes -----------------------------------------------------------------------------------------


@given(meshes())
def test_mesh_coordinates_are_row_major(mesh: Mesh) -> None:
    grid = np.array(mesh.workers).reshape(mesh.shape)
    assert mesh.size == grid.size
    for worker in range(8):
        coordinate = mesh.coordinate(worker)
        if worker not in mesh.workers:
            assert coordinate is None
            assert mesh.position(worker) is None
            continue
        assert coordinate is not None
        assert grid[coordinate] == worker
        assert mesh.workers[mesh.position(worker) or 0] == worker


def test_mesh_axes_have_names() -> None:
    assert NAMED.axis("model") == NAMED.axis(-1) == NAMED.axis(1) == 1
    assert str(NAMED) == "Mesh(data=2 x model=2)"
    assert str(Mesh((3,), None, (4, 5, 6))) == "Mesh(3 on 4-6)"
    with pytest.raises(LayoutError, match=r"'pipeline'.*'data', 'model'"):
        NAMED.axis("pipeline")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((),), "at least 1"),
        (((2, 0),), "at least 1"),
        (((2,), None, (0, 1, 2)), "needs 2 workers, 3"),
        (((2,), None, (1, 1)), "at most once"),
        (((2,), None, (-1, 0)), "from 0 up"),
        (((2, 2), ("a",)), "names"),
        (((2, 2), ("a", "a")), "names"),
        (((2,), (3,)), "names"),
        (((2,), 3), "names"),
        (((1,), ([],)), "names"),
        (((2,), None, 5), "workers must be integers"),
        (((2,), None, (0, "a")), "workers must be integers"),
    ],
)
def test_mesh_errors(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Mesh(*arguments)  # type: ignore[arg-type]


def test_meshes_are_immutable_values() -> None:
    assert Mesh(4) == Mesh.line(4) == Mesh((4,), ("0",), range(4))
    assert Mesh.line(4) != NAMED
    assert len({Mesh(4), Mesh.line(4), NAMED}) == 2
    with pytest.raises(FrozenInstanceError):
        Mesh.line(4).shape = (2,)  # type: ignore[misc]


# Splits -----------------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 12))
def test_even_cuts_put_the_longer_pieces_first(extent: int, count: int) -> None:
    lengths = np.diff(even_cuts(extent, count)).tolist()
    assert sum(lengths) == extent
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


@given(st.data(), st.integers(0, 30), st.integers(1, 6))
def test_pieces_share_out_every_index_once(data: st.DataObject, extent: int, count: int) -> None:
    split = Split(0, data.draw(pieces(extent, count)))
    held = [split.indices_at(coordinate).indices() for coordinate in range(count + 2)]
    assert sorted(np.concatenate(held).tolist()) == list(range(extent))
    assert split.extent == extent
    assert not len(held[count])
    assert split.pieces.span <= count


def test_cyclic_pieces_are_dealt_in_turn() -> None:
    cyclic = Cyclic(11, 2, 3)
    assert cyclic.indices_at(0).indices().tolist() == [0, 1, 6, 7]
    assert cyclic.indices_at(2).indices().tolist() == [4, 5, 10]
    assert Cyclic(10**15, 1, 3).indices_at(1).size == 333333333333333


def test_a_rule_needs_a_mesh() -> None:
    with pytest.raises(LayoutError, match=r"split\(0\).over needs a mesh, was given \[1, 2\]"):
        Layout.split(0).over([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CutPieces((0, 5, 3), (0, 1)), "ascend"),
        (lambda: CutPieces((1, 5), (0,)), "ascend from 0"),
        (lambda: CutPieces((), ()), "ascend"),
        (lambda: CutPieces((0, 5), (0, 1)), "1 pieces need as many owners"),
        (lambda: CutPieces((0, 5), (-1,)), "from 0 up"),
        (lambda: Cyclic(5, 0, 1), "block 0"),
        (lambda: Cyclic(-5, 1, 1), "extent -5"),
    ],
)
def test_piece_errors(make: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        make()  # type: ignore[operator]


# Layouts ----------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.data(), shapes)
def test_tiles_cover_the_array_as_often_as_it_is_replicated(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    layout = data.draw(layouts(shape))
    count = np.zeros(shape, int)
    sizes = []
    for worker in range(8):
        tiles = layout.tiles(worker)
        shapes_of_tiles = [tile_shape(tile) for tile in tiles]
        for tile in tiles:
            count[np.ix_(*[indices.indices() for indices in tile])] += 1
        size = sum(math.prod(shape) for shape in shapes_of_tiles)
        assert math.prod(layout.local_shape(worker)) == layout.local_size(worker) == size
        assert [span for _, span in layout.tile_spans(worker)] == shapes_of_tiles
        if worker not in layout.mesh.workers:
            assert not tiles
            assert layout.local_size(worker) == 0
        elif layout.boxes is None:
            assert layout.local_shape(worker) == shapes_of_tiles[0]
        sizes.append(size)
    copies = layout.mesh.size // math.prod(
        [n for a, n in enumerate(layout.mesh.shape) if layout.axis_of(a) is not None]
    )
    assert (count == (copies if layout.boxes is None else 1)).all()
    if not layout.is_partial:
        assert layout.has_replicas == (layout.boxes is None and copies > 1)
    assert layout.max_local_size == max(sizes)
    whole = all(layout.local_size(w) == layout.size for w in layout.mesh.workers)
    if layout.boxes is None and not layout.is_partial and layout.is_replicated:
        assert whole
    if layout.shared:
        assert layout.is_replicated


@settings(max_examples=100)
@given(st.data(), shapes)
def test_encoding_survives_msgpack_and_identity_survives_copies(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    layout = data.draw(layouts(shape))
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(layout.encode()))
    for other in (Layout.decode(travelled), pickle.loads(pickle.dumps(layout)), copy.copy(layout)):
        assert other == layout
        assert hash(other) == hash(layout)
        assert str(other) == str(layout)
        assert [other.tiles(w) for w in range(7)] == [layout.tiles(w) for w in range(7)]


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=30))
def test_decoding_anything_else_is_a_layout_error(encoded: object) -> None:
    with pytest.raises(LayoutError):
        Layout.decode(encoded)


@given(st.data(), shapes)
def test_decoding_a_damaged_layout_is_a_layout_error_or_another_layout(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    encoded = list(data.draw(layouts(shape)).encode())
    number = st.integers(-9, 9) | st.sampled_from([2**31, 2**64 - 1])
    junk = st.recursive(st.none() | number | st.text(max_size=3), st.lists)
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(junk)
    try:
        decoded = Layout.decode(encoded)
    except LayoutError:
        return
    assert Layout.decode(decoded.encode()) == decoded


def test_layouts_are_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        Layout.replicated_on((2,), POOL).shape = (3,)  # type: ignore[misc]


def test_helpers_of_planners() -> None:
    partial = Layout((8, 6), NAMED, (Split.even(0, 8, 2), None), (None, "max"))
    assert partial.is_partial
    assert partial.reduction == "max"
    assert not partial.is_replicated
    assert (partial.mesh_axis_of(0), partial.mesh_axis_of(1)) == (0, None)
    assert (partial.axis_of(0), partial.axis_of(1)) == (0, None)
    reduced = partial.without_partial()
    assert reduced == Layout.even((8, 6), NAMED, 0)
    assert reduced.without_partial() is reduced
    grid = reduced.replace_split(1, Split.even(1, 6, 2))
    assert grid == Layout.grid((2, 2)).bind((8, 6), NAMED)
    assert grid.splits[1] == Split.even(1, 6, 2)
    assert grid.replace_split(0, None).replace_split(1, None) == Layout.replicated_on((8, 6), NAMED)
    assert Layout.even((8, 6), Mesh.line(1), 0).is_replicated


def test_a_worker_outside_the_mesh_stores_an_empty_tensor() -> None:
    assert Layout.on(1).bind((), POOL).local_shape(0) == (0,)
    assert Layout.on(1).bind((), POOL).local_shape(1) == ()
    assert Layout.on(1).bind((3, 4), POOL).local_shape(0) == (0, 0)
    boxes = Layout.blocks([([(0, 3)], 1)]).bind((3,), POOL)
    assert boxes.local_shape(0) == (0,)


def test_boxes_lie_one_after_another() -> None:
    boxes = [(((0, 2), (0, 3)), 1), (((2, 4), (0, 3)), 0), (((0, 4), (3, 5)), 1)]
    layout = Layout.blocks(boxes).bind((4, 5), POOL)
    assert layout.local_shape(1) == (14,)
    assert layout.tile_spans(1) == ((0, (2, 3)), (6, (4, 2)))
    assert layout.tiles(1)[1] == (IndexSet.range(0, 4), IndexSet.range(3, 5))
    assert layout.tiles(3) == ()


@pytest.mark.parametrize(
    ("rule", "mesh", "text"),
    [
        (Layout.replicated(), POOL, "R"),
        (Layout.replicated(), NAMED, "R"),
        (Layout.split(0), POOL, "S(0)"),
        (Layout.split(-1), NAMED, "S(1)"),
        (Layout.split(0, (0, 2, 2, 10)), POOL, "S(0: 2+0+8)"),
        (Layout.split(0, mesh_axis="model"), NAMED, "[R@data, S(0)@model]"),
        (Layout.grid((2, 2)).over(NAMED), POOL, "[S(0)@data, S(1)@model]"),
        (Layout.grid((1, 2)), POOL, "[S(0)@0, S(1)@1]"),
        (Layout.cyclic(1, 3), POOL, "S(1 by 3)"),
        (Layout.block_cyclic((2, 3), (2, 2)), POOL, "[S(0 by 2)@0, S(1 by 3)@1]"),
        (Layout.on(2), POOL, "R on 2"),
        (Layout.split(0).over(Mesh((3,), None, (1, 2, 3))), POOL, "S(0) on 1-3"),
        (Layout.split(0).over(Mesh((2,), None, (3, 0))), POOL, "S(0) on 3,0"),
        (Layout.blocks([((slice(None), slice(0, 8)), 3)]), POOL, "boxes(1)"),
    ],
)
def test_layouts_print_short(rule: Rule, mesh: Mesh, text: str) -> None:
    layout = rule.bind((10, 8), mesh)
    assert str(layout) == text
    assert repr(layout) == f"<Layout of (10, 8): {text}>"


def test_partial_and_shared_layouts_print_short() -> None:
    assert str(Layout((3,), POOL, (None,), ("sum",))) == "P(sum)"
    assert (
        str(Layout((3,), NAMED, (Split.even(0, 3, 2),), (None, "any")))
        == "[S(0)@data, P(any)@model]"
    )
    assert str(Layout.replicated_on((3,), POOL, shared=True)) == "R, shared"


def test_rules_print_as_they_are_written() -> None:
    assert str(Layout.split(0, (0, 3))) == "Layout.split(0, (0, 3))"
    assert str(Layout.split(0, mesh_axis="data")) == "Layout.split(0, mesh_axis='data')"
    assert str(Layout.block_cyclic((2, 3), (1, 2))) == "Layout.block_cyclic((2, 3), (1, 2))"
    assert str(Layout.on(1).over(POOL)) == "Layout.on(1).over(Mesh(4))"
    assert Layout.cyclic(0, 2) == Layout.cyclic(0, block=2)
    assert len({Layout.grid((2, 2)), Layout.grid([2, 2]), Layout.replicated()}) == 2


def test_a_grid_takes_the_first_workers() -> None:
    layout = Layout.grid((2, 1)).bind((10, 8), POOL)
    assert layout.mesh.workers == (0, 1)
    assert layout.local_shape(1) == (5, 8)
    assert layout.local_shape(2) == (0, 0)


def test_an_unnamed_axis_divides_over_all_workers() -> None:
    assert Layout.split(0).bind((8,), NAMED).local_shape(3) == (2,)
    assert Layout.split(0, mesh_axis="data").bind((8,), NAMED).local_shape(3) == (4,)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Layout.split(2), r"dimension 2.*shape \(10, 8\)"),
        (Layout.split(-3), "dimension -3"),
        (Layout.grid((1, 2, 2)), "dimension 2"),
        (Layout.split(0, mesh_axis="model"), "no axis 'model'"),
        (Layout.split(0, mesh_axis=1), "no axis 1"),
        (Layout.split(0, mesh_axis="model").over(Mesh(4, ("data",))), "no axis 'model'.*'data'"),
        (Layout.grid((2, 3)), r"needs 6 workers, there are 4.*workers=6"),
        (Layout.on(4), r"workers \[4\].*\(0, 1, 2, 3\).*mm.init"),
        (Layout.on(3).over(Mesh.line(2)), r"workers \[3\]"),
        (Layout.split(0).over(Mesh.line(6)), r"workers \[4, 5\]"),
        (Layout.split(2).over(Mesh.line(2)), r"^Layout.split\(2\).over\(Mesh\(2\)\) needs"),
        (Layout.on(3).over(Mesh.line(2)), r"^Layout.on\(3\).over\(Mesh\(2\)\) needs workers"),
        (Layout.split(0, (0, 5)), "the first 0, the last 10"),
        (Layout.split(0, (2, 10)), "the first 0, the last 10"),
        (Layout.split(0, ()), "the first 0, the last 10"),
        (Layout.split(0, (0, 1, 2, 3, 4, 10)), "at most 4 pieces"),
        (Layout.split(0, (0, 6, 5, 10)), "ascend"),
        (Layout.blocks([(((0, 10), (0, 8)), 4)]), r"workers \[4\]"),
        (Layout.blocks([(((0, 10), (0, 7)), 0)]), r"10 elements are in no box.*\[0:10, 7:8\]"),
        (Layout.blocks([]), r"80 elements are in no box"),
        (
            Layout.blocks([(((0, 10), (0, 8)), 0), (((9, 10), (7, 8)), 1)]),
            r"\[0:10, 0:8\] and \[9:10, 7:8\] overlap",
        ),
        (Layout.blocks([(((0, 11), (0, 8)), 0)]), r"\[0:11, 0:8\] is not inside"),
        (Layout.blocks([(((5, 2), (0, 8)), 0)]), "is not inside"),
        (Layout.blocks([(((0, 10),), 0)]), "boxes of 2 sides, not 1"),
    ],
)
def test_rules_that_do_not_fit_say_so(rule: Rule, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        rule.bind((10, 8), POOL)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout.grid(()), "at least 1"),
        (lambda: Layout.grid((2, 0)), "at least 1"),
        (lambda: Layout.cyclic(0, 0), "at least 1"),
        (lambda: Layout.block_cyclic((2,), (1, 2)), "one block length for each axis"),
        (lambda: Layout.blocks([((slice(0, 10, 2),), 0)]), "contiguous"),
        (lambda: Layout.split(0).bind((), POOL), "no dimensions.*replicated"),
        (lambda: Layout((3,), POOL, ()), "needs 1 splits"),
        (lambda: Layout((3,), POOL, (Split.even(1, 3, 4),)), "axis 1"),
        (lambda: Layout((3,), POOL, (Split.even(0, 4, 4),)), "length 3, its split is of length 4"),
        (lambda: Layout((9,), POOL, (Split.even(0, 9, 5),)), "coordinate 4"),
        (lambda: Layout((9, 9), POOL, (Split.even(0, 9, 4),) * 2), "both split along mesh axis 0"),
        (lambda: Layout((3,), POOL, (Split.even(0, 3, 4),), ("sum",)), "both splits"),
        (lambda: Layout((3,), POOL, (None,), ("mean",)), "sum, prod"),
        (lambda: Layout((3,), NAMED, (None,), ("sum", "max")), "one name"),
        (lambda: Layout((3,), NAMED, (None,), ("sum",)), "2 mesh axes"),
        (lambda: Layout((3,), POOL, (None,), ("sum",), shared=True), "must be replicated"),
        (lambda: Layout((-3,), POOL, (None,)), "from 0 up"),
        (lambda: Layout((2**40, 2**40), POOL, (None, None)), "at most 2"),
        (lambda: Layout((0, 2**70), POOL, (None, None)), "at most 2"),
        (
            lambda: Layout((3,), POOL, (Split.even(0, 3, 4),), boxes=((((0, 3),), 0),)),
            "no splits",
        ),
    ],
)
def test_contradictions_say_so(make: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        make()  # type: ignore[operator]
