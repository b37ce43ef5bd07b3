"""Test bodies for every operation, on any pool: on threads and on MPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from layouts import draw_layout, draw_mesh
from magmath.autodiff import gradients
from magmath.core.dtypes import float64
from magmath.engine.engine import Engine
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.graph import Node, apply
from magmath.layout import Layout
from magmath.memory.torch_dtypes import from_torch
from magmath.ops import OPERATIONS
from magmath.ops.elementwise import astype, multiply, real
from magmath.ops.leaves import input_leaf
from magmath.ops.redistribute import redistribute
from magmath.ops.sums import sum_
from operation_table import ROWS, Case

# Relative to the result, and absolute for results of size 1: several units in the last place.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 5e-5, "float64": 1e-12}
TOLERANCE |= {"complex64": 2e-5, "complex128": 1e-12}


def leaf(engine: Engine, tensor: torch.Tensor, layout: Layout | None = None) -> Node:
    """A tensor on the workers, in a layout, also one with a pending reduction."""
    shape, dtype = tuple(tensor.shape), from_torch(tensor.dtype)
    layout = engine.environment.replicated(shape) if layout is None else layout
    kept = replace(layout, partial=()) if layout.is_partial else layout
    data = RemoteArray(engine.pool, engine.pool.put(tensor, kept), shape, dtype, kept)
    return redistribute(input_leaf(shape, dtype, kept, data), layout)


def values(engine: Engine, *nodes: Node) -> list[torch.Tensor]:
    """The nodes' values, computed in one program."""
    return [engine.pool.get(remote_array_of(known).array_id) for known in engine.evaluate(nodes)]


def applied(
    engine: Engine,
    name: str,
    case: Case,
    placed: Sequence[Layout | None] = (),
    target: Layout | None = None,
) -> Node:
    """The operation on the case's operands in these layouts, its result brought to `target`."""
    layouts_ = placed or [None] * len(case.operands)
    operands = [leaf(engine, x, at) for x, at in zip(case.operands, layouts_, strict=True)]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    return node if target is None else redistribute(node, target)


def computed(engine: Engine, name: str, case: Case, *where: Any) -> torch.Tensor:
    """The operation's value."""
    return values(engine, applied(engine, name, case, *where))[0]


def as_numpy(tensor: torch.Tensor) -> Any:
    """A NumPy array of the tensor; halves become float32."""
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return (tensor.float() if half else tensor).numpy()


def reference(name: str, case: Case) -> Any:
    """The operation's value by its NumPy reference."""
    with np.errstate(all="ignore"):
        return OPERATIONS[name].reference(*map(as_numpy, case.operands), **case.attributes)


def check_close(result: torch.Tensor, expected: Any, what: object) -> None:
    """Assert equality: exact for integers and booleans, up to rounding for others."""
    expected = np.asarray(as_numpy(expected) if isinstance(expected, torch.Tensor) else expected)
    assert tuple(result.shape) == expected.shape, what
    name = from_torch(result.dtype).name
    given = as_numpy(result)
    if name not in TOLERANCE:
        np.testing.assert_array_equal(given, expected.astype(given.dtype), err_msg=str(what))
        return
    limit = TOLERANCE[name]
    np.testing.assert_allclose(given, expected, rtol=limit, atol=limit, err_msg=str(what))


def check_signs(result: torch.Tensor, expected: Any, what: object) -> None:
    """Assert that zeros have equal signs."""
    given, expected = as_numpy(result), np.asarray(expected)
    if given.dtype.kind == "f":
        zeros = expected == 0
        signs = np.signbit(given[zeros]), np.signbit(expected[zeros])
        np.testing.assert_array_equal(*signs, err_msg=str(what))


def draw_placement(
    draw: st.DrawFn, tensor: torch.Tensor, engine: Engine, *, partial: bool = True
) -> Layout:
    """Any layout that an array of the tensor's shape and type can have on the engine's pool."""
    mesh = draw_mesh(draw, engine.pool.workers)
    layout = draw_layout(draw, tuple(tensor.shape), mesh)
    if layout.shared and not engine.environment.shares_memory:
        layout = replace(layout, shared=False)
    kind = from_torch(tensor.dtype).kind
    numeric = kind in ("int", "uint", "float")
    fits = numeric or (kind == "complex" and layout.reduction in ("sum", "prod"))
    return layout if partial and fits else layout.without_partial()


placements = st.composite(draw_placement)


