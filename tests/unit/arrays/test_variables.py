"""Variables: their layouts, the expressions that read them, and failed updates."""

from __future__ import annotations

import gc
import itertools
import operator
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import magmath as mm
from arrays import check
from engines import current
from magmath.engine import session
from magmath.errors import DTypeError, RangeError, ShapeError
from magmath.layout import Rule
from magmath.runtime import Pool
from random_programs import RULES, placed, random_assignments


@pytest.mark.parametrize("look", [np.asarray, str, mm.Array.tolist])
def test_an_update_that_fails_is_told_once(every_pool: Pool, look: Callable[[Any], Any]) -> None:
    """Later updates do not change the array; other arrays are updated."""
    session.engine().eager_computation.max_eager_bytes = 0
    a, b = mm.asarray([1.0, 2.0]), mm.asarray([5.0, 5.0])
    bad = mm.linalg.solve(mm.zeros((2, 2)), b)
    a += 1
    a *= 2
    a += bad
    a -= 7
    b += 1
    c = a + b
    with pytest.raises(np.linalg.LinAlgError, match="solve: the matrix is singular"):
        look(a)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(c)
    check(a, np.float32([4, 6]))
    check(b, np.float32([6, 6]))
    a += b
    check(a, np.float32([10, 12]))


@pytest.mark.parametrize("update", ["solve", "take", "put"])
def test_an_update_that_fails_in_another_expression_is_undone(
    every_pool: Pool, update: str
) -> None:
    session.engine().eager_computation.max_eager_bytes = 0
    x, k = mm.asarray(np.arange(3.0)), mm.asarray([1, 7])
    view = x[:2]

    def change_and_read() -> None:
        nonlocal x
        if update == "solve":
            zeros, ones = mm.zeros((3, 3), dtype=mm.float64), mm.ones(3, dtype=mm.float64)
            x -= mm.linalg.solve(zeros, ones)
        elif update == "take":
            x += x[k][0]
        else:
            x[k] = 1.0
        float(mm.sum(x))

    with pytest.raises((IndexError, np.linalg.LinAlgError)):
        change_and_read()
    assert float(mm.sum(x)) == 3
    x += 1
    assert (x.tolist(), view.tolist()) == ([1, 2, 3], [1, 2])


@pytest.mark.parametrize("worker", [0, -1])
def test_variables_stay_where_they_are(every_pool: Pool, worker: int) -> None:
    """For any value, in any layout."""
    place = mm.Layout.on(worker % every_pool.workers)
    start, other = np.arange(300.0), mm.asarray(np.ones(300), layout=mm.Layout.split(0))
    v = mm.variable("v", mm.asarray(start, layout=mm.Layout.split(0)), layout=place)
    y = v * 2
    updates: list[Callable[[], object]] = [
        lambda: operator.iadd(v, other),
        lambda: operator.imul(v, mm.sin(other) + other),
        lambda: v.assign(other * 3),
        lambda: mm.optim.GradientDescent(0.5).minimize(mm.sum(v * other), [v]),
    ]
    expected = [start + 1, (start + 1) * (np.sin(1) + 1), np.full(300, 3.0), np.full(300, 2.5)]
    for update, value in zip(updates, expected, strict=True):
        update()
        assert v.layout == place.bind((300,), every_pool.mesh)
        check(v, value)
        check(y, start * 2)


def test_expressions_mean_the_values_at_their_line(every_pool: Pool) -> None:
    v = mm.variable("v", [1.0, 2.0])
    y = v * 10
    z = y + 1
    copy, kept = mm.asarray(v, copy=True), +v
    v.assign([5, 6])
    check(v, np.array([5, 6], np.float32))
    check(z, np.array([11, 21], np.float32))
    check(y, np.array([10, 20], np.float32))
    for former in (copy, kept):
        check(former, np.array([1, 2], np.float32))
    other = mm.variable("w", v)
    v.assign([0.0, 0.0])
    check(other, np.array([5, 6], np.float32))


def test_updates_by_gradients_are_simultaneous(every_pool: Pool) -> None:
    w, b = mm.variable("w", 2.0), mm.variable("b", 3.0)
    slope_w, slope_b = mm.grad(w * b, [w, b])
    w -= 0.1 * slope_w
    b -= 0.1 * slope_b
    assert (float(w), float(b)) == (pytest.approx(1.7), pytest.approx(2.8))


