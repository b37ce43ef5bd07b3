"""The memory order of temporary arrays: random orders change no values; images are
channels-last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from executors import use_native_code
from graphs import Steps, expressions, leaf_of, numpy_values, stepping
from magmath.autodiff import gradients
from magmath.core.dtypes import float16, float64
from magmath.engine.remote_array import remote_array_of
from magmath.graph import Graph, Node, apply
from magmath.ops import OPERATIONS
from magmath.ops.conv.convolution import correlation
from magmath.ops.leaves import constant
from magmath.passes import assign_memory_orders, pipeline
from magmath.passes.assign_buffers import BufferAssignment
from magmath.program.encoding import decode, encode
from magmath.program.instructions import Program, Redistribute
from magmath.program.lower import lower
from operation_bodies import values

CHANNELS_LAST = (0, 2, 3, 1)
random_orders = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
kinds = pytest.mark.parametrize(("kind", "workers"), [("planned", 1), ("shared", 2), ("shared", 3)])


@contextmanager
def reversed_orders(engine: Any) -> Iterator[None]:
    """Store every array that has a choice with its first dimension innermost; arrays without
    dimensions have one order, which changes nothing outside."""

    def chosen(groups: assign_memory_orders._Groups) -> Any:
        for node in list(groups._parent):
            if node.ndim == 0 or groups._group(node) not in groups._pinned:
                yield [node], tuple(reversed(range(node.ndim)))

    engine._programs.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assign_memory_orders, "_is_preferred", lambda nodes: True)
        patch.setattr(assign_memory_orders._Groups, "chosen", chosen)
        yield
    engine._programs.clear()


@kinds
@given(data=st.data())
@random_orders
def test_expressions_in_any_order_compute_what_numpy_does(
    kind: str, workers: int, data: st.DataObject
) -> None:
    engine = engine_of(kind, workers)
    outputs, known = data.draw(expressions(engine))
    expected = numpy_values(outputs, dict(known))
    with reversed_orders(engine):
        for result, value in zip(values(engine, *outputs), expected, strict=True):
            np.testing.assert_allclose(result.numpy(), value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("native", [False, True])
@kinds
@given(data=st.data())
@random_orders
def test_steps_in_any_order_compute_what_numpy_does(
    kind: str, workers: int, native: bool, data: st.DataObject
) -> None:
    engine = engine_of(kind, workers)
    with pytest.MonkeyPatch.context() as patch, reversed_orders(engine):
        if native:
            use_native_code(patch)
        check(engine, data.draw(stepping(engine)))


def check(engine: Any, steps: Steps) -> None:
    """Assert that two runs of a program leave NumPy's values."""
    graph = engine.pending_graph(steps.graph)
    compiled = engine.compile(graph)
    for count in (1, 2):
        outputs, run = engine.runs.run(compiled, graph.leaves, steps=count)
        for target, fresh in zip(graph.targets, outputs, strict=True):
            assert target is not None
            target.value().set_value(fresh)
        expected = [value for _ in range(count) for value in steps.advance()]
        np.testing.assert_allclose(run.values(), expected, rtol=1e-9, atol=1e-9)
        for leaf, value in steps.values.items():
            held = engine.pool.get(remote_array_of(leaf).array_id).numpy()
            np.testing.assert_allclose(held, value, rtol=1e-9, atol=1e-9)


# images -----------------------------------------------------------------------------------------


def convolved(x: Node, w: Node) -> Node:
    return correlation(x, w, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))


def network(engine: Any) -> tuple[Node, dict[Node, Any]]:
    """Two convolutions, the sum over batch and space, relu, and the mean of each map."""
    random = np.random.default_rng(0)
    shapes = [(4, 3, 6, 5), (8, 3, 3, 3), (8, 8, 3, 3)]
    arrays = [random.normal(size=shape) for shape in shapes]
    leaves = [
        leaf_of(engine, array, engine.environment.replicated(array.shape)) for array in arrays
    ]
    x, first, second = leaves
    y = convolved(x, first)
    total = apply(OPERATIONS["sum"], y, axis=(0, 2, 3), keepdims=True)
    y = apply(OPERATIONS["maximum"], apply(OPERATIONS["subtract"], y, total), constant(0, y.dtype))
    y = apply(OPERATIONS["add"], convolved(y, second), y)
    return apply(OPERATIONS["sum"], y, axis=(2, 3), keepdims=False), dict(
        zip(leaves, arrays, strict=True)
    )


def slopes(engine: Any) -> tuple[list[Node], dict[Node, Any]]:
    """The gradients of a network with branches and pooling, with respect to its filters."""
    random = np.random.default_rng(1)
    shapes = [(4, 3, 6, 5), (4, 3, 3, 3), (3, 3, 1, 1), (5, 7, 3, 3)]
    arrays = [random.normal(size=shape) for shape in shapes]
    leaves = [
        leaf_of(engine, array, engine.environment.replicated(array.shape)) for array in arrays
    ]
    x, first, second, third = leaves
    branch = correlation(x, second, stride=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1))
    y = apply(OPERATIONS["concat"], convolved(x, first), branch, axis=1)
    y = apply(OPERATIONS["maximum"], y, constant(0, y.dtype))
    window = {"kernel": (2, 2), "stride": (2, 2), "dilation": (1, 1), "padding": ((0, 0), (0, 1))}
    y = convolved(apply(OPERATIONS["max_pool"], y, **window), third)
    y = apply(OPERATIONS["sum_pool"], apply(OPERATIONS["tanh"], y), **window)
    loss = apply(OPERATIONS["sum"], y, axis=(0, 1, 2, 3), keepdims=False)
    return gradients(loss, leaves[1:]), dict(zip(leaves, arrays, strict=True))


