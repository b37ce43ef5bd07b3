"""The passes: each keeps the results of a graph; and the purpose of each one."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from executors import use_native_code
from graphs import expressions, held_variable, leaf_of, numpy_values, stepping
from magmath.core.dtypes import DType, bool_, float32, float64, int64, uint64
from magmath.engine.engine import Engine
from magmath.engine.remote_array import remote_array_of
from magmath.errors import ProtocolError
from magmath.graph import Graph, Node, apply
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, Mesh
from magmath.nn import Dense, NeuralNetwork
from magmath.ops import OPERATIONS
from magmath.ops.creation import full
from magmath.ops.leaves import constant, input_leaf, scalar, variable_leaf
from magmath.ops.manipulation import permute, reshape
from magmath.ops.product.contraction import matmul
from magmath.ops.redistribute import redistribute
from magmath.ops.slicing import SET_SLICE
from magmath.ops.sums import broadcast_to
from magmath.passes import pipeline
from magmath.passes.aliasing import is_slice_view
from magmath.passes.candidate_cost import CostCache, cost_cache_of
from magmath.passes.candidates import layout_candidates
from magmath.passes.fold_epilogues import fold_epilogues
from magmath.passes.place import place
from magmath.passes.simplify import merge_equal, simplify
from magmath.program.arena import arrange
from magmath.program.encoding import decode, encode
from magmath.program.instructions import Barrier, Call, Program, Redistribute
from operation_bodies import values

KINDS = [("inline", 1), ("planned", 1), ("shared", 2), ("shared", 3), ("shared", 4), ("messages", 2),
         ("messages", 3), ("overlapped", 2), ("overlapped", 3), ("exact", 3)]  # fmt: skip
phases = [Phase.explicit, Phase.reuse, Phase.generate]
random_graphs = settings(max_examples=25, suppress_health_check=list(HealthCheck), phases=phases)
every_kind = pytest.mark.parametrize(
    ("kind", "workers"), KINDS, ids=[f"{n}-{kind}" for kind, n in KINDS]
)


# the same values ---------------------------------------------------------------------------------


@every_kind
@given(data=st.data())
@random_graphs
def test_planned_expressions_compute_what_numpy_does(
    kind: str, workers: int, data: st.DataObject
) -> None:
    engine = engine_of(kind, workers)
    outputs, known = data.draw(expressions(engine))
    expected = numpy_values(outputs, dict(known))
    for result, value in zip(values(engine, *outputs), expected, strict=True):
        np.testing.assert_allclose(result.numpy(), value, rtol=1e-10, atol=1e-10)
    for leaf, value in known.items():
        stored = engine.pool.get(remote_array_of(leaf).array_id).numpy()
        np.testing.assert_array_equal(stored, value)


@every_kind
@given(data=st.data())
@random_graphs
def test_planned_steps_compute_what_numpy_does(
    kind: str, workers: int, data: st.DataObject
) -> None:
    """Several steps in one run, twice: buffers that are overwritten, read by others, and kept."""
    check_steps(engine_of(kind, workers), data)


def check_steps(engine: Engine, data: st.DataObject) -> None:
    """Assert that runs of a random program leave NumPy's values."""
    steps = data.draw(stepping(engine))
    graph = engine.pending_graph(steps.graph)
    compiled = engine.compile(graph)
    for count in (data.draw(st.integers(1, 4)), 1, 2):
        outputs, run = engine.runs.run(compiled, graph.leaves, steps=count)
        for target, fresh in zip(graph.targets, outputs, strict=True):
            assert target is not None
            target.value().set_value(fresh)
        expected = [value for _ in range(count) for value in steps.advance()]
        np.testing.assert_allclose(run.values(), expected, rtol=1e-9, atol=1e-9)
        for leaf, value in steps.values.items():
            held = engine.pool.get(remote_array_of(leaf).array_id).numpy()
            np.testing.assert_allclose(held, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@given(data=st.data())
@settings(random_graphs, max_examples=15)
def test_native_steps_compute_what_numpy_does(kind: str, workers: int, data: st.DataObject) -> None:
    """The same, by compiled programs: loops that are joined read what they should."""
    with pytest.MonkeyPatch.context() as patch:
        use_native_code(patch)
        check_steps(engine_of(kind, workers), data)


# what holds of every planned graph and program
# ------------------------------------------------------------


def planned_programs(data: st.DataObject, engine: Engine) -> Program:
    """A random program of the engine's pool."""
    if data.draw(st.booleans()):
        outputs, _ = data.draw(expressions(engine))
        return engine.compile(engine.pending_graph(Graph(tuple(outputs)))).program
    return engine.compile(engine.pending_graph(data.draw(stepping(engine)).graph)).program


def check_placed(graph: Graph) -> None:
    """Every node's operands have layouts that its index notation permits; no output has a pending
    reduction."""
    for node in graph.nodes:
        assert node.layout is not None
        assert node.layout.shape == node.shape
        if node.is_leaf or node.name in ("redistribute", "constant"):
            continue
        if node.name == "slice" and layout_of(node.inputs[0]).has_overlaps:
            assert is_slice_view(node), "a part of a copy with halos"
            continue
        structure = node.index_notation
        splits: dict[str, Any] = {}
        following = []
        numbered = enumerate((*structure.inputs, structure.output))
        for (number, letters), layout in zip(numbered, (*_read_as(node), node.layout), strict=True):
            operand = number if number < len(node.inputs) else None
            for letter, split in zip(letters, layout.splits, strict=True):
                if letter == ".":
                    assert split is None, f"{node}: a dimension that must be whole is split"
                elif letter.isupper():
                    following.append((letter.lower(), operand, split))
                elif node.layout.mesh.size > 1:
                    assert splits.setdefault(letter, split) == split, f"{node}: {structure}"
        for letter, operand, split in following:
            known = splits.get(letter)
            assert node.operation.derived_split is not None
            expected = known and node.operation.derived_split(node, letter, known, operand)
            assert split == expected, f"{node}: {structure}, {letter} of {operand}"
    for output in graph.outputs:
        assert output.layout is not None
        assert not output.layout.is_partial


def check_forms(graph: Graph) -> None:
    """Assert that what nodes are said to have in common with others, they have."""
    for node in graph.nodes:
        if node.signature is not None:
            alike = apply(node.operation, *node.inputs, **node.attributes)
            assert alike.signature == node.signature, node


def _read_as(node: Node) -> list[Layout]:
    result = []
    for source in node.inputs:
        assert source.layout is not None
        assert not source.layout.is_partial, f"{node} reads {source}, whose reduction is pending"
        result.append(source.layout)
    return result


@every_kind
@given(data=st.data())
@random_graphs
def test_placed_graphs_keep_the_rules(kind: str, workers: int, data: st.DataObject) -> None:
    engine = engine_of(kind, workers)
    steps = data.draw(stepping(engine))
    graph = engine.pending_graph(steps.graph)
    check_forms(simplify(graph))
    planned = pipeline.run(graph, engine.environment)
    check_placed(planned.graph)
    cost_cache_of.cache_clear()
    anew = pipeline.run(graph, engine.environment)
    assert str(anew.graph) == str(planned.graph), "cached costs are the computed ones"
    order = {node: i for i, node in enumerate(planned.schedule.order)}
    assert set(order) == set(planned.graph.nodes)
    for node, i in order.items():
        assert all(order[source] < i for source in node.inputs)
    for node in planned.schedule.invariant:
        assert not {source.name for source in node.inputs} & {"variable"} or all(
            source not in planned.graph.targets for source in node.inputs
        )
    for output, target in zip(planned.graph.outputs, planned.graph.targets, strict=True):
        assert target is not None
        assert output.layout == target.layout or output.is_leaf


@pytest.mark.parametrize(
    ("old", "new", "axis"),
    [
        ((24,), (4, 6), 0),
        ((4, 6), (24,), 0),
        ((8, 3, 5), (4, 6, 5), 0),
        ((3, 8, 5), (3, 40), 1),
        ((6, 4, 2), (6, 1, 8), 1),
        ((6, 4, 2), (6, 8), 0),
    ],
)
def test_reshaping_rows_moves_nothing(
    old: tuple[int, ...], new: tuple[int, ...], axis: int
) -> None:
    """A dimension that begins a group which becomes another may stay split."""
    engine = engine_of("messages", 2)
    layout = Layout.even(old, engine.pool.mesh, axis)
    leaf = input_leaf(old, float32, layout, None)
    graph = place(Graph((reshape(leaf, new),)), engine.environment)
    assert [node.name for node in graph.nodes] == ["input", "reshape"]


def test_what_is_read_in_another_shape_is_not_overwritten() -> None:
    with current("planned"):
        x = mm.exp(mm.asarray([[1.0, 2.0, 3.0]]))
        np.testing.assert_allclose(np.asarray(x * x[:, :1]), np.exp([[2.0, 3.0, 4.0]]), rtol=1e-6)


@given(data=st.data(), kind=st.sampled_from(KINDS))
@random_graphs
def test_programs_survive_the_way_to_the_workers(
    data: st.DataObject, kind: tuple[str, int]
) -> None:
    program = planned_programs(data, engine_of(*kind))
    assert decode(encode(program)) == program
    assert str(decode(encode(program))) == str(program)


@given(data=st.data())
def test_anything_else_is_no_program(data: st.DataObject) -> None:
    whole = encode(planned_programs(data, engine_of("shared", 2)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    deep = b"\x91" * 100_000  # lists in lists, deeper than the decoder's stack
    for broken in (whole[:cut], data.draw(st.binary(max_size=60)), b"\xc0", b"\x90", deep):
        with pytest.raises(ProtocolError):
            decode(broken)


def test_a_program_with_a_wrong_part_is_one_or_a_protocol_error() -> None:
    """Something else in each place, one after another."""
    whole = encode(typical_program())
    for path in _places(msgspec.msgpack.decode(whole)):
        for wrong in (None, -1, 1 << 62, 0.5, "x", b"x", [], [[]], {}, {"a": 1}, [1, 2, 3]):
            tree = part = msgspec.msgpack.decode(whole)
            for step in path[:-1]:
                part = part[step]
            part[path[-1]] = wrong
            with contextlib.suppress(ProtocolError):
                decode(msgspec.msgpack.encode(tree))


def _places(tree: Any) -> Iterator[list[Any]]:
    """The path to every part of a tree of lists and dictionaries."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for step, part in parts:
        yield [step]
        if isinstance(part, list | dict):
            yield from ([step, *rest] for rest in _places(part))


@cache
def typical_program() -> Program:
    """A program with all kinds of instructions, attributes and layouts."""
    engine = engine_of("shared", 3)
    v = held_variable(engine, np.ones((6, 4)), Layout.split(0).bind((6, 4), engine.pool.mesh))
    w = v.leaf
    x = leaf_of(engine, np.ones((6, 4)), Layout.cyclic(1).bind((6, 4), engine.pool.mesh))
    product = matmul(permute(x, (1, 0)), w)
    total = apply(OPERATIONS["sum"], product, axis=(0, 1), keepdims=False)
    halves = apply(OPERATIONS["astype"], total, dtype=float32)
    step = apply(OPERATIONS["multiply"], scalar(0.5, float64), w)
    graph = Graph((apply(OPERATIONS["subtract"], w, step), halves), (w, None), (total,))
    return engine.compile(engine.pending_graph(graph)).program


@given(data=st.data(), kind=st.sampled_from(KINDS))
@random_graphs
def test_temporaries_with_overlapping_lifetimes_are_disjoint(
    data: st.DataObject, kind: tuple[str, int]
) -> None:
    program = planned_programs(data, engine_of(*kind))
    arena = arrange(program)
    spans = []
    for i, offset in arena.offsets.items():
        slot = program.slots[i]
        nbytes = slot.layout.max_local_size * slot.dtype.itemsize
        assert offset % 64 == 0
        assert offset + nbytes <= arena.nbytes
        spans.append((slot, offset, offset + nbytes))
    for place_, (a, begin, end) in enumerate(spans):
        for b, other_begin, other_end in spans[:place_]:
            together = a.first <= b.last and b.first <= a.last
            assert not together or end <= other_begin or other_end <= begin


def test_an_output_is_computed_in_its_own_buffer_from_the_first_operation_on() -> None:
    """Random initial values need no temporary array."""
    engine = engine_of("planned")
    draws = apply(
        OPERATIONS["random_normal"],
        scalar(1, uint64),
        scalar(2, uint64),
        shape=(30, 40),
        dtype=float32,
    )
    scaled = apply(OPERATIONS["multiply"], draws, scalar(0.1, float32))
    assert arrange(engine.compile(engine.pending_graph(Graph((scaled,)))).program).nbytes == 0


# keys: what programs are looked up by
# ---------------------------------------------------------------------


LINE = Mesh.line(1)


def variable_of(shape: tuple[int, ...], dtype: DType = float32) -> Node:
    return variable_leaf(shape, dtype, Layout.replicated_on(shape, LINE), object())


def input_of(shape: tuple[int, ...], dtype: DType = float32) -> Node:
    return input_leaf(shape, dtype, Layout.replicated_on(shape, LINE), object())


def op(name: str, *inputs: Node, **attributes: Any) -> Node:
    return apply(OPERATIONS[name], *inputs, **attributes)


def test_values_of_leaves_are_no_part_of_a_key() -> None:
    def graph(number: float, variable: bool = False) -> Graph:
        x = variable_of((3, 4)) if variable else input_of((3, 4))
        return Graph((op("multiply", x, scalar(number, float32)),))

    assert graph(1.0).key == graph(2.0).key
    assert graph(1.0).key != graph(1.0, variable=True).key


def test_everything_else_is_part_of_a_key() -> None:
    x, y = input_of((4, 4)), input_of((4, 4))
    split = input_leaf((4, 4), float32, Layout.even((4, 4), Mesh.line(2), 0), object())
    graphs = [
        Graph((op("add", x, y),)),
        Graph((op("add", x, x),)),
        Graph((op("subtract", x, y),)),
        Graph((op("add", x, y), op("add", x, y))),
        Graph((op("add", x, split),)),
        Graph((op("add", input_of((4, 1)), y),)),
        Graph((op("add", input_of((4, 4), float64), input_of((4, 4), float64)),)),
        Graph((op("sum", x, axis=(0,), keepdims=False),)),
        Graph((op("sum", x, axis=(1,), keepdims=False),)),
        Graph((op("multiply", x, constant(1.5, float32)),)),
        Graph((op("multiply", x, constant(2.5, float32)),)),
        Graph((op("add", x, y),), (x,)),
        Graph((op("add", x, y),), (y,)),
        Graph((op("add", x, y),), (x,), (op("sum", x, axis=(0, 1), keepdims=False),)),
    ]
    keys = [graph.key for graph in graphs]
    assert len(set(keys)) == len(graphs)


# simplify
# -------------------------------------------------------------------------------------------------


def names(graph: Graph) -> Counter[str]:
    """How often each operation stands in a graph, leaves and constants apart."""
    return Counter(n.name for n in graph.nodes if not n.is_leaf and n.name != "constant")


def test_equal_values_are_computed_once() -> None:
    x, y = input_of((4, 4)), input_of((4, 4))
    twice = op("add", op("exp", op("multiply", x, y)), op("exp", op("multiply", x, y)))
    assert names(simplify(Graph((twice,)))) == {"multiply": 1, "exp": 1, "add": 1}
    one, other = constant(1.5, float32), constant(1.5, float32)
    both = simplify(Graph((op("add", x, one), op("add", x, other))))
    assert both.outputs[0] is both.outputs[1]


def test_numbers_of_the_user_are_not_merged() -> None:
    """They may be equal this time and not the next."""
    x = input_of((4, 4))
    a, b = scalar(2.0, float32), scalar(2.0, float32)
    result = simplify(Graph((op("multiply", x, a), op("multiply", x, b))))
    assert names(result) == {"multiply": 2}


def test_transposes_go_into_the_product() -> None:
    a, b = input_of((5, 3)), input_of((4, 5))
    result = simplify(Graph((matmul(permute(a, (1, 0)), permute(b, (1, 0))),)))
    assert names(result) == {"gemm": 1}
    (product,) = result.outputs
    assert (product.attributes["transpose_a"], product.attributes["transpose_b"]) == (True, True)
    assert product.inputs == (a, b)
    back = permute(permute(a, (1, 0)), (1, 0))
    assert simplify(Graph((op("exp", back),))).outputs[0].inputs == (a,)


def test_algebra_that_costs_nothing() -> None:
    x = input_of((4, 4))
    cases = {
        "times one": (op("multiply", op("exp", x), constant(1, float32)), {"exp": 1}),
        "plus the negative": (
            op("add", x, op("negative", op("exp", x))),
            {"exp": 1, "subtract": 1},
        ),
        "the mark": (op("exp", op("stop_gradient", x)), {"exp": 1}),
        "stretching": (op("add", x, broadcast_to(input_of((4,)), (4, 4))), {"add": 1}),
        "filling": (
            op("multiply", x, op("full", constant(2, float32), shape=(4, 4), dtype=float32)),
            {"multiply": 1},
        ),
    }
    for what, (node, expected) in cases.items():
        assert names(simplify(Graph((node,)))) == expected, what


@pytest.mark.parametrize("partial", [(), ("max",)])
def test_conversions_precede_moves_but_not_into_pending_reductions(
    partial: tuple[str, ...],
) -> None:
    """The largest of 0 and the identity of other workers, which is not 0, would be true."""
    x, layout = (
        input_of((4,), int64),
        replace(Layout.replicated_on((4,), Mesh.line(2)), partial=partial),
    )
    node = op("astype", redistribute(x, layout), dtype=bool_)
    order = ["input", "redistribute", "astype"] if partial else ["input", "astype", "redistribute"]
    assert [n.name for n in simplify(Graph((node,))).nodes] == order


def test_two_operands_are_not_both_made_smaller_than_the_result() -> None:
    one = op("full", constant(2, float32), shape=(3,), dtype=float32)
    two = op("full", constant(3, float32), shape=(3,), dtype=float32)
    (result,) = simplify(Graph((op("add", one, two),))).outputs
    assert op("add", *result.inputs).shape == (3,)


# fold_epilogues
# -----------------------------------------------------------------------------------------------------


def fused(*outputs: Node, targets: tuple[Node | None, ...] = (), engine: Engine) -> Graph:
    graph = engine.pending_graph(Graph(outputs, targets))
    return merge_equal(fold_epilogues(place(simplify(graph), engine.environment)))


def products(graph: Graph) -> list[tuple[bool, str, bool]]:
    """Of every product: whether it has a bias, its activation, whether it accumulates."""
    result = [n.attributes for n in graph.nodes if n.name == "gemm"]
    return [(a["bias"], a["activation"], a["accumulate"]) for a in result]


def layer() -> tuple[Node, Node, Node, Node]:
    x, w, b = input_of((8, 6)), variable_of((6, 4)), variable_of((4,))
    return x, w, b, op("add", matmul(x, w), b)


def test_bias_and_relu_go_into_their_product() -> None:
    engine = engine_of("inline")
    *_, affine = layer()
    relu = op("maximum", affine, constant(0, float32))
    assert names(fused(affine, engine=engine)) == {"gemm": 1}
    assert products(fused(affine, engine=engine)) == [(True, "none", False)]
    assert names(fused(relu, engine=engine)) == {"gemm": 1}
    assert products(fused(relu, engine=engine)) == [(True, "relu", False)]


def test_what_others_read_is_not_folded_away() -> None:
    engine = engine_of("inline")
    x, w, b, affine = layer()
    product = affine.inputs[0]
    assert products(fused(affine, product, engine=engine)) == [(False, "none", False)]
    relu = op("maximum", affine, constant(0, float32))
    graph = fused(relu, op("exp", affine), engine=engine)
    assert products(graph) == [(True, "none", False)]
    column = op("add", matmul(x, w), variable_of((8, 1)))
    assert products(fused(column, engine=engine)) == [(False, "none", False)], "not a row"
    assert b.shape == (4,)


@pytest.mark.parametrize("sign", ["subtract", "add"])
def test_update_goes_into_the_product_of_the_gradient(sign: str) -> None:
    engine = engine_of("inline")
    x, w, _, affine = layer()
    gradient = matmul(permute(x, (1, 0)), op("tanh", affine))
    update = op(sign, w, op("multiply", scalar(0.1, float32), gradient))
    graph = fused(update, targets=(w,), engine=engine)
    assert sorted(products(graph)) == [(False, "none", True), (True, "none", False)]
    assert "subtract" not in names(graph)
    buffers = pipeline.run(engine.pending_graph(Graph((update,), (w,))), engine.environment).buffers
    assert not buffers.copied, "computed where the weights are stored"


def test_update_is_not_folded_where_others_read_the_scaled_gradient() -> None:
    """They would need the product a second time."""
    engine = engine_of("inline")
    x, w, _, affine = layer()
    step = op("multiply", scalar(0.1, float32), matmul(permute(x, (1, 0)), op("tanh", affine)))
    graph = fused(op("subtract", w, step), op("abs", step), engine=engine)
    assert sorted(products(graph)) == [(False, "none", False), (True, "none", False)]


def test_update_is_not_folded_where_a_reduction_stands_between() -> None:
    """Workers that split the samples hold parts of a sum, to each of which the weights would be
    added."""
    engine = engine_of("messages", 2)
    whole = Mesh.line(2)
    x = input_leaf((64, 3), float32, Layout.even((64, 3), whole, 0), object())
    d = input_leaf((64, 2), float32, Layout.even((64, 2), whole, 0), object())
    w = variable_leaf((3, 2), float32, Layout.replicated_on((3, 2), whole), object())
    gradient = matmul(permute(x, (1, 0)), d)
    update = op("subtract", w, op("multiply", scalar(0.1, float32), gradient))
    graph = fused(update, targets=(w,), engine=engine)
    for node in graph.nodes:
        if node.name == "gemm":
            assert node.layout is not None
            assert not (node.attributes["accumulate"] and node.layout.is_partial)


# place, schedule, memory
# ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "sum"])
def test_cached_candidates_are_those_of_the_operands(name: str) -> None:
    """Whatever layouts the operands of equal nodes had before."""
    environment, mesh, shape = engine_of("messages", 2).environment, Mesh.line(2), (6, 4)
    whole = Layout.replicated_on(shape, mesh)
    layouts = [whole, replace(whole, partial=("sum",)), replace(whole, partial=("max",))]
    layouts += [Layout.even(shape, mesh, axis) for axis in (0, 1)]
    costs = CostCache(environment)
    count, attributes = 2, {}
    if name == "sum":
        count, attributes = 1, {"axis": (0,), "keepdims": False}
    for operands in product(layouts, repeat=count):
        leaves = [input_leaf(shape, float32, layout, object()) for layout in operands]
        node = op(name, *leaves, **attributes)
        candidates = [c.candidate for c in costs.candidates(node, operands, None)]
        assert candidates == list(layout_candidates(node, operands, environment))


def test_operands_in_the_required_layout_are_not_moved() -> None:
    engine = engine_of("messages", 3)
    layout = Layout.even((9, 4), Mesh.line(3), 0)
    x, y = (input_leaf((9, 4), float32, layout, object()) for _ in range(2))
    row = input_leaf((4,), float32, Layout.replicated_on((4,), Mesh.line(3)), object())
    graph = place(Graph((op("tanh", op("add", op("multiply", x, y), row)),)), engine.environment)
    assert "redistribute" not in names(graph)
    assert graph.outputs[0].layout == layout


def test_the_larger_operand_stays_where_it_is() -> None:
    engine = engine_of("messages", 3)
    mesh = Mesh.line(3)
    large = input_leaf((300, 300), float32, Layout.even((300, 300), mesh, 0), object())
    small = input_leaf(
        (300, 1), float32, Layout.replicated_on((300, 1), Mesh((1,), None, (1,))), object()
    )
    graph = place(Graph((op("multiply", large, small),)), engine.environment)
    moved = [n.inputs[0] for n in graph.nodes if n.name == "redistribute"]
    assert moved == [small]


def test_copies_are_made_once() -> None:
    engine = engine_of("messages", 2)
    x = input_leaf((8, 8), float32, Layout.even((8, 8), Mesh.line(2), 0), object())
    columns = Layout.even((8, 8), Mesh.line(2), 1)
    graph = place(
        Graph((redistribute(op("exp", redistribute(x, columns)), columns),
               op("sin", redistribute(x, columns)))), engine.environment
    )  # fmt: skip
    assert names(graph)["redistribute"] == 1


def test_elementwise_chains_need_no_memory_of_their_own() -> None:
    engine = engine_of("inline")
    node = op("exp", input_of((64, 64)))
    for _ in range(20):
        node = op("tanh", op("add", node, constant(1, float32)))
    total = op("sum", node, axis=(0, 1), keepdims=False)
    compiled = engine.compile(engine.pending_graph(Graph((total,))))
    assert arrange(compiled.program).nbytes == 64 * 64 * 4


def test_loop_invariants_are_computed_once() -> None:
    engine = engine_of("inline")
    x, v = input_of((8, 8)), variable_of((8, 8))
    update = op("add", v, op("exp", matmul(x, x)))
    planned = pipeline.run(engine.pending_graph(Graph((update,), (v,))), engine.environment)
    assert {n.name for n in planned.schedule.invariant if not n.is_leaf} == {"gemm", "exp"}


def test_exchange_of_two_variables_keeps_both() -> None:
    engine = engine_of("inline")
    v, w = variable_of((8,)), variable_of((8,))
    planned = pipeline.run(engine.pending_graph(Graph((w, v), (v, w))), engine.environment)
    assert planned.buffers.copied == {0, 1}


# barriers and moves of a training step
# --------------------------------------------------------------------


def step_of(kind: str, workers: int, strategy: str, optimizer: str = "sgd") -> Program:
    """The program of a step of a network of three layers."""
    random = np.random.default_rng(0)
    x = random.random((120, 64)).astype(np.float32)
    y = random.integers(0, 10, 120)
    layers = [Dense(32, activation="relu"), Dense(24, activation="relu"), Dense(10)]
    with current(kind, workers):
        net = NeuralNetwork(layers, optimizer=optimizer, seed=1)
        net.fit(x, y, batch_size=60, strategy=strategy)
        program: Program = net.trainer.step.programs()[0].program
    return program


def count(program: Program, kind: type) -> int:
    """How many instructions of a kind every step has."""
    return sum(isinstance(i, kind) for i in program.instructions[program.prologue :])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_data_parallel_step_has_two_barriers(workers: int, optimizer: str) -> None:
    """Once when all gradients are there, once when all weights are new: with one copy of the
    weights it cannot be less."""
    program = step_of("shared", workers, "data", optimizer)
    assert count(program, Barrier) == 2


@pytest.mark.parametrize("workers", [2, 4])
def test_model_parallel_step_has_at_most_two_barriers_a_layer(workers: int) -> None:
    program = step_of("shared", workers, "model")
    assert count(program, Barrier) <= 6


@pytest.mark.parametrize("strategy", ["data", "model", "model-input"])
def test_one_worker_and_messages_need_no_barriers(strategy: str) -> None:
    for kind, workers in (("inline", 1), ("messages", 3)):
        assert count(step_of(kind, workers, strategy), Barrier) == 0


def test_one_worker_moves_nothing() -> None:
    program = step_of("inline", 1, "data")
    assert count(program, Redistribute) == 0
    assert not program.reads_peers


def test_step_of_a_network_has_its_products_folded() -> None:
    program = step_of("inline", 1, "data")
    calls = [i for i in program.instructions if isinstance(i, Call) and i.operation == "gemm"]
    forms = Counter(
        (c.attributes["bias"], c.attributes["activation"], c.attributes["accumulate"])
        for c in calls
    )
    assert forms == {
        (True, "relu", False): 2,  # forward
        (True, "none", False): 1,
        (False, "none", True): 3,  # weights, updated in place
        (False, "none", False): 2,  # backward
    }
    assert not any(isinstance(i, Call) and i.operation == "contract" for i in program.instructions)


def test_gradients_are_reduced_by_their_owners_and_weights_never_gathered() -> None:
    """On workers that share memory the one copy of the weights is written in place."""
    program = step_of("shared", 2, "data")
    slots = program.slots
    weights = [i for i in program.inputs if slots[i].layout.shared and slots[i].dtype is float32]
    assert weights
    for move in program.instructions[program.prologue :]:
        if isinstance(move, Redistribute):
            assert not slots[move.target].layout.shared, "nothing is gathered"
            assert move.target not in weights


def test_arguments_keep_their_shape_through_reshape() -> None:
    x = input_of((2, 6))
    (result,) = simplify(Graph((reshape(op("exp", x), (3, 4)),))).outputs
    assert result.shape == (3, 4)


def _gates(x: Any) -> Any:
    """Return what reads an array by slices without common elements, as a recurrent layer does."""
    parts = [x[:, 3 * i : 3 * (i + 1)] for i in range(4)]
    return mm.sum(mm.tanh(parts[0]) * mm.sin(parts[1]) + parts[2] * parts[3] ** 2)


def _rows(x: Any) -> Any:
    return mm.sum(mm.stack([mm.sin(x[i]) * (i + 1) for i in range(5)]))


def _overlapping(x: Any) -> Any:
    return mm.sum(mm.sin(x[:, :7]) ** 2) + mm.sum(x[1:, 3:] ** 3) + mm.sum(x[:, ::-1] * x[2])


def _negative_steps(x: Any) -> Any:
    return mm.sum(mm.sin(x[::-2])) + mm.sum(x[1::2] ** 2) + mm.sum(x[-1] * x[0, 3])


@pytest.mark.parametrize("kind", ["inline", "planned"])
@pytest.mark.parametrize("function", [_gates, _rows, _overlapping, _negative_steps])
def test_gradients_by_slices_are_written_into_one_array(kind: str, function: Any) -> None:
    data = np.random.default_rng(0).normal(size=(5, 12))
    with current(kind, 1 if kind == "inline" else 2):
        x = mm.asarray(data)
        result = mm.compile(mm.grad(function))(x)
        for i, j in ((0, 0), (1, 3), (2, 7), (4, 11)):
            step = np.zeros_like(data)
            step[i, j] = 1e-6
            up, down = (float(function(mm.asarray(data + s * step))) for s in (1, -1))
            assert result[i, j].item() == pytest.approx((up - down) / 2e-6, abs=1e-7)
        np.testing.assert_allclose(result.numpy(), mm.grad(function)(x).numpy(), rtol=1e-13)


def test_disjoint_parts_of_a_gradient_are_not_added() -> None:
    zeros = full((4, 12), constant(0, float32))
    whole = Layout.replicated_on((4, 3), Mesh.line(1))
    values = [input_leaf((4, 3), float32, whole, object()) for _ in range(4)]
    parts = [
        apply(SET_SLICE, zeros, x, bounds=((0, 4, 1), (3 * i, 3 * i + 3, 1)))
        for i, x in enumerate(values)
    ]
    total = parts[0] + parts[1] + (parts[2] + parts[3])
    names = Counter(node.name for node in simplify(Graph((total,))).nodes)
    assert names["set_slice"] == 4
    assert not names["add"]
    twice = Counter(node.name for node in simplify(Graph((total + parts[0],))).nodes)
    assert twice["add"] == 1