def test_gradients_after_another_variable_was_assigned(every_pool: Pool) -> None:
    """They belong to the line that wrote the loss."""
    w, b = mm.variable("w", 2.0), mm.variable("b", 3.0)
    for _ in range(2):
        former = float(w), float(b)
        loss = w * b
        w -= 0.1 * mm.grad(loss, w)
        b -= 0.1 * mm.grad(loss, b)
        assert float(w) == pytest.approx(former[0] - 0.1 * former[1])
        assert float(b) == pytest.approx(former[1] - 0.1 * former[0])


def test_memory_of_former_values_is_used_again(every_pool: Pool) -> None:
    """A loop of updates without other references allocates no memory."""
    w = mm.variable("w", np.ones((300, 200), np.float32))
    x = mm.asarray(np.ones((40, 300), np.float32))

    def step() -> None:
        nonlocal w
        loss = mm.mean(mm.square(x @ w))
        w -= 0.1 * mm.grad(loss, w)

    for _ in range(3):
        step()
    gc.collect()
    mm.evaluate(w + 0)
    counted = [(holder["in_use"], holder["peak"]) for holder in every_pool.stats()]
    for _ in range(5):
        step()
    mm.evaluate(w + 0)
    assert [(holder["in_use"], holder["peak"]) for holder in every_pool.stats()] == counted


def test_losses_that_are_collected_do_not_keep_former_values(every_pool: Pool) -> None:
    w = mm.variable("w", np.ones((300, 200), np.float32))
    x = mm.asarray(np.ones((40, 300), np.float32))
    losses = []
    for i in range(12):
        losses.append(mm.mean(mm.square(x @ w)))
        w -= 0.1 * mm.grad(losses[-1], w)
        if i == 3:
            held = every_pool.stats()[0]["in_use"]
    assert every_pool.stats()[0]["in_use"] < held + 2 * 4 * 300 * 200
    values = [float(loss) for loss in losses]
    assert values == sorted(values, reverse=True)


def test_a_failed_assignment_leaves_the_value(every_pool: Pool) -> None:
    v, w = mm.variable("v", [1.0, 2.0]), mm.variable("w", [0.0, 0.0])
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        v.assign(mm.linalg.solve(mm.zeros((2, 2)), v))
    v += 1
    check(v, np.float32([2, 3]))
    with pytest.raises(IndexError):
        w.assign(mm.take(v, mm.asarray([0, 7])))
    check(w, np.float32([0, 0]))
    check(v, np.float32([2, 3]))


def test_variables_change_places() -> None:
    v, w = mm.variable("v", [1.0, 2.0]), mm.variable("w", [3.0, 4.0])
    for _ in range(3):
        former = +v
        v.assign(w)
        w.assign(former)
    assert (v.tolist(), w.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    w += 1
    assert (v.tolist(), w.tolist()) == ([3.0, 4.0], [2.0, 3.0])


@pytest.mark.parametrize("kind", ["shared", "eager", "hosts"])
@pytest.mark.parametrize("own", RULES, ids=str)
def test_every_worker_reads_what_a_variable_was_assigned(kind: str, own: Rule | None) -> None:
    """A target network: each worker reads its part of the value in a compiled function, also where
    one copy for all workers takes the place of one for each."""
    for workers, other in itertools.product((2, 3), RULES):
        with current(kind, workers):
            target = mm.variable("target", mm.asarray(np.ones((6, 4)), layout=own))
            source = mm.variable("source", mm.asarray(np.arange(24.0).reshape(6, 4), layout=other))

            @mm.compile
            def step(x: Any, target: Any = target, source: Any = source) -> Any:
                read = x * target
                source.assign(source * 2 + 1)
                return read

            x = mm.asarray(np.ones((6, 4)), layout=mm.Layout.split(0))
            kept, expected, values = [], np.ones((6, 4)), source.numpy()
            for i in range(6):
                np.testing.assert_array_equal(step(x), expected)
                values = values * 2 + 1
                if i % 2:
                    kept.append(target.snapshot())
                    target.assign(source)
                    expected = values
            np.testing.assert_array_equal(kept[0], np.ones((6, 4)))


@pytest.mark.parametrize("is_converted", [False, True])
@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_a_program_overwrites_a_copy_of_a_value_with_other_references(
    limit: int | None, is_converted: bool
) -> None:
    """Each worker reads its part of the copy, which has the layout that the program was planned
    for, also where one copy for all workers could take the place of one for each."""
    with mm.init(2, launcher="threads", device="cpu", memory_limit=limit):
        for shape in ((7,), (7, 27), (60, 4), (700, 3)):
            dtype = "float32" if is_converted else "float64"
            w = mm.variable("w", mm.random.uniform(shape=shape, dtype=dtype))
            w.convert(mm.float64)
            values = np.random.default_rng(0).normal(size=shape)
            w.assign(values)

            @mm.compile
            def step(x: Any, w: Any = w) -> Any:
                read = x @ w
                w.assign(w * 2)
                return read

            x = mm.asarray(np.eye(shape[0]), layout=mm.Layout.split(0))
            kept = []
            for i in range(3):
                kept.append(w.snapshot())
                np.testing.assert_allclose(step(x), values * 2**i, atol=1e-12)
            for i, former in enumerate(kept):
                np.testing.assert_array_equal(former, values * 2**i)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["inline", "shared", "eager", "messages"])
