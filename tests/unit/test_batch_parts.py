"""Convolutions and pooling in parts of the batch: the numbers of the whole batch, and less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magmath as mm
from magmath.kernels.conv import batch_parts
from magmath.kernels.conv.convolution_candidates import ROWS
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_input import padded_input
from magmath.kernels.epilogue import NO_EPILOGUE, Epilogue

CANDIDATES = {row.candidate.name: row.candidate for row in ROWS}
IMAGES, IN, OUT = 7, 3, 5


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few images, whatever the filters take."""
    monkeypatch.setattr(batch_parts, "PART_BYTES", 3000)


def test_parts_cover_the_batch_once() -> None:
    for count in (0, 1, 5, 100):
        for nbytes in (0, 1, batch_parts.PART_BYTES, 7 * batch_parts.PART_BYTES + 1):
            result = [
                i for part in batch_parts.batch_parts(count, nbytes) for i in range(count)[part]
            ]
            assert result == list(range(count))
    assert len(batch_parts.batch_parts(100, 10 * batch_parts.PART_BYTES)) == 10
    assert len(batch_parts.batch_parts(100, 10 << 40, 10 << 40)) == 1


def problem_of(
    direction: str, extent: int, kernel: int, stride: int, padding: int, epilogue: Epilogue
) -> ConvolutionProblem:
    """A problem with random operands of float64; `epilogue` is that of the pass forward."""
    torch.manual_seed(0)
    x, w = torch.randn(IMAGES, IN, extent, extent), torch.randn(OUT, IN, kernel, kernel)
    y = torch.randn_like(F.conv2d(x, w, stride=stride, padding=padding))
    wide = [tensor.double() for tensor in (x, w, y)]
    pairs = (-padding,) * 2, (stride,) * 2, (1, 1), 1
    return ConvolutionProblem(direction, *wide, *pairs, epilogue)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", ["torch", "channels-last"])
@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "padding"),
    [(9, 3, 1, 1), (8, 3, 2, 1), (8, 1, 2, 0), (7, 3, 2, 0), (10, 5, 3, 2)],
)
def test_convolutions(name: str, extent: int, kernel: int, stride: int, padding: int) -> None:
    bias = torch.randn(1, OUT, 1, 1).double()
    for direction in ("forward", "data", "filter"):
        shape = extent, kernel, stride, padding
        problem = problem_of(direction, *shape, NO_EPILOGUE)
        if direction == "forward":
            epilogue = Epilogue(bias, torch.randn_like(problem.y), "relu")
            problem = problem_of(direction, *shape, epilogue)
        x, w = (tensor.clone().requires_grad_() for tensor in (problem.x, problem.w))
        y = F.conv2d(x, w, stride=stride, padding=padding)
        expected: Any = torch.autograd.grad(y, (x, w), problem.y.clone(), retain_graph=True)
        truth = {"data": expected[0], "filter": expected[1]}.get(direction)
        if truth is None:
            assert problem.epilogue.residual is not None
            truth = torch.relu(y.detach() + bias + problem.epilogue.residual)
        CANDIDATES[name].bind(problem, None)()
        torch.testing.assert_close(problem.out, truth, rtol=1e-10, atol=1e-10)


def test_strides_need_no_copy_of_the_images() -> None:
    """torch's padding on both sides serves windows that end before the last zeros."""
    for shape in ((8, 3, 2, 1), (8, 1, 2, 0), (32, 7, 2, 3)):
        problem = problem_of("forward", *shape, NO_EPILOGUE)
        assert padded_input(problem).tensor is problem.x


@pytest.mark.usefixtures("small_parts")
def test_the_gradient_of_max_pooling() -> None:
    images = np.random.default_rng(0).normal(size=(IMAGES, IN, 9, 9))
    x = torch.from_numpy(images).requires_grad_()
    F.max_pool2d(x, 3, 2, 1).square().sum().backward()
    result = mm.grad(lambda x: mm.sum(mm.nn.functional.max_pool(x, 3, stride=2, padding=1) ** 2))
    assert x.grad is not None
    np.testing.assert_allclose(result(mm.asarray(images)).numpy(), x.grad.numpy())
