"""Compiled functions: one trace, nested arguments and results, and functions that cannot be
compiled."""

from __future__ import annotations

import copy
import enum
import pickle
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from arrays import GRID, check, programs
from engines import current
from magmath.errors import (
    MagmathError,
)
from magmath.runtime import Pool


def test_compiled_function_is_traced_once(every_pool: Pool) -> None:
    traced = []

    @mm.compile
    def f(x: mm.Array, scale: float, *, shift: float = 0.0) -> mm.Array:
        traced.append(x.shape)
        return mm.sum(x, axis=0) * scale + shift

    x = mm.asarray(GRID)
    check(f(x, 2.0), GRID.sum(0) * 2)
    for i in range(5):
        check(f(x + float(i), 0.5 * i, shift=1.0), (GRID + i).sum(0) * 0.5 * i + 1)
    assert len(traced) == 2, "once without and once with a shift"
    known = programs(every_pool)
    check(f(x, 9.0), GRID.sum(0) * 9)
    assert programs(every_pool) == known
    check(f(GRID[:2], 1.0), GRID[:2].sum(0))
    assert len(traced) == 3, "another shape"


def test_methods_are_compiled_for_each_instance(every_pool: Pool) -> None:
    traced = []

    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @mm.compile
        def step(self, x: mm.Array, shift: float = 0.0) -> mm.Array:
            """Scale x."""
            traced.append(self)
            return x * self.factor + shift

    x = mm.asarray(GRID)
    first, second = Scaled(2.0), Scaled(3.0)
    for i in range(3):
        check(first.step(x, float(i)), GRID * 2 + i)
        check(second.step(x, shift=float(i)), GRID * 3 + i)
    again = copy.deepcopy(first)
    again.factor = 5.0
    check(again.step(x), GRID * 5)
    check(Scaled(7.0).step(x), GRID * 7)
    assert first.step.__name__ == "step"
    assert first.step.__self__ is first
    assert len(traced) == 4, "once for each instance"
    gone = weakref.ref(second)
    del second
    traced.clear()
    assert gone() is None, "a compiled method holds no instance"


class Doubled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @mm.compile
    def product(self, x: Any) -> Any:
        return x * self.factor

    def plain(self, x: Any) -> Any:
        return x * self.factor

    fast = mm.compile(plain)  # whose name is not that of the function


def test_bound_methods_are_copied_and_pickled() -> None:
    first = Doubled(2.0)
    first.run = first.product  # type: ignore[attr-defined]
    assert copy.copy(first.product)(mm.ones(1)).tolist() == [2.0]
    for again in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert again.run.__self__ is again
        again.factor = 3.0
        assert again.run(mm.ones(1)).tolist() == [3.0]
    assert first.run(mm.ones(1)).tolist() == [2.0]  # type: ignore[attr-defined]
    for again in (copy.copy(first.fast), pickle.loads(pickle.dumps(first.fast))):
        assert type(again) is type(first.fast)


def test_a_method_of_instances_without_weak_references_is_refused() -> None:
    class Slotted:
        __slots__ = ()

        @mm.compile
        def step(self, x: mm.Array) -> mm.Array:
            return x

    with pytest.raises(TypeError, match="Slotted has none; add"):
        Slotted().step(mm.ones(2))


def test_compiled_function_takes_and_gives_nested_structures() -> None:
    @mm.compile
    def f(state: dict[str, Any], pair: tuple[Any, Any], flag: str) -> Any:
        a, b = pair
        return {"sum": state["x"] + a, "both": [b * 2, (state["n"] * a,)], "flag": a + len(flag)}

    x = mm.asarray([1.0, 2.0])
    result = f({"x": x, "n": 3}, (x + 1, np.array([5.0, 6.0])), "abc")
    check(result["sum"], np.array([3.0, 5.0], np.float32))
    check(result["both"][0], np.array([10.0, 12.0]))
    check(result["both"][1][0], np.array([6.0, 9.0], np.float32))
    check(result["flag"], np.array([5.0, 6.0], np.float32))
    assert isinstance(result["both"][1], tuple)


def test_compiled_gradient_is_a_step_of_descent(every_pool: Pool) -> None:
    @mm.compile
    def step(w: mm.Array, x: mm.Array, y: mm.Array, rate: float) -> tuple[mm.Array, mm.Array]:
        loss = mm.mean(mm.square(x @ w - y))
        return w - rate * mm.grad(loss, w), loss

    random = np.random.default_rng(1)
    x, truth = random.standard_normal((50, 4)), np.array([1.0, -2.0, 3.0, 0.5])
    w, y = mm.zeros(4, dtype="float64"), x @ truth
    losses = []
    for _ in range(200):
        w, loss = step(w, x, y, 0.1)
        losses.append(float(loss))
    np.testing.assert_allclose(w.numpy(), truth, atol=1e-6)
    assert losses[-1] < 1e-9 < losses[0]