@st.composite
def all_placements(
    draw: st.DrawFn, tensors: Sequence[torch.Tensor], engine: Engine, *, partial: bool = True
) -> list[Layout]:
    """Any layouts for each of these tensors."""
    return [draw_placement(draw, x, engine, partial=partial) for x in tensors]


@st.composite
def perhaps_placed(draw: st.DrawFn, shape: tuple[int, ...], engine: Engine) -> Layout | None:
    """None, or any layout without pending reductions."""
    if draw(st.booleans()):
        return draw_placement(draw, torch.empty(shape), engine, partial=False)
    return None


def check_any_layout(engine: Engine, name: str, case: Case, data: st.DataObject) -> None:
    """The result does not depend on the layouts of the operands and of the result."""
    expected = reference(name, case)
    at = data.draw(all_placements(case.operands, engine))
    target = data.draw(perhaps_placed(tuple(np.shape(expected)), engine))
    result = computed(engine, name, case, at, target)
    check_close(result, expected, (name, case, at, target))


# gradients ---------------------------------------------------------------------------------------


def weighted(engine: Engine, node: Node, seed: int) -> Node:
    """A 0-d sum of the node's elements, each with a weight of its own."""
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, node.shape)
    return sum_(multiply(node, leaf(engine, torch.from_numpy(np.asarray(weights)))))


def slopes_of(
    engine: Engine, name: str, case: Case, by: Sequence[int], placed: Sequence[Layout | None] = ()
) -> list[Node]:
    """The gradient of the weighted result with respect to the operands at positions `by`."""
    at = placed or [None] * len(case.operands)
    operands = [leaf(engine, x, layout) for x, layout in zip(case.operands, at, strict=True)]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    return gradients(weighted(engine, node, 1), [operands[i] for i in by])


def check_integers_have_no_gradient(engine: Engine, name: str, case: Case) -> None:
    """No gradient passes through integers and truth values, operands or results."""
    exact = [not (x.is_floating_point() or x.is_complex()) for x in case.operands]
    given = [x.double() if i else x for x, i in zip(case.operands, exact, strict=True)]
    sources = [leaf(engine, x) for x in given]
    operands = [
        astype(source, from_torch(x.dtype))
        for source, x in zip(sources, case.operands, strict=True)
    ]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    ends = node.dtype.kind not in ("float", "complex")
    stopped = [x for x, i in zip(sources, exact, strict=True) if i or ends]
    total = weighted(engine, astype(real(node), float64), 1)
    for slope in values(engine, *gradients(total, stopped)):
        assert not slope.any(), name


STEP = 1e-6


def shifted(case: Case, position: int, direction: Any, by: float) -> Case:
    """The case with one operand moved along a direction."""
    operands = list(case.operands)
    operands[position] = operands[position] + by * torch.from_numpy(np.asarray(direction))
    return Case(tuple(operands), case.attributes)


def along(name: str, direction: Any) -> Any:
    """A direction in which the operand of an operation may be moved."""
    hermitian = name in ROWS and ROWS[name].hermitian
    return (direction + np.swapaxes(direction, -1, -2)) / 2 if hermitian else direction


def check_first_gradient(engine: Engine, name: str, case: Case, by: Sequence[int]) -> None:
    """The gradient is what central differences of the NumPy reference are."""
    result = values(engine, *slopes_of(engine, name, case, by))
    for position, slope in zip(by, result, strict=True):
        x = case.operands[position]
        differences = np.zeros(tuple(x.shape))
        for index in np.ndindex(*x.shape):
            unit = np.zeros(tuple(x.shape))
            unit[index] = 1.0
            unit = along(name, unit)
            ends = [_total(name, shifted(case, position, unit, h)) for h in (STEP, -STEP)]
            differences[index] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(
            slope.numpy(), differences, rtol=1e-6, atol=1e-6, err_msg=f"{name} by {position}"
        )


def _total(name: str, case: Case) -> float:
    result = np.asarray(reference(name, case))
    weights = np.random.default_rng(1).uniform(0.5, 1.5, result.shape)
    return float(np.sum(result * weights))


