"""Normalization by the root of the mean square, against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import ShapeError

X = np.random.default_rng(1).normal(size=(5, 4, 6))


@pytest.mark.parametrize("pool", [("inline", 1), ("shared", 2), ("messages", 3)])
@pytest.mark.parametrize("shape", [None, 6, (4, 6)])
@pytest.mark.parametrize("options", [{}, {"epsilon": 0.1}, {"affine": False}])
@pytest.mark.parametrize("split", [None, 0, 1, 2])
def test_outputs_and_gradients(
    pool: tuple[str, int], shape: Any, options: dict[str, Any], split: int | None
) -> None:
    theirs = torch.nn.RMSNorm(
        shape or 6, eps=options.get("epsilon"), elementwise_affine="affine" not in options
    ).double()
    with current(*pool):
        ours = mm.nn.RMSNorm(shape, **options).build(X.shape).astype("float64")
        if "affine" not in options:
            weight = np.linspace(0.5, 2, theirs.weight.numel()).reshape(theirs.weight.shape)
            ours.weight.assign(weight)
            theirs.weight.data = torch.from_numpy(weight)
        x = mm.asarray(X, layout=None if split is None else mm.Layout.split(split))
        t = torch.from_numpy(X).requires_grad_()
        y, known = ours(x), theirs(t)
        np.testing.assert_allclose(y.numpy(), known.detach().numpy(), rtol=1e-12)
        sources = [x, *ours.parameters()]
        slopes = mm.grad(mm.sum(mm.sin(y)), sources)
        expected = torch.autograd.grad(known.sin().sum(), [t, *theirs.parameters()])
        for actual, other in zip(slopes, expected, strict=True):
            np.testing.assert_allclose(actual.numpy(), other.numpy(), rtol=1e-9, atol=1e-12)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"rms_norm: normalizes last axes of shape \(3,\), was"):
        mm.nn.functional.rms_norm(mm.ones((2, 4)), 3)


def test_half_types_are_normalized_in_float32() -> None:
    x = mm.full((2, 64), 300.0, dtype="float16")  # its square is no number of the type
    np.testing.assert_array_equal(mm.nn.functional.rms_norm(x, 64).numpy(), np.ones((2, 64)))