def program_of(engine: Any, *outputs: Node) -> Program:
    planned = pipeline.run(Graph(outputs), engine.environment)
    inputs = [leaf for leaf in planned.graph.leaves if leaf.name == "input"]
    return lower(planned, inputs, [], engine.environment, {})


def test_the_order_of_a_group_is_that_of_most_bytes() -> None:
    """Three kernels read 2 bytes of each element in one order, one reads 8 bytes in another."""
    shape, rows = (4, 3, 6, 5), (0, 1, 2, 3)
    half, double = (Node(OPERATIONS["full"], (), {}, shape, dtype) for dtype in (float16, float64))
    groups = assign_memory_orders._Groups(BufferAssignment())
    groups.join(half, double)
    for x, order in [(half, CHANNELS_LAST)] * 3 + [(double, rows)]:
        reads = replace(
            OPERATIONS["tanh"], is_elementwise=False, memory_orders=lambda _, o=order: (o, None)
        )
        groups.add(Node(reads, (x,), {}, shape, x.dtype))
    ((_, chosen),) = groups.chosen()
    assert chosen == rows


@pytest.mark.parametrize(("kind", "workers"), [("planned", 1), ("shared", 2)])
def test_images_between_convolutions_are_stored_channels_last(kind: str, workers: int) -> None:
    engine = engine_of(kind, workers)
    output, known = network(engine)
    program = program_of(engine, output)
    images = [s for s in program.slots if s.kind == "temporary" and s.shape == (4, 8, 6, 5)]
    owners = [slot for slot in images if slot.alias is None]
    assert owners
    assert all(slot.order == CHANNELS_LAST for slot in owners)
    assert decode(encode(program)).slots == program.slots
    shown = [line.split(" = ")[0] for line in str(program).splitlines() if "[4, 8, 6, 5]" in line]
    assert shown
    assert all(f"order {CHANNELS_LAST}" in line for line in shown)
    assert sum("order" in line for line in str(program).splitlines()) == len(shown)
    (actual,), (expected,) = values(engine, output), numpy_values([output], dict(known))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-10)


@kinds
def test_gradients_in_any_order_are_what_numpy_computes(kind: str, workers: int) -> None:
    engine = engine_of(kind, workers)
    outputs, known = slopes(engine)
    expected = numpy_values(outputs, dict(known))
    with reversed_orders(engine):
        for actual, value in zip(values(engine, *outputs), expected, strict=True):
            np.testing.assert_allclose(actual.numpy(), value, rtol=1e-9, atol=1e-9)
    for actual, value in zip(values(engine, *outputs), expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), value, rtol=1e-9, atol=1e-9)


def test_arrays_that_others_see_are_stored_in_row_major_order() -> None:
    """Results, and operands of operations that require it, with all that is joined to them."""
    engine = engine_of("planned")
    output, _ = network(engine)
    image = output.inputs[0]
    shifted = apply(OPERATIONS["subtract"], image, apply(OPERATIONS["sin"], image))
    reshaped = [apply(OPERATIONS["reshape"], x, shape=(4, 240)) for x in (image, shifted)]
    for outputs in ((output, image), (output, reshaped[0]), (shifted,), (output, reshaped[1])):
        program = program_of(engine, *outputs)
        assert not any(isinstance(i, Redistribute) for i in program.instructions)
        number = max(i for i, s in enumerate(program.slots) if s.shape == (4, 8, 6, 5))
        while (owner := program.slots[number].alias) is not None:  # which has the order
            number = owner
        assert program.slots[number].order is None


def test_deterministic_programs_keep_row_major_order() -> None:
    engine = engine_of("exact", 3)
    output, _ = network(engine)
    assert all(slot.order is None for slot in program_of(engine, output).slots)


@pytest.mark.parametrize(
    ("name", "size"), [("googlenet", 64), ("inception_v3", 96), ("resnet18", 64)]
)
def test_no_image_inside_of_a_network_is_stored_in_row_major_order(name: str, size: int) -> None:
    """Concatenations, slices of gradients and pooling keep the order of the convolutions."""
    with current("planned", 1):
        network = getattr(mm.nn.zoo, name)(classes=10)
        images, labels = mm.ones((2, 3, size, size)), mm.zeros((2,), dtype=mm.int64)
        network.build(images.shape)
        variables = network.trainable()
        optimizer = mm.optim.GradientDescent(0.1)

        @mm.compile
        def step(images: mm.Array, labels: mm.Array) -> mm.Array:
            loss = mm.nn.cross_entropy(network(images), labels)
            optimizer.update(dict(zip(variables, mm.grad(loss, variables), strict=True)))
            return loss

        step(images, labels)
        listing = str(step.explain())
    stored = re.findall(
        r"^%(\d+):float32\[2, \d+, (\d+), (\d+)\] R( order \([\d, ]+\)| in %\d+)? = (\w+)",
        listing,
        re.M,
    )
    plain = [(number, kind) for number, rows, columns, order, kind in stored
             if int(rows) * int(columns) > 1 and not order and kind != "input"]  # fmt: skip
    assert len(stored) > 30
    assert plain == []
