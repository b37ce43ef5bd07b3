"""Gradients of small arrays, of one structure many times: equal to those of planned programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine.eager import gradient_calls, gradient_tape
from magmath.errors import MagmathError

UNARY: list[Callable[..., Any]] = [
    mm.sin,
    mm.tanh,
    lambda x: x * x,
    lambda x: mm.exp(-mm.abs(x)),
    lambda x: mm.reshape(x, (4, 3)).T @ mm.reshape(x, (4, 3)) @ mm.ones(3),
    lambda x: mm.concat([x[6:], x[:6]]),
    lambda x: mm.where(x > 0.3, x, 0.1 * x),
    lambda x: mm.flip(x) - mm.mean(x),
    mm.stop_gradient,
]
BINARY: list[Callable[..., Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x / (1.5 + y * y),
    mm.maximum,
    lambda x, y: mm.matmul(mm.reshape(x, (3, 4)), mm.reshape(y, (4, 3))),
    mm.logaddexp,
]
choices = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), max_size=7
)


def _values(
    inputs: Sequence[Any], program: Sequence[tuple[int, int, int]], number: float
) -> list[Any]:
    """Return the inputs and the values that a random program computes, of 12 elements each."""
    values = [*inputs]
    for function, first, second in program:
        x, y = values[first % len(values)], values[second % len(values)]
        if function % 3:
            value = BINARY[function % len(BINARY)](x, y)
        else:
            value = UNARY[function % len(UNARY)](x) * number
        flat = mm.reshape(value, -1)
        values.append(flat if flat.size == 12 else mm.pad(flat, (0, 12 - flat.size)))
    return values


@given(choices, st.integers(0, 99), st.booleans(), st.sampled_from(["array", "function", "inner"]))
@settings(max_examples=60, deadline=None)
def test_repeated_gradients_are_those_of_programs(
    program: list[tuple[int, int, int]], source: int, keeps: bool, form: str
) -> None:
    """Of sources and intermediate results, which exist or not; also gradients of gradients."""

    def steps() -> list[Any]:
        rng = np.random.default_rng(1)
        results = []
        data = mm.asarray(rng.normal(size=12))
        for step in range(5):
            x, number = mm.asarray(rng.normal(size=12)), float(rng.normal())
            w = x if step % 2 else 2.0 * x  # with a record and without

            def loss(w: Any, number: float = number) -> Any:
                values = _values([w, data, -data], program, number)
                return mm.mean(values[-1] * values[len(values) // 2])

            if form == "function":
                gradients = [*mm.value_and_grad(loss)(w)]
            elif form == "inner":
                gradients = [mm.grad(lambda w: mm.sum(mm.grad(loss)(w) ** 2))(w)]
            else:
                values = _values([w, data, -data], program, number)
                value = mm.mean(values[-1] * values[len(values) // 2] + w)
                chosen = [w, values[source % len(values)]]
                if not keeps:
                    values.clear()
                gradients = mm.grad(value, chosen)
            w = w - 0.1 * gradients[-1]
            results += [*gradients, w]
        return [x.numpy() for x in results]

    computed = []
    for kind in ("inline", "planned"):
        with current(kind):
            try:
                computed.append(steps())
            except MagmathError as error:
                computed.append([type(error)])
    for mine, planned in zip(*computed, strict=True):
        if isinstance(mine, type):
            assert mine is planned
        else:
            np.testing.assert_allclose(mine, planned, rtol=2e-5, atol=1e-6)


def test_a_training_loop_prepares_one_program(monkeypatch: Any) -> None:
    """Neither a step nor an update of the parameters plans anything, or runs on the worker."""
    programs = []
    prepare = gradient_calls._prepared
    monkeypatch.setattr(
        gradient_calls, "_prepared", lambda *args: programs.append(prepare(*args)) or programs[-1]
    )
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    with current("inline") as pool:
        data, targets, w = mm.asarray(x), mm.asarray(y), mm.zeros(4, dtype="float64")
        before = pool.traffic.messages
        for step in range(1, 20):
            rate = 0.1 / step
            loss = mm.mean((data @ w - targets) ** 2)
            w -= rate * mm.grad(loss, w)
        assert pool.traffic.messages == before
        assert len(programs) == 1
        expected = np.zeros(4)
        for step in range(1, 20):
            expected -= 0.1 / step * 2 * x.T @ (x @ expected - y) / 30
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


def test_numbers_of_user_code_are_operands() -> None:
    """A gradient of another number is not that of the first one; of a power it is another one."""
    with current("inline"):
        for power in (2.0, 3.0, 2.0, 0.5, 3.0, 0.5):
            for factor in (1.0, -2.0, 0.0, -0.0, 3.0):
                x = mm.asarray([0.25, 4.0], dtype="float64")
                gradient = mm.grad(mm.sum(factor * x**power), x)
                expected = factor * power * x.numpy() ** (power - 1)
                np.testing.assert_allclose(gradient.numpy(), expected)
                assert np.array_equal(np.signbit(gradient.numpy()), np.signbit(expected))


def test_a_source_that_depends_on_another_one_is_found() -> None:
    with current("inline"):
        for _ in range(4):
            x = mm.asarray([1.0, 2.0])
            y = x * 3.0
            by_x, by_y = mm.grad(mm.sum(x * y), [x, y])
            assert by_x.tolist() == [6.0, 12.0]
            assert by_y.tolist() == [1.0, 2.0]


def test_parameters_updated_in_turn() -> None:
    """The second gradient reads the former value of the first parameter, which exists no more."""
    with current("inline"):
        a, b = mm.asarray([1.0, 2.0]), mm.asarray([3.0, -1.0])
        c, d = np.array([1.0, 2.0]), np.array([3.0, -1.0])
        for _ in range(6):
            loss = mm.sum(a * b * b)
            a -= 0.1 * mm.grad(loss, a)
            b -= 0.1 * mm.grad(loss, b)
            c, d = c - 0.1 * d * d, d - 0.2 * c * d
            np.testing.assert_allclose(a.numpy(), c, rtol=1e-6)
            np.testing.assert_allclose(b.numpy(), d, rtol=1e-6)


def test_arrays_of_a_differentiated_function_exist_until_its_gradient() -> None:
    """Also those of more than 128 KB that it makes, and that repeated calls read."""
    batch = np.random.default_rng(0).normal(size=(400, 100))
    w, expected = np.zeros(100), np.zeros(100)
    with current("inline"):
        parameters = mm.asarray(w)

        def loss(w: Any) -> Any:
            return mm.mean((mm.asarray(batch) @ w - 1.0) ** 2) + mm.sum(mm.asarray(batch)[3] * w)

        for _ in range(5):
            parameters = parameters - 0.01 * mm.grad(loss)(parameters)
            expected -= 0.01 * (2 * batch.T @ (batch @ expected - 1) / 400 + batch[3])
            np.testing.assert_allclose(parameters.numpy(), expected, rtol=1e-9)
            outputs, pullback = mm.vjp(lambda w: mm.tanh(mm.asarray(batch) @ w), parameters)
            (product,) = pullback(mm.ones(400, dtype="float64"))
            slopes = 1 - np.tanh(batch @ expected) ** 2
            np.testing.assert_allclose(product.numpy(), batch.T @ slopes, rtol=1e-8)
            assert outputs.shape == (400,)


def test_gradients_by_arrays_that_the_result_has_not_read_are_errors() -> None:
    """In each step, and also if a structure had independent sources before."""
    with current("inline"):
        w, b, x = (mm.asarray(np.full(3, value)) for value in (1.0, 2.0, 3.0))
        for _ in range(3):
            other = mm.asarray(np.ones(3))
            assert mm.grad(mm.sum((w * x + b) ** 2), [other, b])[0].tolist() == [0, 0, 0]
        for _ in range(4):
            loss = mm.sum((w * x + b) ** 2)
            w -= 0.01  # the loss has not read this value
            with pytest.raises(MagmathError, match="does not depend"):
                mm.grad(loss, [w, b])


def test_no_sources_give_no_gradients() -> None:
    with current("inline"):
        x = mm.asarray(np.ones(3))
        assert mm.grad(mm.sum(x * x), []) == []
        assert mm.grad(lambda p: mm.sum(x * x))({}) == {}


def test_compiled_functions_that_return_arguments() -> None:
    with current("inline"):
        f = mm.compile(lambda x, y: (x, x * y, y))
        swap = mm.compile(lambda a, b: (b, a))
        for step in range(6):
            x, y = mm.asarray(np.arange(1.0, 4.0) + step), mm.asarray(np.arange(3.0))
            a = f(x, y)
            b = f(a[0], a[2])
            gradient = mm.grad(mm.sum(a[0] * b[0] * b[1]), x)
            np.testing.assert_allclose(gradient.numpy(), 3 * x.numpy() ** 2 * y.numpy())
            c, d = swap(*f(x, y)[:2])
            gradient = mm.grad(mm.sum(c * d), x)
            np.testing.assert_allclose(gradient.numpy(), 2 * x.numpy() * y.numpy())


def test_a_gradient_by_a_fixed_array_does_not_search_former_steps() -> None:
    """The parameters depend on it through gradients alone."""
    with current("inline"):
        x = mm.asarray(np.ones(3))
        p = mm.asarray(np.arange(3.0))
        sizes = []
        original = gradient_tape.GradientTape.__init__

        def noted(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            sizes.append(len(self.entries))

        with patch.object(gradient_tape.GradientTape, "__init__", noted):
            for _ in range(30):
                slope = mm.grad(mm.sum((p * x) ** 2), x)
                p = p - 0.01 * mm.grad(mm.sum((p * (x + 0.01 * slope)) ** 2), p)
        assert len(sizes) == 60
        assert max(sizes) < 20