def test_numbers_and_arrays_of_numpy_are_results() -> None:
    """They are the same in each call."""
    f = mm.compile(lambda x: {"y": x * 2, "n": 3, "z": np.arange(3), "is": True})
    for _ in range(3):
        result = f(mm.ones(2))
        assert {name: x.tolist() for name, x in result.items()} == {
            "y": [2, 2], "n": 3, "z": [0, 1, 2], "is": True,
        }  # fmt: skip
    assert result["n"].dtype == mm.int64
    assert int(mm.compile(lambda x: 3)(mm.ones(2))) == 3


def test_functions_that_cannot_be_compiled_are_told_why() -> None:
    with pytest.raises(MagmathError, match="must return arrays and numbers, .*; it returned a str"):
        mm.compile(lambda x: "text")(mm.ones(2))
    with pytest.raises(
        MagmathError, match="must be an array, a number or hashable, was given a set"
    ):
        mm.compile(lambda x, y: x)(mm.ones(2), {1})


def test_programs_that_are_held_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are, so that a long session does not collect them."""
    monkeypatch.setattr("magmath.engine.programs.program_table.MAX_PROGRAMS", 4)
    with current("shared", 2) as pool:
        before = pool.stats()[0]["programs"]
        x, v = mm.asarray([1.0, 2.0]), mm.variable("v", [3.0])
        function, descent, loss = mm.compile(mm.sin), mm.optim.GradientDescent(0.25), mm.sum(v * v)
        for n in range(1, 12):
            check(function(x), np.sin(np.float32([1, 2])))
            assert descent.minimize(loss, [v]) == pytest.approx(9 * 0.25 ** (n - 1))
            mm.evaluate(mm.ones(n) + 1)
        assert pool.stats()[0]["programs"] == before + 4


def test_compiled_function_sees_variables_as_they_are_now() -> None:
    v = mm.variable("v", [1.0, 2.0])

    @mm.compile
    def f(x: mm.Array) -> mm.Array:
        return x * v

    x = mm.asarray([10.0, 10.0])
    check(f(x), np.array([10.0, 20.0], np.float32))
    v.assign([3.0, 4.0])
    check(f(x), np.array([30.0, 40.0], np.float32))


def test_variables_among_the_arguments_are_told_apart_after_their_deletion() -> None:
    f = mm.compile(lambda v, x: x * len(v.name))
    for n in range(2, 40):  # a later variable may have the identity of a deleted one
        assert f(mm.variable("v" * n, mm.ones(2)), mm.ones(1)).tolist() == [n]


def test_a_number_out_of_range_takes_no_random_numbers() -> None:
    f = mm.compile(lambda x, n: (x + n, mm.random.uniform(shape=(2,))))
    x = mm.zeros(3, dtype=mm.uint8)
    mm.random.seed(3)
    expected = [f(x, 1)[1].tolist() for _ in range(2)]
    mm.random.seed(3)
    actual = [f(x, 1)[1].tolist()]
    with pytest.raises(mm.errors.RangeError):
        f(x, 1000)
    actual.append(f(x, 1)[1].tolist())
    assert actual == expected


def test_random_numbers_do_not_repeat_after_two_failures() -> None:
    """A failure gives back only what nothing was taken after."""
    f = mm.compile(lambda x: mm.linalg.inv(x) + mm.random.uniform(shape=(2, 2)))
    f(mm.eye(2))
    with pytest.raises(mm.errors.LinAlgError):
        f(mm.zeros((2, 2)))
    drawn = [mm.random.uniform(shape=(2,)).tolist() for _ in range(2)]
    v = mm.variable("v", np.eye(2))
    with pytest.raises(mm.errors.LinAlgError):
        v.assign(mm.linalg.inv(v * 0.0))
    drawn += [mm.random.uniform(shape=(2,)).tolist() for _ in range(3)]
    assert len(set(map(tuple, drawn))) == 5


NUMBERS: dict[str, Any] = {
    "full": lambda x, s: mm.full(2, s) * x,
    "sin": lambda x, s: mm.sin(s) * x,
    "asarray": lambda x, s: mm.asarray(s) * x,
    "where": lambda x, s: mm.where(x > 0, s, 0) * x,
    "sqrt": lambda x, s: x * mm.sqrt(mm.abs(s)),
    "exp": lambda x, s: x * mm.exp(-s),
    "sum": lambda x, s: mm.sum(s) * x,
    "stack": lambda x, s: mm.stack([s, s]) * x,
    "power": lambda x, s: mm.power(s, 2) * x,
    "atan2": lambda x, s: mm.atan2(s, 3) + x,
    "clip": lambda x, s: mm.clip(x, 0, s),
    "floor": lambda x, s: x + mm.floor(s),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("number", [0.25, -3])
@pytest.mark.parametrize("dtype", [mm.float32, mm.float64, mm.int64])
def test_number_arguments_have_the_types_of_numbers(name: str, number: Any, dtype: Any) -> None:
    x = mm.asarray([1, 2], dtype=dtype)
    expected, actual = NUMBERS[name](x, number), mm.compile(NUMBERS[name])(x, number)
    assert actual.dtype is expected.dtype
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), rtol=1e-6)


class Mode(enum.IntEnum):
    PLAIN = 1
    DOUBLE = 2


class Unit(enum.IntEnum):
    ONE = 1
    TWO = 2


class Factor(float):
    """A number of a class derived from a Python number."""


def test_powers_of_number_arguments_are_those_of_python() -> None:
    compiled = mm.compile(lambda x, a, n: x * a**n)
    x = mm.ones(2, dtype="float64")
    for a in (2, 2.0, -3, 1.5, True):
        for n in (-2, -1, 0, 1, 3, True, 2.0):
            assert compiled(x, a, n).tolist() == [a**n] * 2
    looped = mm.compile(lambda x, n: mm.fori_loop(0, 40, lambda i, y: y + 2 ** (i % n), x))
    assert looped(x, 3).tolist() == [1.0 + sum(2 ** (i % 3) for i in range(40))] * 2


def test_objects_that_are_numbers_reach_the_function_as_themselves() -> None:
    """Equal members of two enumerations too."""

    @mm.compile
    def f(x: mm.Array, argument: Any) -> mm.Array:
        if argument is Mode.DOUBLE:
            return x * argument
        return x * argument + (0.5 if isinstance(argument, Unit) else 0.0)

    for argument, expected in (
        (2, 2.0), (Mode.DOUBLE, 2.0), (Unit.TWO, 2.5), (2, 2.0), (Mode.PLAIN, 1.0), (Unit.ONE, 1.5),
        (Factor(3.0), 3.0), (4.0, 4.0), (Factor(5.0), 5.0),
    ):  # fmt: skip
        assert f(mm.ones(2), argument).tolist() == [expected] * 2, argument


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
@given(calls=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=8))
def test_an_array_in_two_places_is_one_array_in_each_call(
    kind: str, workers: int, calls: list[tuple[int, int]]
) -> None:
    """Also where the calls before had two arrays, or each received the result of the one before."""

    def slope(x: mm.Array, y: mm.Array) -> mm.Array:
        actual: mm.Array = mm.grad(mm.sum(mm.sin(x) * y), x)
        return actual

    with current(kind, workers):
        compiled = mm.compile(slope)
        arrays = [mm.asarray(GRID), mm.asarray(GRID + 1), mm.asarray(GRID - 1)]
        for i, j in calls:
            x, y = arrays[i].numpy(), arrays[j].numpy()
            arrays[2] = compiled(arrays[i], arrays[j])
            expected = np.cos(x) * y + (np.sin(x) if i == j else 0)
            np.testing.assert_allclose(arrays[2].numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [10, 20_000])
@pytest.mark.parametrize(
    ("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]
)
def test_values_that_decide_while_tracing_are_read_again_after_updates(
    kind: str, workers: int, size: int
) -> None:
    """Masks, numbers in an `if`, lengths and copies of arrays that are no arguments."""
    with current(kind, workers):
        v, x = mm.asarray(np.ones(size)), mm.asarray(np.ones(size))

        def copied() -> Any:
            a = v.copy()
            a[a > 0] += 1
            return a[0]

        functions = [
            mm.compile(lambda: v[v > 0].sum()), mm.compile(copied),
            mm.compile(lambda: (x * 2 if float(v[0]) > 2 else x).sum()),
            mm.compile(lambda: len(v[v > 2]) + 0 * x.sum()),
            mm.compile(lambda: x * int((v * 2).max())), mm.compile(lambda: x + v.tolist()[1]),
        ]  # fmt: skip
        wanted = [
            lambda n: size * n, lambda n: n + 1, lambda n: size * (2 if n > 2 else 1),
            lambda n: size if n > 2 else 0, lambda n: np.ones(size) * 2 * n, lambda n: np.ones(size) + n,
        ]  # fmt: skip
        number = 1.0
        for step in range(6):
            for compiled, want in zip(functions, wanted, strict=True):
                np.testing.assert_allclose(compiled(), want(number))
            if step % 2:
                v += 1
            else:
                v[...] = x * (number + 1)
            number += 1


@pytest.mark.parametrize("rows", [4, 4000])
@pytest.mark.parametrize("is_read", [False, True])
def test_gradients_pass_through_calls_on_numpys_arrays(rows: int, is_read: bool) -> None:
    """The arrays that a call converts have no other reference; gradients need them nevertheless,
    also after the loss was read."""
    rng = np.random.default_rng(0)
    w = mm.variable("w", mm.asarray(rng.standard_normal((50, 3))))
    network = mm.compile(lambda x: mm.tanh(x @ w))
    for _ in range(4):
        batch, targets = rng.standard_normal((rows, 50)), rng.standard_normal((rows, 3))
        loss = mm.mean((network(batch) - targets) ** 2)
        if is_read:
            loss.item()
        outputs = np.tanh(batch @ w.numpy())
        expected = batch.T @ ((outputs - targets) * (1 - outputs**2)) * 2 / targets.size
        np.testing.assert_allclose(mm.grad(loss, w).numpy(), expected, rtol=1e-10, atol=1e-14)
        w.assign(w - 0.1 * mm.grad(loss, w))


def _with_recursion(x: Any) -> Any:
    """An array that a function refers to, which refers to itself."""
    out = mm.zeros(x.shape)

    def fill(i: int) -> None:
        if i < x.shape[0]:
            out[i] = x[i] * 2
            fill(i + 1)

    fill(0)
    return out


def _with_cycle(x: Any) -> Any:
    """Arrays of objects that refer to each other."""
    parent, child = SimpleNamespace(x=mm.zeros(x.shape)), SimpleNamespace(x=mm.zeros(x.shape))
    parent.child, child.parent = child, parent
    child.x += x
    parent.x += child.x * 2
    return parent.x


@pytest.mark.parametrize("function", [_with_recursion, _with_cycle])
@pytest.mark.parametrize("transform", ["compile", "vmap", "remat", "fori_loop"])
def test_arrays_that_are_made_in_a_function_may_be_in_cycles(function: Any, transform: str) -> None:
    with current("inline"):
        x = mm.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        if transform == "fori_loop":
            made = mm.fori_loop(0, 1, lambda i, y: function(y), x)
        else:
            made = getattr(mm, transform)(function)(x)
        check(made, 2 * x.numpy())


TRANSFORMED: dict[str, Any] = {
    "compile": lambda f, x: mm.compile(f)(x),
    "compile, for a number": lambda f, x: mm.compile(lambda x, n: (f(x), range(n)[-1]))(x, 3),
    "vmap": lambda f, x: mm.vmap(f)(x),
    "scan": lambda f, x: mm.scan(lambda state, row: (state, f(row)), 0.0, x),
    "cond": lambda f, x: mm.compile(lambda x: mm.cond(mm.sum(x) > 0, f, mm.sin, x))(x),
    "remat": lambda f, x: mm.remat(f)(x),
    "while_loop": lambda f, x: mm.while_loop(lambda x: mm.sum(x) > 0, f, x),
    "nested": lambda f, x: mm.compile(mm.vmap(f))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("raises", [True, False])
def test_functions_that_fail_leave_the_arrays_that_they_have_updated(
    name: str, raises: bool
) -> None:
    """Arrays from outside of a function that raises an error, or whose updates are one."""
    with current("inline"):
        x, array = mm.asarray(GRID), mm.asarray(np.zeros((3, 2)))
        row, total = array[1], mm.variable("total", 0.0)

        def f(x: mm.Array) -> mm.Array:
            nonlocal row, array
            total.assign(mm.sum(x))
            row += mm.sum(x)
            array *= 2.0
            array[0, 0] = mm.max(x)
            if raises:
                raise ValueError("of the user")
            return x * 0.5

        expected = ValueError if raises else MagmathError
        for _ in range(2):
            with pytest.raises(expected, match="of the user" if raises else "updates an array"):
                TRANSFORMED[name](f, x)
            check(array, np.zeros((3, 2)))
            check(row, np.zeros(2))
            assert float(total) == 0.0
        row += 1.0
        check(array, [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
