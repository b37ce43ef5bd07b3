"""Images sampled at positions, patches as columns, and the bilinear layer: equal to PyTorch's."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as T

import magmath as mm
from engines import current
from magmath.errors import OptionError, ShapeError
from magmath.nn import functional as f

KINDS = pytest.mark.parametrize(
    ("kind", "workers"), [("inline", 1), ("shared", 3), ("messages", 2)]
)


def _close(actual: Any, wanted: torch.Tensor, what: str = "") -> None:
    np.testing.assert_allclose(actual, wanted.detach().numpy(), rtol=1e-9, atol=1e-10, err_msg=what)


@pytest.mark.parametrize(
    ("kind", "workers", "space", "mode"),
    [
        *[("inline", 1, space, mode) for space in (2, 3) for mode in ("bilinear", "nearest")],
        ("inline", 1, 2, "bicubic"),
        *[("shared", 3, 2, "bilinear"), ("shared", 3, 3, "nearest")],
        *[("messages", 2, 3, "bilinear"), ("messages", 2, 2, "bicubic")],
    ],
)
def test_sampled_images_and_gradients(kind: str, workers: int, space: int, mode: str) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(2, 3, 5, 4, 6)[: space + 2])
    grid = random.uniform(-1.6, 1.6, size=(*(2, 4, 3, 2)[: space + 1], space))
    with current(kind, workers):
        for padding, corners in itertools.product(("zeros", "border", "reflection"), (False, True)):
            tx, tg = torch.tensor(x, requires_grad=True), torch.tensor(grid, requires_grad=True)
            wanted = T.grid_sample(tx, tg, mode=mode, padding_mode=padding, align_corners=corners)
            (wanted**2).sum().backward()
            vx, vg = mm.variable("x", x), mm.variable("grid", grid)
            actual = f.grid_sample(vx, vg, mode, padding, corners)
            by_x, by_grid = mm.grad(mm.sum(actual**2), [vx, vg])
            what = f"{padding} {corners}"
            _close(actual, wanted, what)
            _close(by_x, tx.grad, what)
            if mode != "nearest":
                _close(by_grid, tg.grad, what)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (1, 2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("corners", [False, True])
def test_grids_of_matrices(size: tuple[int, ...], corners: bool) -> None:
    d = len(size) - 2
    theta = np.random.default_rng(2).normal(size=(size[0], d, d + 1))
    with warnings.catch_warnings():  # of PyTorch, for extents of 1
        warnings.simplefilter("ignore")
        wanted = T.affine_grid(torch.tensor(theta), list(size), align_corners=corners)
    _close(f.affine_grid(theta, size, corners), wanted)


@KINDS
@pytest.mark.parametrize(
    ("kernel", "dilation", "padding", "stride"),
    [((2, 3), 1, 0, 1), (3, 2, 1, 2), (2, 1, (1, 0), (2, 1)), (1, 1, 0, 3)],
    ids=str,
)
def test_patches_and_their_sums(
    kind: str, workers: int, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 7, 8))
    settings = kernel, dilation, padding, stride
    columns = T.unfold(torch.tensor(x), *settings).requires_grad_()
    images = T.fold(columns, (7, 8), *settings)
    (images**2).sum().backward()
    with current(kind, workers):
        _close(f.unfold(x, *settings), columns)
        _close(mm.nn.Unfold(*settings)(x), columns)
        v = mm.variable("columns", columns.detach().numpy())
        result = mm.nn.Fold((7, 8), *settings)(v)
        _close(result, images)
        _close(mm.grad(mm.sum(result**2), v), columns.grad)


@KINDS
def test_bilinear_layers(kind: str, workers: int) -> None:
    random = np.random.default_rng(4)
    x1, x2 = random.normal(size=(6, 2, 3)), random.normal(size=(6, 2, 4))
    counterpart = torch.nn.Bilinear(3, 4, 5).double()
    wanted = counterpart(torch.tensor(x1), torch.tensor(x2))
    (wanted**2).sum().backward()
    with current(kind, workers):
        layer = mm.nn.Bilinear(5)
        layer(x1, x2)
        layer.astype(mm.float64)
        layer.load_state_dict(counterpart.state_dict())
        actual = layer(x1, x2)
        _close(actual, wanted)
        weight, bias = mm.grad(mm.sum(actual**2), layer.parameters())
        _close(weight, counterpart.weight.grad)
        _close(bias, counterpart.bias.grad)


def test_mistakes() -> None:
    images = mm.ones((2, 3, 5, 5))
    with pytest.raises(ShapeError, match=r"grid \(N, H', W', 2\).*was given .* \(2, 4, 4, 3\)"):
        f.grid_sample(images, mm.ones((2, 4, 4, 3)))
    with pytest.raises(
        OptionError, match="mode must be one of bilinear, nearest, bicubic, was given 'cubic'"
    ):
        f.grid_sample(images, mm.ones((2, 4, 4, 2)), mode="cubic")
    with pytest.raises(OptionError, match="bicubic needs two dimensions of space, was given 3"):
        f.grid_sample(mm.ones((2, 3, 4, 4, 4)), mm.ones((2, 4, 4, 4, 3)), mode="bicubic")
    with pytest.raises(ShapeError, match=r"needs matrices of shape \(2, 2, 3\)"):
        f.affine_grid(mm.ones((1, 2, 3)), (2, 3, 4, 4))
    with pytest.raises(ShapeError, match="covers 7 elements"):
        f.unfold(images, 3, dilation=3)
    with pytest.raises(ShapeError, match=r"needs columns \(N, channels · 4, 16\)"):
        f.fold(mm.ones((2, 12, 15)), 5, 2)
    with pytest.raises(ShapeError, match=r"takes \(…, 3\) and \(…, 4\)"):
        f.bilinear(mm.ones((2, 4)), mm.ones((2, 4)), mm.ones((5, 3, 4)))
