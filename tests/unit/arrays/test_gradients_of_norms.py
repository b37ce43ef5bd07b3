"""Gradients of norms and deviations, also where they are 0, and of logsumexp: PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current

NORM, VECTOR = torch.linalg.norm, torch.linalg.vector_norm
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "norm": (mm.linalg.norm, NORM),
    "rows": (lambda x: mm.sum(mm.linalg.norm(x, axis=1)), lambda t: NORM(t, dim=1).sum()),
    "matrix": (mm.linalg.matrix_norm, torch.linalg.matrix_norm),
    "cubes": (
        lambda x: mm.sum(mm.linalg.vector_norm(x, axis=1, ord=3)),
        lambda t: VECTOR(t, dim=1, ord=3).sum(),
    ),
    "harmonic": (
        lambda x: mm.sum(mm.linalg.vector_norm(x + 1, axis=1, ord=-1)),
        lambda t: VECTOR(t + 1, dim=1, ord=-1).sum(),
    ),
    "roots": (
        lambda x: mm.sum(mm.linalg.vector_norm(x, axis=1, ord=0.5)),
        lambda t: VECTOR(t, dim=1, ord=0.5).sum(),
    ),
    "harmonic with zeros": (
        lambda x: mm.sum(mm.linalg.vector_norm(x, axis=1, ord=-1)),
        lambda t: VECTOR(t, dim=1, ord=-1).sum(),
    ),
    "distances": (
        lambda x: mm.sum(mm.cdist(x, x[1:] * 2 + 1, p=0.5)),
        lambda t: torch.cdist(t, t[1:] * 2 + 1, p=0.5).sum(),
    ),
    "std": (
        lambda x: mm.sum(mm.std(x, axis=1)),
        lambda t: torch.std(t, dim=1, unbiased=False).sum(),
    ),
}


@pytest.mark.parametrize("kind", [("inline", 1), ("shared", 2)], ids=lambda kind: kind[0])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_zero_rows(name: str, factor: float, kind: tuple[str, int]) -> None:
    ours, theirs = CASES[name]
    data = factor * np.array([[0.0, 0, 0], [1, -2, 3], [0, 0, 0], [2, 2, 2]])
    known = torch.tensor(data, requires_grad=True)
    value = theirs(known)
    value.backward()
    with current(*kind):
        actual, slope = mm.value_and_grad(ours)(mm.asarray(data))
        np.testing.assert_allclose(float(actual), value.item(), rtol=1e-12)
        np.testing.assert_allclose(slope.numpy(), known.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("other", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("factor", [1.0, 1 + 2j])
def test_deviations_of_some_elements(name: str, factor: complex, other: float) -> None:
    """Gradients are those of the deviation of these elements alone, whatever the others are."""
    values = np.array([[1.0, 2.0, 6.0, 3.0], [0.5, 0.0, 1.0, 4.0]])
    mask = np.array([[True, True, False, True], [False, True, True, True]])
    alone = getattr(mm, name.removeprefix("nan"))
    given = np.where(mask, values, other)
    if name.startswith("nan"):
        mask = ~np.isnan(given)
    options = {} if name.startswith("nan") else {"where": mm.asarray(mask)}
    if not (np.isnan(other) or options):
        return

    def total(x: mm.Array) -> mm.Array:
        return mm.sum(getattr(mm, name)(x * factor, axis=1, **options))

    found = mm.grad(total)(mm.asarray(given)).numpy()
    for row, chosen, slope in zip(values, mask, found, strict=True):
        known = mm.grad(lambda x: alone(x * factor))(mm.asarray(row[chosen]))
        np.testing.assert_allclose(slope[chosen], known.numpy(), rtol=1e-12)
        assert not slope[~chosen].any()


def test_a_penalty_on_gradients_of_a_norm() -> None:
    x = mm.asarray([[3.0, 4.0], [0.0, 0.0]])
    lengths = mm.grad(lambda x: mm.sum(mm.linalg.norm(x, axis=1)))
    second = mm.grad(lambda x: mm.sum(lengths(x) * mm.asarray([[1.0, 2.0], [1.0, 2.0]])))(x)
    expected = (np.eye(2) - np.outer([0.6, 0.8], [0.6, 0.8])) @ [1, 2] / 5
    np.testing.assert_allclose(second.numpy()[0], expected, rtol=1e-6)


def test_infinite_and_missing_values() -> None:
    for values, order in [([np.inf, np.inf], -2), ([0.0, 0.0, 1.0], -2), ([np.nan, 0.0], 3)]:
        with np.errstate(divide="ignore"):
            expected = np.linalg.norm(values, ord=order)
        actual = float(mm.linalg.vector_norm(mm.asarray(values), ord=order))
        np.testing.assert_equal(actual, expected)


def test_logsumexp() -> None:
    inf = np.inf
    data = np.array(
        [[1000.0, 1001.0, -3.0], [-inf, 0.5, -inf], [-inf, -inf, -inf], [inf, 1.0, 2.0]]
    )
    for axis in (None, 0, 1, (0, 1)):
        for keepdims in (False, True):
            axes = (0, 1) if axis is None else axis
            known = torch.logsumexp(torch.tensor(data), axes, keepdims)
            actual = mm.logsumexp(mm.asarray(data), axis=axis, keepdims=keepdims)
            np.testing.assert_allclose(actual.numpy(), known.numpy(), rtol=1e-12)
    slope = mm.grad(lambda x: mm.sum(mm.logsumexp(x, axis=1)))(mm.asarray(data[:2]))
    np.testing.assert_allclose(slope.numpy(), mm.softmax(mm.asarray(data[:2]), 1).numpy())