def test_random_assignments_to_variables_in_any_layout(kind: str, seed: int) -> None:
    choice = Random(seed)
    shape = choice.randint(4, 40), choice.randint(1, 6)
    with current(kind, 1 if kind == "inline" else choice.choice([2, 3])):
        for _ in range(3):
            run = random_assignments(choice, shape)
            draw = np.random.default_rng(choice.randrange(10**6))
            values = {name: draw.standard_normal(shape) for name in "abc"}
            variables = {name: mm.variable(name, *placed(choice, x)) for name, x in values.items()}
            expected = run(np, values, lambda f: f)
            actual = run(mm, variables, mm.compile)
            for ours, theirs in zip(actual, expected, strict=True):
                np.testing.assert_allclose(np.asarray(ours), theirs, 1e-9, 1e-9)


def test_variables_and_constants_have_names_types_and_layouts() -> None:
    with current("shared", 2) as pool:
        v = mm.variable("weights", np.zeros((4, 2)), layout=mm.Layout.split(0))
        assert v.name == "weights"
        assert v.dtype is mm.float64
        assert v.layout == mm.Layout.split(0).bind((4, 2), pool.mesh)
        assert mm.variable("n", 3).dtype is mm.float32
        assert mm.constant(3).dtype is mm.float32
        assert mm.variable("n", 3, dtype="int64").dtype is mm.int64
        with pytest.raises(
            ShapeError,
            match=r"variable weights has shape \(4, 2\), was given a value of shape \(3,\)",
        ):
            v.assign([1.0, 2.0, 3.0])
        for wrong in ("x", None, object()):
            with pytest.raises(TypeError, match=r"variable weights needs an array, a number or"):
                v.assign(wrong)
        with pytest.raises(ShapeError, match=r"given to variable weights have different lengths"):
            v.assign([[1.0], [1.0, 2.0]])
        with pytest.raises(DTypeError, match=r"variable n is int64, its new value would be float"):
            mm.variable("n", 3, dtype="int64").assign(0.5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8", "complex128"])
def test_numbers_are_assigned_in_the_type_of_the_variable(every_pool: Pool, dtype: str) -> None:
    numbers = [0.1, 123456789.0] if dtype[0] in "fc" else [5, 200]
    scalar, vector = mm.variable("s", 0, dtype=dtype), mm.variable("v", [0, 0], dtype=dtype)
    vector.assign(numbers)
    np.testing.assert_array_equal(vector.numpy(), np.array(numbers, dtype))
    for number in numbers:
        scalar.assign(number)
        assert scalar.numpy() == np.array(number, dtype)[()]
        mm.compile(scalar.assign)(number)
        assert scalar.numpy() == np.array(number, dtype)[()]


def test_numbers_that_a_variable_cannot_hold_are_refused() -> None:
    v = mm.variable("v", [1, 2], dtype="int8")
    for wrong in ([0.5, 1], [1j, 0], mm.asarray([1, 2]), np.array([1, 2])):
        with pytest.raises(DTypeError, match="variable v is int8, its new value would be"):
            v.assign(wrong)
    with pytest.raises(RangeError, match="300 does not fit int8"):
        v.assign([1, 300])
    assert v.tolist() == [1, 2]
