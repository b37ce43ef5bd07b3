"""Small arrays are computed when their expressions are built: the values, the gradients and the
memory are those of arrays that programs compute."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.engine.array_sizes import MAX_BYTES_INLINE
from magmath.engine.eager.eager_computation import MAX_PRODUCT
from magmath.engine.remote_array import RemoteArray
from magmath.errors import MagmathError
from magmath.graph.provenance.provenance import KEPT_BYTES
from magmath.graph.provenance.provenance_chains import MAX_LENGTH
from small_expressions import BINARY, UNARY, appended

GRID = np.random.default_rng(0).uniform(-1, 1, (3, 3))


def program(choices: list[tuple[int, int, int]], forget: bool) -> tuple[Any, ...]:
    """Values and gradients of a random expression; `forget` drops all but the last array."""
    x, y = mm.asarray(GRID), mm.asarray(GRID[::-1].copy())
    arrays = [x, y]
    appended(arrays, choices)
    loss = mm.sum(arrays[-1] * arrays[-1])
    last = arrays[-1].numpy()
    if forget:
        del arrays
        gc.collect()
    return last, float(loss), mm.grad(loss, [x, y])


@settings(max_examples=70)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_values_and_gradients_are_those_of_programs(
    choices: list[tuple[int, int, int]], forget: bool
) -> None:
    with current("planned"):
        expected = program(choices, forget=False)
        expected = (*expected[:2], [np.asarray(g) for g in expected[2]])
    with current("inline"):
        actual = program(choices, forget)
        for one, other in zip(
            (*actual[:2], *actual[2]), (*expected[:2], *expected[2]), strict=True
        ):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-6, atol=1e-9)


def test_small_arrays_are_computed_without_messages() -> None:
    with current("inline") as pool:
        x = mm.asarray(np.arange(6.0).reshape(2, 3))
        before = pool.traffic.messages
        y = (x * 2 + 1).sum(axis=0)
        y[0] = 7
        assert y.is_computed
        assert y.tolist() == [7, 12, 16]
        assert float(y.max() + y.min()) == 23
        assert pool.traffic.messages == before
        large = mm.asarray(np.ones(MAX_BYTES_INLINE))
        assert not (large * 2).is_computed
        assert float(mm.sum(large * y[1])) == 12 * MAX_BYTES_INLINE  # y is sent to the worker


def test_long_products_with_large_matrices_stay_expressions() -> None:
    random = np.random.default_rng(1)
    tall, w = random.standard_normal((MAX_PRODUCT // 8 + 1, 50)), random.standard_normal(50)
    square = random.standard_normal((1000, 1000))
    with current("inline"):
        products = mm.asarray(tall) @ mm.asarray(w)
        assert not products.is_computed
        assert (mm.asarray(tall[1:]) @ mm.asarray(w)).is_computed
        assert (mm.asarray(square) @ mm.asarray(square[0])).is_computed
        np.testing.assert_allclose(products, tall @ w)
        slope = mm.grad(lambda w: mm.sum(mm.exp(mm.asarray(tall) @ w)))(mm.asarray(w))
        np.testing.assert_allclose(slope, tall.T @ np.exp(tall @ w))


def test_traces_and_variables_stay_expressions() -> None:
    with current("inline"):
        x, v = mm.asarray([1.0, 2.0]), mm.variable("v", [3.0, 4.0])
        assert not (x * v).is_computed
        seen = []

        def f(a: mm.Array) -> mm.Array:
            seen.append((a * x).is_computed)
            return mm.sum(a * a * x)

        np.testing.assert_allclose(mm.grad(f)(x).numpy(), [2, 8])
        np.testing.assert_allclose(mm.grad(lambda a: mm.sum(mm.grad(f)(a)))(x).numpy(), [2, 4])
        assert all(seen), "arguments of differentiated functions are computed"
        seen.clear()
        assert mm.compile(f)(x).item() == 9
        assert not any(seen)


def test_a_captured_array_that_is_updated_is_read_again() -> None:
    with current("inline"):
        c = mm.asarray([1.0, 2.0])
        f = mm.compile(lambda x: x * (c * 2))
        assert f(mm.ones(2)).tolist() == [2, 4]
        c += 1
        assert f(mm.ones(2)).tolist() == [4, 6]


def test_gradients_pass_through_temporary_arrays() -> None:
    """Small operands that are no results are kept, as a pending expression would keep them."""
    with current("inline"):
        x = mm.asarray([1.0, 2.0])
        loss = mm.sum((x - mm.asarray([0.5, 1.0])) ** 2 * mm.asarray([2.0, 3.0]))
        gc.collect()
        np.testing.assert_allclose(mm.grad(loss, x).numpy(), [2.0, 6.0])


def test_long_chains_keep_little_and_end() -> None:
    with current("inline"):
        start = x = mm.asarray(np.zeros(KEPT_BYTES // 8))
        for _ in range(MAX_LENGTH // 2):
            x = x * 0.5 + np.ones(KEPT_BYTES // 8)  # a new operand of 4 KB in each step
        np.testing.assert_allclose(x.numpy(), 2.0)
        gc.collect()
        kept = sum(type(y) is RemoteArray for y in gc.get_objects())
        assert kept < 0.4 * MAX_LENGTH
        with pytest.raises(MagmathError, match=r"grad: .*operations were made of it since"):
            mm.grad(mm.sum(x), start)


def test_arrays_of_an_ended_pool_are_gone() -> None:
    x = mm.asarray([1.0])
    engine = session.engine()
    with current("inline"), pytest.raises(MagmathError, match="another pool"):
        (x + 1).numpy()
    assert session.engine() is engine
    assert (x + 1).item() == 2


def test_failures_are_raised_at_the_line_and_change_nothing() -> None:
    with current("inline"):
        x = mm.asarray([1.0, 2.0, 3.0])
        row, reader = x[:2], x * 2
        wrong: list[Callable[[], Any]] = [
            lambda: x[mm.asarray([7])],
            lambda: x.__setitem__(mm.asarray([7]), 1.0),
            lambda: row.__setitem__(mm.asarray([2]), 1.0),
            lambda: mm.linalg.inv(mm.asarray(np.zeros((2, 2)))),
            lambda: mm.linalg.solve(mm.asarray(np.zeros((2, 2))), x[:2]),
            lambda: mm.linalg.cholesky(-mm.asarray(np.eye(2))),
        ]
        for function in wrong:
            with pytest.raises((IndexError, np.linalg.LinAlgError)) as caught:
                function()
            notes = getattr(caught.value, "__notes__", [])  # an index is checked at the line itself
            assert __file__ in "".join(notes) or isinstance(caught.value, IndexError)
        assert (x.tolist(), row.tolist(), reader.tolist()) == ([1, 2, 3], [1, 2], [2, 4, 6])
        x[mm.asarray([0, 2])] = 5.0
        assert (x.tolist(), row.tolist()) == ([5, 2, 5], [5, 2])


def test_expressions_of_numbers_alone_fail_when_they_are_read() -> None:
    with current("inline"):
        singular = mm.linalg.inv(mm.zeros((2, 2)))
        with pytest.raises(np.linalg.LinAlgError):
            singular.numpy()


def test_transposes_of_larger_arrays_are_read_without_copies() -> None:
    """`x.T @ y` has a small result and is computed at once; its gradients reach x."""
    x, y = np.random.default_rng(0).normal(size=(600, 60)), np.arange(600.0)
    with current("inline"):
        a, b = mm.asarray(x), mm.asarray(y)
        assert a.nbytes > MAX_BYTES_INLINE
        view = a.T
        product = view @ b
        assert product.is_computed
        assert not view.is_computed
        np.testing.assert_allclose(product, x.T @ y, rtol=1e-12)
        np.testing.assert_allclose(view.sum(axis=0), x.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(mm.max(a.T, axis=1), x.T.max(axis=1))
        loss = mm.sum((a.T @ (a @ (a.T @ b))) ** 2)
        numbers = x.T @ (x @ (x.T @ y))
        assert float(loss) == pytest.approx(float((numbers**2).sum()))
        for_x, for_y = mm.grad(loss, [a, b])
        gram, doubled = x.T @ x, 2 * numbers
        np.testing.assert_allclose(for_y, x @ (gram @ doubled), rtol=1e-9)
        expected = (
            np.outer(x @ (x.T @ y), doubled)
            + np.outer(x @ doubled, x.T @ y)
            + np.outer(y, gram @ doubled)
        )
        np.testing.assert_allclose(for_x, expected, rtol=1e-9)


def test_gradients_by_a_transpose_and_by_what_it_was_made_of() -> None:
    """With a name, without one, and after both were gone."""
    x, y = np.random.default_rng(2).normal(size=(200, 60)), np.arange(200.0)
    with current("inline"):
        a, b = mm.asarray(x), mm.asarray(y)
        view = a.T
        loss = mm.sum((view @ b) ** 2)
        by_view, by_a = mm.grad(loss, [view, a])
        expected = np.outer(2 * (x.T @ y), y)
        np.testing.assert_allclose(by_view, expected, rtol=1e-9)
        np.testing.assert_allclose(by_a, expected.T, rtol=1e-9)
        del view
        gc.collect()
        np.testing.assert_allclose(mm.grad(loss, a), expected.T, rtol=1e-9)
        twice = mm.sum(a.T @ (a @ (a.T @ b)) * (a.T @ b))
        (slope,) = mm.grad(twice, [b])
        gram = x @ (x.T @ (x @ (x.T @ y)))
        np.testing.assert_allclose(slope, 2 * gram, rtol=1e-9)


def test_a_transpose_of_an_updated_array_shares_its_elements() -> None:
    x, y = np.random.default_rng(1).normal(size=(200, 60)), np.arange(200.0)
    with current("inline"):
        a, b = mm.asarray(x), mm.asarray(y)
        view = a.T
        before = view @ b
        a += 1
        after = view @ b
        view[0] = 5.0
        np.testing.assert_allclose(before, x.T @ y, rtol=1e-12)
        np.testing.assert_allclose(after, (x + 1).T @ y, rtol=1e-12)
        assert a[:, 0].tolist() == [5.0] * 200
        np.testing.assert_allclose((a.T @ b)[0], 5 * y.sum())


STEPS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.T,
    lambda x: mm.permute_dims(x, (1, 0)),
    lambda x: mm.moveaxis(x, 0, 1),
    lambda x: x[::-1],
    lambda x: mm.reshape(x, (x.shape[1], x.shape[0])),
    lambda x: x**2,
    lambda x: mm.sin(x) + 0.5 * x,
    lambda x: mm.relu(x),
    lambda x: x * x.T,
    lambda x: x @ x.T,
    lambda x: x - mm.mean(x, axis=0),
    lambda x: mm.exp(0.1 * x),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=4))
def test_a_variable_stays_one_after_the_expression_was_computed_for_an_array(
    choices: list[int],
) -> None:
    """What is remembered of operations on small arrays must not be applied to variables."""
    values = np.random.default_rng(3).uniform(-1, 1, (3, 3))
    values[0, 1] = 0.0  # where relu has a kink

    def loss(x: Any) -> Any:
        for i in choices:
            x = STEPS[i](x)
        return mm.sum(x * x)

    with current("inline"):
        a = mm.asarray(values)
        y = loss(a)
        first = mm.grad(y, a)
        float(loss(a)), float(loss(a))
        for _ in range(2):
            v = mm.variable("v", values)
            forms = [
                mm.grad(loss(a), a),
                mm.grad(loss(v), v),
                mm.grad(loss)(a),
                mm.value_and_grad(lambda v=v: loss(v), [v])[1][v],
                mm.compile(mm.grad(loss))(a),
            ]
            for result in forms:
                np.testing.assert_allclose(result, first, atol=1e-12)


def test_small_parts_of_large_arrays_are_computed_at_their_line() -> None:
    """Such as the batches of a data set: a training loop on them plans nothing."""
    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=(40_000, 20)), rng.normal(size=40_000)
    with current("inline") as pool:
        data, targets, before = mm.asarray(values), mm.asarray(labels), 0
        w, expected = mm.zeros(20, dtype="float64"), np.zeros(20)
        mm.evaluate(data, targets)
        for start in range(0, 600, 30):
            before = before if start > 30 else pool.traffic.messages
            x, y = data[start : start + 30], targets[start : start + 30]
            assert x.is_computed
            loss = mm.mean((x @ w - y) ** 2)
            w -= 0.1 * mm.grad(loss, w)
            a, b = values[start : start + 30], labels[start : start + 30]
            expected -= 0.1 * 2 * a.T @ (a @ expected - b) / 30
            assert mm.take(data, mm.asarray([3, start]), axis=0).is_computed
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-9)
        assert pool.traffic.messages == before
        for _ in range(3):  # the part has no name, and the data set is a source
            gradient = mm.grad(mm.sum(data[10:12] * data[:2]), data)
            wanted = np.zeros_like(values)
            wanted[:2], wanted[10:12] = values[10:12], values[:2]
            np.testing.assert_allclose(gradient.numpy(), wanted)
        part = data[5:7]
        data[5] = 0.0
        np.testing.assert_array_equal(np.asarray(mm.asarray(part, copy=True))[1], values[6])


def test_large_results_of_masks_stay_pending() -> None:
    """Also if the same key has selected few elements before."""
    values = np.random.default_rng(0).normal(size=(40_000, 8))
    with current("inline"):
        data = mm.asarray(values)
        for count in (10, 20, 30, 39_000, 10, 38_000):
            chosen = np.arange(len(values)) < count
            mask = mm.asarray(chosen)
            mm.evaluate(data, mask)
            selected = data[mask]
            assert selected.is_computed == (selected.nbytes <= MAX_BYTES_INLINE)
            np.testing.assert_array_equal(selected.numpy(), values[chosen])
