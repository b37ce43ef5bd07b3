"""Python's operators on nodes build the operations that they name, and compare by identity."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.arrays.array import Array
from magmath.engine import session
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Graph, Node, set_value
from magmath.graph.evaluation_state import set_variable_layout
from magmath.ops.elementwise import WeakScalar, astype, call
from magmath.ops.leaves import scalar
from magmath.passes.pipeline import run

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
}
UNARY: dict[str, Callable[[Any], Any]] = {"negative": operator.neg, "abs": operator.abs}
X, Y = np.array([1.5, 2.0, 0.25]), np.array([0.5, -1.0, 3.0])


def value(node: Node) -> np.ndarray[Any, Any]:
    return Array(node).numpy()


@pytest.mark.parametrize("name", BINARY)
def test_binary_operators_build_their_operation(name: str) -> None:
    act = BINARY[name]
    with current("inline"):
        x, y = mm.asarray(X).node, mm.asarray(Y).node
        for node, expected in (
            (act(x, y), act(X, Y)), (act(x, 2.5), act(X, 2.5)), (act(3, x), act(3, X)),
        ):  # fmt: skip
            assert node.name == name
            assert node.dtype is mm.float64
            np.testing.assert_allclose(value(node), expected)


@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_build_their_operation(name: str) -> None:
    with current("inline"):
        node = UNARY[name](mm.asarray(Y).node)
        assert node.name == name
        np.testing.assert_array_equal(value(node), UNARY[name](Y))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64"])
def test_numbers_are_constants_of_the_type_of_the_node(dtype: str) -> None:
    with current("inline"):
        x = mm.asarray([1, 2], dtype=dtype).node
        for node in (x + 1, 1 - x, x * 3):
            (number,) = [part for part in node.inputs if part is not x]
            assert (number.name, number.dtype, node.dtype) == ("constant", x.dtype, x.dtype)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_weak_scalars_take_the_type_of_the_node(name: str, dtype: str) -> None:
    """As Python's numbers do; among themselves and with numbers they stay float64."""
    act = BINARY[name]
    with current("inline"):
        x, weak = mm.asarray([0.5, 2.0], dtype=dtype).node, WeakScalar(scalar(0.1, mm.float64))
        for mixed, expected in (
            (act(x, weak), act(x, 0.1)), (act(weak, x), act(0.1, x)),
            (call(name, weak, x), act(0.1, x)),
        ):  # fmt: skip
            assert mixed.dtype is x.dtype
            np.testing.assert_array_equal(value(mixed), value(expected))
        for among, number in (
            (act(weak, weak), act(0.1, 0.1)), (act(weak, 3), act(0.1, 3)), (act(3, weak), act(3, 0.1)),
        ):  # fmt: skip
            assert isinstance(among, WeakScalar)
            assert float(value(astype(among, mm.float64))) == pytest.approx(number, rel=1e-15)
        assert call("less", weak, 3.0).dtype.name == "bool"


def test_the_user_line_is_that_of_the_node() -> None:
    x = scalar(1.0, mm.float32).at_line(("script.py", 3))
    assert (2.0 - x).line == (x + 2.0).line == (-x).line == ("script.py", 3)


def test_nodes_are_compared_by_identity() -> None:
    x, y = scalar(1.0, mm.float32), scalar(1.0, mm.float32)
    assert x != y
    assert x in (y, x)
    assert (x, y).index(y) == 1
    assert len({x, y, x + y, x + y}) == 4


def test_what_does_not_fit_is_refused() -> None:
    x = scalar(1.0, mm.float32)
    for other in ("a", None, [1.0], np.ones(2)):
        with pytest.raises(TypeError, match="unsupported operand|does not support ufuncs"):
            operator.add(x, other)
    with pytest.raises(DTypeError):
        _ = x + scalar(1.0, mm.float64)
    with current("inline"), pytest.raises(ShapeError):
        _ = mm.ones(3).node + mm.ones(2).node


SLOTS = [name for name in Node.__slots__ if name != "__weakref__"]


@pytest.mark.parametrize("name", SLOTS)
def test_nodes_are_immutable(name: str) -> None:
    x = scalar(1.0, mm.float32).at_line(("script.py", 3))
    for node in (x, x + 2.0, (x * 2.0).replace((x, x))):
        before = getattr(node, name)
        with pytest.raises(AttributeError, match=rf"{node.name}: cannot assign {name}; .*replace"):
            setattr(node, name, None)
        with pytest.raises(AttributeError, match=f"cannot delete {name}"):
            delattr(node, name)
        assert getattr(node, name) is before


def test_attributes_of_nodes_are_immutable() -> None:
    """Of leaves, operations, versions of variables, planned nodes, and unrolled loops."""
    with current("planned"):
        engine = session.engine()
        x, v = mm.asarray(np.ones((4, 3))), mm.variable("v", np.ones(3))
        scanned, _ = mm.scan(lambda c, row: (c * row, c), x[0], x)
        made = [mm.sum(x.T @ (x * v), axis=0), mm.grad(mm.sum(scanned), x), mm.matmul(x, x[:3].T)]
        made.append(x[mm.argmax(v)])
        graph = Graph(tuple(y.node for y in made))
        planned = run(engine.pending_graph(graph), engine.environment).graph
    nodes = [*graph.nodes, *planned.nodes]
    assert {"sum", "version", "dynamic_slice", "input", "gemm"} <= {node.name for node in nodes}
    for node in nodes:
        with pytest.raises(TypeError, match="does not support item assignment"):
            node.attributes["axis"] = (0, 1)  # type: ignore[index]


def test_only_the_evaluation_state_of_a_node_changes() -> None:
    x = scalar(1.0, mm.float64)
    with current("planned"):
        node = mm.asarray(X).node * x
        before = {name: getattr(node, name) for name in SLOTS}
        Array(node).numpy()
    after = {name: getattr(node, name) for name in SLOTS}
    changed = {name for name in SLOTS if after[name] is not before[name]}
    assert changed == {"value", "user_array"}
    set_value(node, None)
    assert node.value is None


def test_only_the_leaf_of_a_variable_changes_its_layout() -> None:
    x = scalar(1.0, mm.float32)
    with pytest.raises(AssertionError):
        set_variable_layout(x, mm.Layout.replicated())
