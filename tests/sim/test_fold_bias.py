"""Biases in every form: the same numbers for any network, workers and executor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.cost import Machine
from magmath.engine import session
from magmath.errors import OptionError
from magmath.passes.fold_bias import EPILOGUE, FOLDED, REALIGNED, SEPARATE, WIDENED

WORKERS = (0, 2, 4)
SHAPES = ((1, 3, 4, 2), (7, 5, 1, 3), (6, 2, 3, 1), (40, 10, 33, 17))
"""Rows, inputs below, inputs and units of a layer."""


@contextlib.contextmanager
def pool(workers: int, form: str, **options: Any) -> Iterator[None]:
    with mm.init(workers, launcher="threads", threads=1, fold_bias=form, **options):
        yield


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def random_layout(random: np.random.Generator) -> mm.Layout:
    rules = (mm.Layout.replicated(), mm.Layout.split(0), mm.Layout.on(0), mm.Layout.cyclic(0))
    return rules[random.integers(len(rules))]


@pytest.mark.parametrize(
    ("form", "workers"),
    [(SEPARATE, 0), *[(form, workers) for form in FOLDED for workers in WORKERS]],
)
def test_products_and_gradients_are_those_of_torch(form: str, workers: int) -> None:
    """Two layers, the second with transposed weights; what they return is read by others too."""
    random = np.random.default_rng(0)
    with pool(workers, form):
        for number, (rows, below, inputs, units) in enumerate(SHAPES):
            given = [
                numbers(rows, below), numbers(below, inputs), numbers(inputs), numbers(inputs, units),
                numbers(units), numbers(3, units), numbers(3),
            ]  # fmt: skip

            def network(lib: Any, h: Any, v: Any, c: Any, w: Any, b: Any, u: Any, d: Any) -> Any:
                x = lib.tanh(h @ v + c)
                y = x @ w + b
                y = lib.maximum(y, y * 0.0)
                return lib.sum((y @ u.T + d) ** 2) + lib.sum(x * x)

            counterparts = [torch.from_numpy(a.copy()).requires_grad_(True) for a in given]
            network(torch, *counterparts).backward()
            arrays = [mm.asarray(a) for a in given]
            if number % 2 and workers:
                arrays = [a.redistribute(random_layout(random)) for a in arrays]
            every = tuple(range(len(given)))
            compiled: Any = mm.compile(
                mm.grad(lambda *a, f=network: f(mm, *a), argnums=every)  # type: ignore[misc]
            )
            for actual, counterpart in zip(compiled(*arrays), counterparts, strict=True):
                expected = counterpart.grad
                np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("form", FOLDED)
def test_training_has_the_same_losses(form: str, workers: int) -> None:
    """Many steps in a loop, with optimizers whose update no product can absorb."""
    x, y = numbers(48, 9), np.arange(48) % 3

    def losses(form: str, optimizer: Any, strategy: str) -> list[float]:
        with pool(workers, form):
            layers = [mm.nn.Dense(16, activation="relu"), mm.nn.Dense(3)]
            network = mm.nn.NeuralNetwork(layers, optimizer=optimizer, seed=1)
            return list(network.fit(x, y, epochs=3, batch_size=12, strategy=strategy).loss)

    for optimizer in (mm.optim.Adam(0.01), mm.optim.GradientDescent(0.1)):
        expected = losses(EPILOGUE, optimizer, "data")
        np.testing.assert_allclose(losses(form, optimizer, "data"), expected, rtol=2e-4)


def explained(form: str, rows: int = 64, **options: Any) -> str:
    h, v, w, b, g = (
        numbers(rows, 8), numbers(8, 33), numbers(33, 17), numbers(17), numbers(rows, 17)
    )  # fmt: skip
    for x in (v, w, b, g):
        x.flags.writeable = False  # constants of the function

    def layer(h: Any) -> Any:
        x = mm.relu(h @ mm.asarray(v))
        slope = mm.asarray(g) * 2.0
        return x @ mm.asarray(w) + mm.asarray(b), x.T @ slope, mm.sum(slope, axis=0)

    with pool(0, form, **options):
        compiled: Any = mm.compile(layer)
        actual = compiled(mm.asarray(h))
        x = np.maximum(h @ v, 0)
        for result, expected in zip(actual, (x @ w + b, 2 * x.T @ g, 2 * g.sum(0)), strict=True):
            np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-9, atol=1e-11)
        return str(compiled.explain())


def test_each_form_is_planned() -> None:
    separate, epilogue = explained(SEPARATE), explained(EPILOGUE)
    realigned, widened = explained(REALIGNED), explained(WIDENED)
    assert "bias=True" not in separate
    assert "= add(" in separate
    assert "bias=True" in epilogue
    assert "= sum(" in epilogue
    for folded in (realigned, widened):
        assert "bias=True" not in folded
        assert "= sum(" not in folded
        assert folded.count("[34, 17]") >= 2, "both matrices have a row for the bias"
    (product,) = [line for line in widened.splitlines() if "activation=relu" in line]
    assert "[64, 33] R in %" in product, "the layer below writes into the wider matrix"
    (product,) = [line for line in realigned.splitlines() if "activation=relu" in line]
    assert "[64, 33] R in %" in product, "and at the beginning of the matrix that is realigned"
    assert "insert_column" in realigned


def test_deterministic_mode_never_folds() -> None:
    assert "insert_column" not in explained(REALIGNED, deterministic=True)


def test_the_tuner_decides() -> None:
    """It is asked where the cost model predicts a gain, and its answer is the plan.

    The model is that of a machine that was not measured.
    """
    asked: list[tuple[Any, ...]] = []
    answers: list[str] = []

    def measure(*shape: Any, **options: Any) -> str:
        asked.append((*shape, options["transposed"]))
        return answers[0]

    def plan(rows: int, answer: str = EPILOGUE) -> str:
        answers[:] = [answer]
        with pool(0, "auto"):
            engine = session.engine()
            engine.environment = replace(
                engine.environment, fastest_gradients=measure, machine=Machine()
            )
            x, g = mm.asarray(numbers(rows, 8)), mm.asarray(numbers(rows, 64))
            compiled: Any = mm.compile(lambda x: ((x * 2.0).T @ g, mm.sum(g, axis=0)))
            _, bias = compiled(x)
            np.testing.assert_allclose(np.asarray(bias), np.asarray(g).sum(0), rtol=1e-9)
            return str(compiled.explain())

    assert "= sum(" in plan(4)
    assert not asked, "the model predicts no gain"
    assert "= sum(" in plan(5000)
    assert set(asked) == {(5000, 8, 64, "float64", False)}
    for answer, part in ((WIDENED, "concat("), (REALIGNED, "insert_column(")):
        planned = plan(5000, answer)
        assert part in planned
        assert "= sum(" not in planned


def test_arrays_that_are_visible_outside_keep_their_storage() -> None:
    """x is an argument, a result, or a part of a larger array."""
    w, b, h = numbers(4, 3), numbers(3), numbers(5, 9)
    for form in (REALIGNED, WIDENED):
        with pool(0, form):
            weight, bias, given = map(mm.asarray, (w, b, h))

            @mm.compile
            def layers(h: Any, weight: Any = weight, bias: Any = bias) -> Any:
                part, result = mm.exp(h)[:, 2:6], mm.tanh(h[:, :4])
                return (
                    h[:, 5:] @ weight + bias,
                    part @ weight + bias,
                    result @ weight + bias,
                    result,
                )

            first, second, third, result = map(np.asarray, layers(given))
            np.testing.assert_allclose(first, h[:, 5:] @ w + b, rtol=1e-12)
            np.testing.assert_allclose(second, np.exp(h)[:, 2:6] @ w + b, rtol=1e-12)
            np.testing.assert_allclose(third, np.tanh(h[:, :4]) @ w + b, rtol=1e-12)
            np.testing.assert_allclose(result, np.tanh(h[:, :4]), rtol=1e-12)
            np.testing.assert_array_equal(np.asarray(given), h)


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"fold_bias must be one of .* was given 'wide'"):
        mm.init(fold_bias="wide")


def test_a_matrix_times_itself_is_no_gradient_of_weights() -> None:
    """xᵀ·x with the sum of the rows of x, as for a covariance."""
    values = np.random.default_rng(0).random((300, 5))
    for kind, workers in (("planned", 1), ("shared", 2)):
        with current(kind, workers):
            x = mm.asarray(values)
            product, total = x.T @ x, mm.sum(x, axis=0)
            mm.evaluate(product, total)
            np.testing.assert_allclose(product.numpy(), values.T @ values)
            np.testing.assert_allclose(total.numpy(), values.sum(0))


def _centred(x: Any, g: Any) -> Any:
    return (x - x.sum(0) / len(x)).T @ x


def _normalized(x: Any, g: Any) -> Any:
    return x.T @ (x / x.sum(0))


def _weighted_variance(x: Any, g: Any) -> Any:
    """Two products share a sum, on which the operand of the second depends."""
    total = g.sum(0)
    mean = (g.T @ x) / total[:, None]
    return (g.T @ (x - mean[0]) ** 2) / total[:, None]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", FOLDED)
def test_products_with_what_is_computed_from_the_sum(form: str, workers: int) -> None:
    random = np.random.default_rng(0)
    x, g = random.uniform(1, 2, (200, 7)), random.uniform(1, 2, (200, 3))
    with pool(workers, form):
        for function in (_centred, _normalized, _weighted_variance):
            result = mm.compile(function)(mm.asarray(x), mm.asarray(g))
            np.testing.assert_allclose(np.asarray(result), function(x, g), rtol=1e-9)
