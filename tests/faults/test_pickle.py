"""Pickled and copied objects: equal by value in any pool and process, and independent of the
original."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.pool import Pool as ProcessPool
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from layouts import layouts, meshes, shapes
from magmath.arrays.inputs.conversion import leaf_of_tensor
from magmath.core.dtypes import DTYPES
from magmath.engine import session
from magmath.errors import WorkerLost
from magmath.memory.torch_dtypes import to_torch

POOLS: dict[str, dict[str, Any]] = {
    "inline": {"workers": 0},
    "two": {"workers": 2, "launcher": "threads"},
    "four": {"workers": 4, "launcher": "threads"},
    "processes": {"workers": 2},
}


@pytest.fixture(scope="module", params=POOLS)
def pool(request: pytest.FixtureRequest) -> Iterator[str]:
    """The current pool, by name."""
    mm.init(**POOLS[request.param], device="cpu", threads=1)
    yield request.param
    mm.shutdown()


@pytest.fixture
def no_pool() -> Iterator[None]:
    yield
    mm.shutdown()


def pickled(value: Any) -> Any:
    """What comes of pickling."""
    return pickle.loads(pickle.dumps(value))


WAYS = [pickled, copy.copy, copy.deepcopy]


def bits(array: mm.Array) -> bytes:
    values = array.fetch().reshape(-1, 1).contiguous()  # as a column: a size of 0 has no strides
    return values.view(torch.uint8).numpy().tobytes()


# Arrays and variables.


@settings(max_examples=30)
@given(data=st.data())
def test_arrays_keep_type_bits_and_layout(data: st.DataObject, pool: str) -> None:
    workers = session.engine().pool.workers
    shape = data.draw(shapes)
    layout = data.draw(
        layouts(shape, data.draw(meshes(workers))).filter(lambda layout: not layout.is_partial)
    )
    dtype = to_torch(DTYPES[data.draw(st.sampled_from(sorted(DTYPES)))])
    count = int(np.prod(shape)) * dtype.itemsize
    content = np.frombuffer(data.draw(st.binary(min_size=count, max_size=count)), np.uint8)
    if dtype is torch.bool:
        content = content % 2
    array = mm.Array(leaf_of_tensor(torch.tensor(content).view(dtype).reshape(shape), layout))
    named = mm.variable("w", array, layout=layout)
    for way in WAYS:
        made = way(array)
        assert (made.shape, made.dtype, bits(made)) == (array.shape, array.dtype, bits(array))
        assert replace(made.layout, shared=False) == replace(layout, shared=False)
        again = way(named)
        assert (type(again), again.name, bits(again)) == (mm.Variable, "w", bits(array))


RULES = [
    None,
    mm.Layout.replicated(),
    mm.Layout.split(0),
    mm.Layout.split(1),
    mm.Layout.split(0, (0, 1, 4)),
    mm.Layout.cyclic(0, 2),
    mm.Layout.grid((2, 2)),
    mm.Layout.block_cyclic((1, 2), (2, 2)),
    mm.Layout.on(1),
    mm.Layout.blocks([((slice(0, 3), slice(None)), 0), ((slice(3, None), slice(None)), 3)]),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_arrays_go_to_other_pools(rule: mm.Layout | None, no_pool: None) -> None:
    """Divided by the same rule where that fits the workers; else as new arrays are."""
    values = np.arange(20.0).reshape(4, 5)
    mm.init(4, launcher="threads", threads=1, device="cpu")
    content = pickle.dumps(mm.asarray(values, layout=rule))
    for options in ({"workers": 0}, *({"workers": n, "launcher": "threads"} for n in (2, 4, 6))):
        pool = mm.init(**options, threads=1, device="cpu").pool  # type: ignore[arg-type]
        made = pickle.loads(content)
        np.testing.assert_array_equal(np.asarray(made), values)
        if rule is not None and pool.workers >= 4:
            assert made.layout == rule.bind((4, 5), pool.mesh)


def test_an_expression_is_pickled_as_its_value(pool: str) -> None:
    weight = mm.variable("w", [1.0, 2.0])
    expression = weight * 2
    made = [way(expression) for way in WAYS]
    weight.assign([5.0, 6.0])
    for array in made:
        assert type(array) is mm.Array
        assert array.tolist() == [2.0, 4.0]
    assert expression.tolist() == [2.0, 4.0]


def test_a_copy_shares_nothing(pool: str) -> None:
    array, weight = mm.asarray([1.0, 2.0, 3.0]), mm.variable("w", [1.0, 2.0])
    copies = [way(array) for way in WAYS]
    weights = [way(weight) for way in WAYS]
    array[0] = 9.0
    array += 1
    copies[0] += 5
    mm.optim.GradientDescent(0.1).minimize(mm.sum(weight * weight), [weight], steps=3)
    assert [x.tolist() for x in copies] == [[6.0, 7.0, 8.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    assert [w.tolist() for w in weights] == [[1.0, 2.0]] * 3


def test_copies_without_dimensions_are_numbers_only_if_their_originals_are(pool: str) -> None:
    for original, is_number in ((mm.zeros(()), False), (mm.sum(mm.zeros(3)), True)):
        for copied in [*(way(original) for way in WAYS), original.copy()]:
            other = copied
            copied += 1
            assert (float(copied), float(other)) == (1.0, 0.0 if is_number else 1.0)
        assert float(original) == 0.0


def test_an_array_that_is_there_twice_is_copied_once(pool: str) -> None:
    array = mm.asarray([1.0, 2.0])
    for way in (pickled, copy.deepcopy):
        first, second = way([array, array])
        assert first is second


# Networks and what belongs to them.


def network() -> tuple[mm.nn.NeuralNetwork, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """One that has been trained a little, and its data."""
    x = np.random.default_rng(0).random((32, 5), dtype=np.float32)
    layers = [mm.nn.Dense(8, "relu"), mm.nn.Dense(3)]
    net = mm.nn.NeuralNetwork(layers, optimizer=mm.optim.Momentum(0.05, 0.5), seed=3)
    y = np.arange(32) % 3
    net.fit(x, y, batch_size=8, strategy="data")
    return net, x, y


@pytest.mark.parametrize("way", WAYS[::2])
def test_a_network_is_kept_while_the_original_learns(pool: str, way: Any) -> None:
    net, x, y = network()
    outputs = np.asarray(net.predict(x))
    best = way(net)
    net.fit(x, y, batch_size=8, epochs=2, strategy="data")
    np.testing.assert_array_equal(np.asarray(best.predict(x)), outputs)
    assert not np.array_equal(np.asarray(net.predict(x)), outputs)
    assert (repr(best.layers), best.seed, best.loss) == (repr(net.layers), net.seed, net.loss)
    assert (best.optimizer.learning_rate, best.optimizer.momentum) == (0.05, 0.5)
    learnt = np.asarray(net.predict(x))
    best.fit(x, y, batch_size=8, strategy="data")
    assert not np.array_equal(np.asarray(best.predict(x)), outputs)
    np.testing.assert_array_equal(np.asarray(net.predict(x)), learnt)


def test_a_network_that_is_not_built(pool: str) -> None:
    net = pickled(mm.nn.NeuralNetwork([mm.nn.Dense(2)], seed=1))
    assert net.predict(np.ones((4, 3), np.float32)).shape == (4, 2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "optimizer",
    [
        mm.optim.GradientDescent(0.3),
        mm.optim.Momentum(0.3, 0.1, True),
        mm.optim.Adam(0.3, 0.1, 0.2),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_optimizers_keep_their_settings(pool: str, way: Any, optimizer: Any) -> None:
    weight = mm.variable("w", 2.0)
    optimizer.minimize(weight * weight, [weight])
    made = way(optimizer)
    names = ("learning_rate", "momentum", "nesterov", "beta1", "beta2", "epsilon")
    for name in [name for name in names if hasattr(optimizer, name)]:
        assert getattr(made, name) == getattr(optimizer, name)
    other = mm.variable("w", 2.0)
    made.minimize(other * other, [other])
    optimizer.minimize(weight * weight, [weight])


@mm.compile
def doubled(x: mm.Array) -> mm.Array:
    """A function that pickle finds by its name."""
    return x * 2


def test_compiled_functions_are_found_by_name(pool: str) -> None:
    assert all(way([doubled])[0] is doubled for way in WAYS)
    assert doubled(mm.asarray([1.0])).tolist() == [2.0]


def test_types_layouts_and_histories_are_pickled(pool: str) -> None:
    net, x, y = network()
    history = net.fit(x, y, batch_size=8, strategy="data", validation=(x, y))
    data = mm.data.load("digits")
    for way in WAYS:
        assert all(way(dtype) is dtype for dtype in DTYPES.values())
        assert way(history) == history
        assert [way(rule) for rule in RULES] == RULES
        assert way(mm.finfo(mm.bfloat16)) == mm.finfo(mm.bfloat16)
        assert way(mm.Mesh((2, 2), ("a", "b"))) == mm.Mesh((2, 2), ("a", "b"))
        assert str(way(mm.asarray(x).explain())) == str(mm.asarray(x).explain())
        np.testing.assert_array_equal(way(data).train_images, data.train_images)


# Elsewhere.


def total(array: mm.Array, net: mm.nn.NeuralNetwork, x: Any) -> tuple[float, mm.Array]:
    """For another process, which has a pool of its own."""
    return float(mm.sum(array)), net.predict(x)


@pytest.fixture(scope="module")
def other() -> Iterator[ProcessPool]:
    """Another process, with a pool of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as processes:
        yield processes


def test_other_processes_take_and_give_arrays(pool: str, other: ProcessPool) -> None:
    net, x, _ = network()
    array = mm.asarray(np.arange(6.0), layout=mm.Layout.split(0))
    number, outputs = other.apply(total, (array, net, x))
    assert number == 15.0
    np.testing.assert_allclose(np.asarray(outputs), np.asarray(net.predict(x)), rtol=1e-5)


def test_an_array_whose_pool_has_ended_has_no_value(no_pool: None) -> None:
    mm.init(0)
    array = mm.asarray([1.0])
    mm.shutdown()
    with pytest.raises(WorkerLost, match="the pool has been closed"):
        pickle.dumps(array)
