"""Expressions of one structure that are built again and again, as the steps of a loop: gradients,
programs and records that are found again belong to the values of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.engine.engine import REPETITIONS
from magmath.errors import MagmathError

KINDS = ["inline", "planned", "shared"]
EXTENT = 5
STEPS: list[Callable[[Any, Any, float], Any]] = [
    lambda x, y, k: x * y + k,
    lambda x, y, k: x**k - y,
    lambda x, y, k: (x - y) * k,
    lambda x, y, k: x / (y * y + abs(k)),
    lambda x, y, k: x + y[0] * k,
    lambda x, y, k: y[k_index(k)] * x,
    lambda x, y, k: x @ y + x * k,
]


def k_index(k: float) -> int:
    return int(abs(k)) % EXTENT


@settings(deadline=None, max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_repeated_expressions(kind: str, data: st.DataObject) -> None:
    """A function of random steps, differentiated five times for other values and numbers by other
    sources, has PyTorch's values and gradients each time."""
    chosen = data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
    sources = data.draw(st.sampled_from([(0,), (1,), (0, 1), (1, 0)]))
    form = data.draw(st.sampled_from(["arguments", "arrays", "variables", "both"]))
    evaluated = data.draw(st.sampled_from([None, *range(len(chosen))]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def apply(x: Any, y: Any, numbers: Any, stop: Any = None) -> Any:
        for i, (step, number) in enumerate(zip(chosen, numbers, strict=True)):
            x = step(x, y, number)
            if i == stop:
                mm.evaluate(x)
        return (x * x).sum() * numbers[0]

    with current(kind, 2 if kind == "shared" else 1):
        for _ in range(5):
            given_values = [rng.uniform(0.5, 1.5, EXTENT) for _ in range(2)]
            numbers = [float(n) for n in rng.integers(1, 4, len(chosen))]
            x, y = (torch.tensor(v, requires_grad=True) for v in given_values)
            value = apply(x, y, numbers)
            value.backward()
            expected = [(x, y)[i].grad for i in sources]
            expected = [np.zeros(EXTENT) if g is None else g.numpy() for g in expected]
            found, gradients = _by_magmath(
                form, given_values, sources, lambda x, y, n=numbers: apply(x, y, n, evaluated)
            )
            if gradients is None:
                continue
            np.testing.assert_allclose(found, value.item(), rtol=1e-9)
            for one, other in zip(gradients, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def _by_magmath(
    form: str, values: Any, sources: Any, function: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    if form == "arguments":
        value, found = mm.value_and_grad(function, argnums=sources)(*map(mm.asarray, values))
        return float(value), [np.asarray(g) for g in found]
    if form == "variables":
        variables = [mm.variable(f"v{i}", v) for i, v in enumerate(values)]
        chosen = [variables[i] for i in sources]
        value, found = mm.value_and_grad(lambda: function(*variables), chosen)
        return float(value), [np.asarray(found[v]) for v in chosen]
    arrays = [mm.asarray(v) for v in values]
    if form == "both":
        arrays = [mm.variable("v", values[0]), arrays[1] * 1]
    value = function(*arrays)
    try:
        gradients = mm.grad(value, [arrays[i] for i in sources])
    except MagmathError:
        return None, None
    return float(value), [np.asarray(g) for g in gradients]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_results_of_repeated_programs(kind: str) -> None:
    """Records of one structure have the numbers of their own expressions."""
    with current(kind, 2 if kind == "shared" else 1):
        x = mm.asarray(np.linspace(0.5, 1.5, 40))
        results = []
        for k in range(1, 6):
            y = x
            for i in range(20):
                y = y * (1 + k / 100) + mm.sin(y) * (i / 1000)
            other = y * k
            mm.evaluate(y, other)
            results.append((k, y, other))
        for k, y, other in results:
            point = torch.linspace(0.5, 1.5, 40, dtype=torch.float64, requires_grad=True)
            z = point
            for i in range(20):
                z = z * (1 + k / 100) + torch.sin(z) * (i / 1000)
            (expected,) = torch.autograd.grad(z.sum(), point)
            np.testing.assert_allclose(mm.grad(y.sum(), x), expected, rtol=1e-10)
            np.testing.assert_allclose(mm.grad(other.sum(), x), k * expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_loop_changes_to_programs(kind: str) -> None:
    """Steps before and after the change, with a rate that changes each time, equal PyTorch's."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((24, 6)), rng.integers(0, 3, 24)
    with current(kind, 2 if kind == "shared" else 1):
        weights = [rng.standard_normal(s) * 0.5 for s in ((6, 8), (8,), (8, 3), (3,))]
        ours = [mm.variable(f"w{i}", w) for i, w in enumerate(weights)]
        theirs = [torch.tensor(w, requires_grad=True) for w in weights]
        data, targets = mm.asarray(x), mm.asarray(labels)

        def loss() -> mm.Array:
            hidden = mm.tanh(data @ ours[0] + ours[1])
            return mm.nn.cross_entropy(hidden @ ours[2] + ours[3], targets)

        for step in range(REPETITIONS + 20):
            rate = 0.1 / (1 + step % 7)
            value, gradients = mm.value_and_grad(loss, ours)
            for v in ours:
                v -= rate * gradients[v]
            hidden = torch.tanh(torch.from_numpy(x) @ theirs[0] + theirs[1])
            expected = torch.nn.functional.cross_entropy(
                hidden @ theirs[2] + theirs[3], torch.from_numpy(labels)
            )
            found = torch.autograd.grad(expected, theirs)
            with torch.no_grad():
                for w, g in zip(theirs, found, strict=True):
                    w -= rate * g
            np.testing.assert_allclose(float(value), expected.item(), rtol=1e-10)
        for v, w in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(v, w.detach(), rtol=1e-9)


def test_a_value_is_computed_with_its_gradients() -> None:
    with current("planned"):
        w = mm.variable("w", np.ones((70, 70)))
        x = mm.asarray(np.ones((70, 70)))
        for first in ("value", "gradients"):
            value, gradients = mm.value_and_grad(lambda: mm.mean(mm.tanh(x @ w) ** 2), [w])
            results = [value, gradients[w]]
            mm.evaluate(results[first == "gradients"])
            assert all(array.is_known() for array in results)
            value = mm.mean(mm.tanh(x @ w) ** 2)
            (gradient,) = mm.grad(value, [w])
            mm.evaluate((value, gradient)[first == "gradients"])
            assert value.is_known()
            assert gradient.is_known()


def test_released_gradients_are_not_computed() -> None:
    with current("planned"):
        w = mm.variable("w", np.ones((70, 70)))
        value, gradients = mm.value_and_grad(lambda: mm.mean(w @ w), [w])
        del gradients
        with mm.profile() as profile:
            float(value)
        products = [s for run in profile.runs for s in run.steps if s.operation == "contract"]
        assert len(products) <= 1


def test_steps_of_a_loop_have_few_programs() -> None:
    """A repeated expression of small arrays has one program, built once."""
    with current("inline"):
        x = mm.asarray(np.linspace(0, 1, 30))
        w = mm.variable("w", np.ones(30))
        programs = session.engine()._programs
        before = len(programs)
        for k in range(REPETITIONS + 5):
            y = w * x
            for i in range(20):
                y = y * (1 + k / 1000) + x * i
            mm.evaluate(y)
        assert len(programs) == before + 1
        for k in range(5):
            y = w * x
            for i in range(20):
                y = y * (1 + k / 1000) + x * i
            expected = np.linspace(0, 1, 30)
            for i in range(20):
                expected = expected * (1 + k / 1000) + np.linspace(0, 1, 30) * i
            np.testing.assert_allclose(y, expected, rtol=1e-12)