def check_second_gradient(engine: Engine, name: str, case: Case, by: Sequence[int]) -> None:
    """The gradient's gradient is what central differences of the gradient are."""
    random = np.random.default_rng(2)
    operands = [leaf(engine, x) for x in case.operands]
    sources = [operands[i] for i in by]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    first = gradients(weighted(engine, node, 1), sources)
    total = _sum_of([weighted(engine, slope, 3 + i) for i, slope in enumerate(first)])
    second = values(engine, *gradients(total, sources))
    for position, slope in zip(by, second, strict=True):
        direction = along(name, random.uniform(-1, 1, tuple(case.operands[position].shape)))
        ends = [
            _slope_total(engine, name, shifted(case, position, direction, h), by)
            for h in (STEP, -STEP)
        ]
        difference = (ends[0] - ends[1]) / (2 * STEP)
        result = float(np.sum(slope.numpy() * direction))
        np.testing.assert_allclose(
            result, difference, rtol=1e-5, atol=1e-5, err_msg=f"{name} by {position}, twice"
        )


def check_reach_of_cotangents(engine: Engine, name: str, case: Case, by: Sequence[int]) -> None:
    """An infinite cotangent of an element changes no gradient by operands on which the element does
    not depend."""
    operands = [leaf(engine, x) for x in case.operands]
    node = apply(OPERATIONS[name], *operands, **case.attributes)
    if not node.size:
        return

    def slopes(weights: Any) -> list[torch.Tensor]:
        total = sum_(multiply(node, leaf(engine, torch.from_numpy(np.asarray(weights)))))
        return values(engine, *gradients(total, [operands[i] for i in by]))

    random = np.random.default_rng(4)
    weights = random.uniform(0.5, 1.5, node.shape)
    chosen = np.zeros(node.shape)
    chosen.flat[random.integers(node.size)] = 1
    usual, reached = slopes(weights), slopes(chosen)
    infinite = slopes(np.where(chosen, np.inf, weights))
    for position, before, after, reach in zip(by, usual, infinite, reached, strict=True):
        other = reach.numpy() == 0
        np.testing.assert_allclose(
            after.numpy()[other], before.numpy()[other], rtol=1e-9, err_msg=f"{name} by {position}"
        )


def _slope_total(engine: Engine, name: str, case: Case, by: Sequence[int]) -> float:
    first = slopes_of(engine, name, case, by)
    parts = [weighted(engine, slope, 3 + i) for i, slope in enumerate(first)]
    return sum(float(part) for part in values(engine, *parts))


def _sum_of(nodes: Sequence[Node]) -> Node:
    total = nodes[0]
    for node in nodes[1:]:
        total = apply(OPERATIONS["add"], total, node)
    return total


def check_gradient_any_layout(
    engine: Engine, one: Engine, name: str, case: Case, by: Sequence[int], data: st.DataObject
) -> None:
    """The gradient does not depend on the layouts of the operands."""
    at = data.draw(all_placements(case.operands, engine))
    expected = values(one, *slopes_of(one, name, case, by))
    for actual, known in zip(
        values(engine, *slopes_of(engine, name, case, by, at)), expected, strict=True
    ):
        assert from_torch(actual.dtype) == float64
        # Where the problem is ill-conditioned, rounding is as large as the largest slope allows.
        largest = max(1.0, float(known.abs().max())) if known.numel() else 1.0
        check_close(actual / largest, known / largest, (name, case, at))


# layouts and types -------------------------------------------------------------------------------


def check_redistribution(engine: Engine, tensor: torch.Tensor, data: st.DataObject) -> None:
    """An array brought through several layouts, also partial ones, is still the same array."""
    node = leaf(engine, tensor, data.draw(placements(tensor, engine)))
    for _ in range(data.draw(st.integers(1, 3))):
        node = redistribute(node, data.draw(placements(tensor, engine)))
    node = redistribute(node, data.draw(placements(tensor, engine, partial=False)))
    (result,) = values(engine, node)
    assert result.dtype == tensor.dtype
    check_close(result, tensor, node)


def check_exact(engines: Sequence[Engine], name: str, case: Case, data: st.DataObject) -> None:
    """Deterministic pools of any size compute the same bits in all layouts."""
    expected = computed(engines[0], name, case)
    check_close(expected, reference(name, case), (name, case))
    for engine in engines[1:]:
        at = data.draw(all_placements(case.operands, engine, partial=False))
        result = computed(engine, name, case, at)
        assert torch.equal(bits(result), bits(expected)), (name, case, at)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def operand_nodes(case: Case) -> list[Node]:
    """Leaves without data, of the operands' shapes and types."""
    return [
        Node(OPERATIONS["input"], (), {}, tuple(x.shape), from_torch(x.dtype))
        for x in case.operands
    ]
