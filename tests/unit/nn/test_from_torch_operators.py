"""Operators of PyTorch on magmath: values, types and gradients equal PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import magmath as mm
from magmath.interop import from_torch


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


LABELS = torch.tensor([2, -100, 0])
PLACES = torch.tensor([[0, 0, 3, 1], [2, 2, 2, 2], [1, 0, 3, 1]])
X = numbers(3, 4)
SQUARE = numbers(2, 4, 4)
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(4)
SPECIAL = torch.tensor([[1.0, torch.nan, torch.inf, -torch.inf, -0.0, 2.0]])
CASES: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "elements of one index": (lambda x: x.index_fill(1, torch.tensor([1]), 9.0), X),
    "cells": (nn.LSTMCell(4, 3).double(), X),
    "gated cells": (nn.GRUCell(4, 3).double(), X),
    "labels": (
        lambda x: (
            F.nll_loss(x, LABELS),
            F.nll_loss(x, LABELS, torch.arange(1.0, 5.0).double(), reduction="sum"),
            F.nll_loss(x, LABELS, torch.arange(1.0, 5.0).double()),
            F.nll_loss(x[0], torch.tensor(2), reduction="none"),
            F.nll_loss(x[:, :, None], LABELS[:, None], reduction="none", ignore_index=-100),
        ),
        X,
    ),
    "entropies": (
        lambda x: (
            F.kl_div(x, torch.softmax(x, 1).detach(), reduction="batchmean"),
            torch.xlogy(x, x.exp()),
        ),
        X,
    ),
    "products with logarithms": (lambda x: torch.xlogy(F.relu(x), F.relu(-x)), X),
    "special numbers": (
        lambda x: (
            torch.nan_to_num(x),
            torch.isposinf(x),
            torch.isneginf(x),
            torch.signbit(x),
            torch.fmax(x, -x),
            torch.fmin(x, x * 0 + 1),
            torch.nansum(x),
            *torch.cummax(x, 1),
            *torch.cummin(x, 1),
        ),
        SPECIAL,
    ),
    "windows": (lambda x: (x.unfold(1, 2, 1), x.unfold(0, 2, 2), x.unfold(-1, 3, 5)), X),
    "moments": (lambda x: (*torch.std_mean(x, 1), *torch.var_mean(x, (0, 1))), X),
    "functions of two operands": (
        lambda x: (
            torch.hypot(x, x + 1),
            torch.copysign(x, -x),
            torch.copysign(x, -2.0),
            torch.fmax(x, x * x),
            torch.fmin(x, x * x),
        ),
        X,
    ),
    "special functions": (
        lambda x: (torch.lgamma(x.abs()), torch.digamma(x.abs() + 1), torch.i0(x)),
        X,
    ),
    "shifts": (lambda x: (x << 2, x >> 1, torch.bitwise_left_shift(x, x % 3)), PLACES),
    "a matrix and a vector": (lambda x: torch.addmv(x[:, 0], x, x[0], beta=2, alpha=3), X),
    "scans": (
        lambda x: (
            *torch.cummax(x, 1),
            *torch.cummin(x, 0),
            torch.logcumsumexp(x, 1),
            torch.logcumsumexp(300 * x, 0),
        ),
        X,
    ),
    "equal elements of scans": (
        lambda x: (*torch.cummax(x.sign(), 1), *torch.cummin(x.sign(), 1)),
        X,
    ),
    "places": (
        lambda x: (
            torch.searchsorted(torch.arange(-2.0, 2).double(), x),
            torch.searchsorted(x.sort(1)[0], x, right=True),
            torch.bucketize(x, torch.arange(-2.0, 2).double(), out_int32=True),
            torch.bucketize(x.round(), torch.arange(-2.0, 2).double(), right=True),
        ),
        X,
    ),
    "distances": (
        lambda x: (
            torch.cdist(x, x[:2]),
            torch.cdist(x, x[:2] + 1, 1),
            F.triplet_margin_loss(x, 2 * x, -x),
            F.pairwise_distance(x, x + 1, 3, keepdim=True),
        ),
        X,
    ),
    "ranks": (
        lambda x: (
            torch.quantile(x, 0.3, 1),
            torch.quantile(x, 0.9),
            *torch.kthvalue(x, 2, 1),
            *torch.kthvalue(x, 3, 0, True),
        ),
        X,
    ),
    "broadcasting": (lambda x: torch.broadcast_tensors(x, x[:1], x[0, 0]), X),
    "joined elements": (
        lambda x: tuple(
            torch.scatter_reduce(x, axis, PLACES % 3, x * 2 - 1, kind, include_self=include)
            for kind in ("sum", "prod", "mean", "amax", "amin")
            for include in (True, False)
            for axis in (0, 1)
        ),
        X,
    ),
    "joined integers": (
        lambda x: tuple(
            torch.scatter_reduce(x, 1, PLACES, 3 * x - 5, kind, include_self=include)
            for kind in ("sum", "mean", "amax", "amin")
            for include in (True, False)
        ),
        PLACES,
    ),
    "systems": (
        lambda x: (
            torch.linalg.inv(x),
            torch.linalg.solve(x, x[:, 0]),
            torch.linalg.solve(x, x @ x),
            torch.linalg.solve(x, x[:1, :2] + 1, left=False),
            torch.linalg.det(x),
            *torch.linalg.slogdet(x),
        ),
        SQUARE,
    ),
    "triangles": (
        lambda x: (torch.linalg.cholesky(x), torch.linalg.cholesky(x, upper=True), torch.logdet(x)),
        POSITIVE,
    ),
    "spectra": (
        lambda x: (
            torch.linalg.eigvalsh(x),
            torch.linalg.eigh(x, UPLO="U")[0],
            torch.linalg.eigh(x)[1].abs(),
            torch.linalg.svdvals(x),
            torch.linalg.svd(x, full_matrices=False)[1],
            torch.linalg.svd(x)[0].abs(),
            torch.linalg.qr(x)[1].abs(),
            torch.linalg.cross(x[:, :3], x[:, 1:], dim=1),
        ),
        POSITIVE,
    ),
    "Fourier transforms": (
        lambda x: (
            torch.fft.fft(x, dim=0).abs(),
            torch.fft.rfft(x, 6, norm="ortho").real,
            torch.fft.irfft(torch.fft.rfft(x)),
            torch.fft.ifft2(torch.fft.fft2(x) * 2).real,
            torch.fft.fftn(x, dim=(0, 1)).imag,
            torch.view_as_real(torch.fft.rfftn(x)),
        ),
        X,
    ),
    "diagonals and fills": (
        lambda x: (torch.diag(x[0]), torch.diag(x, 1), torch.trace(x), x.clone().fill_(2.0) * x),
        X,
    ),
}


def sines(outputs: Any, sine: Callable[[Any], Any], total: Callable[[Any], Any]) -> Any:
    """Return the sum of the sines of all floating point outputs."""
    leaves = [x for x in pytree.tree_leaves(outputs) if "float" in str(x.dtype)]
    return sum([total(sine(x)) for x in leaves])


@pytest.mark.parametrize("name", CASES)
def test_values_types_and_gradients_are_those_of_pytorch(name: str) -> None:
    mm.init(workers=0, device="cpu")
    function, x = CASES[name]
    module = function if isinstance(function, nn.Module) else Function(function)
    converted = from_torch(module, x, variable_axes=0)
    operand = x.clone().requires_grad_() if x.is_floating_point() else x
    results, expected = pytree.tree_leaves(converted(x)), pytree.tree_leaves(module(operand))
    assert len(results) == len(expected)
    for i, (own, other) in enumerate(zip(results, expected, strict=True)):
        assert str(other.dtype) == f"torch.{own.dtype.name}", f"result {i}"
        np.testing.assert_allclose(
            own.numpy(), other.detach().numpy(), rtol=1e-8, atol=1e-9, err_msg=f"result {i}"
        )
    if any(other.requires_grad for other in expected) and x is not SPECIAL:
        gradient = mm.grad(lambda x: sines(converted(x), mm.sin, mm.sum))(mm.asarray(x))
        (known,) = torch.autograd.grad(sines(expected, torch.sin, torch.sum), operand)
        np.testing.assert_allclose(gradient.numpy(), known.numpy(), rtol=1e-6, atol=1e-8)
