"""Local convolutions: every algorithm against float64 with its error bound, and their choice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes.util import find_library
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv import depthwise, direct, fourier_convolution, winograd
from magmath.kernels.conv.convolution import bind_convolution, candidates_for
from magmath.kernels.conv.convolution_candidates import ROWS
from magmath.kernels.conv.convolution_problem import PASSES, ConvolutionProblem, key
from magmath.kernels.conv.frozen_filters import FrozenFilters
from magmath.kernels.conv.winograd import ERROR_BOUND, Method
from magmath.kernels.conv.winograd_transforms import ALGORITHMS, TAPS, WinogradAlgorithm
from magmath.kernels.dispatch.candidate import is_always_ready, matching
from magmath.kernels.dispatch.measurements import ROUNDS
from magmath.kernels.dispatch.online import OnlineCall, OnlineCandidate
from magmath.kernels.dispatch.tuner import Tuner
from magmath.kernels.gemm.gemm import bind_gemm

CANDIDATES = {row.candidate.name: row.candidate for row in ROWS}
OFF = Tuner(enabled=False)
# images, channels, outputs, rows, columns, padding: 1×1 images, odd sizes, channels that fill no
# vector, tiles that the image fills only in part
SHAPES = [
    (2, 1, 1, 1, 1, 1),
    (1, 3, 5, 2, 7, 1),
    (3, 20, 37, 13, 9, 1),
    (2, 64, 48, 14, 14, 1),
    (1, 65, 130, 7, 31, 0),
    (2, 24, 17, 6, 80, 2),
]


class Exact:
    """Exact arithmetic, in which the transforms are identities."""

    def plus(self, x: Fraction, y: Fraction) -> Fraction:
        return x + y

    def minus(self, x: Fraction, y: Fraction) -> Fraction:
        return x - y

    def scaled(self, factor: float, x: Fraction) -> Fraction:
        return Fraction(factor).limit_denominator(60) * x

    def multiply_add(self, factor: float, x: Fraction, y: Fraction) -> Fraction:
        return self.scaled(factor, x) + y


def _integers(seed: int, count: int) -> list[Fraction]:
    return [Fraction(int(x)) for x in np.random.default_rng(seed).integers(-9, 10, count)]


FORWARD = sorted(set(ALGORITHMS) - {"3_transposed", "4_transposed"})


def _positions(algorithm: WinogradAlgorithm, values: list[Fraction]) -> list[Fraction]:
    """Return the element of each position of the filter, of which some have the same."""
    return [values[i % len(values)] for i in range(algorithm.positions)]


def _stride(algorithm: WinogradAlgorithm) -> int:
    return algorithm.step // algorithm.tile


@pytest.mark.parametrize("name", FORWARD)
def test_the_transforms_give_the_correlation_exactly(name: str) -> None:
    algorithm, exact = ALGORITHMS[name], Exact()
    forms, tile, stride = algorithm.forms, algorithm.tile, _stride(algorithm)
    d, g = _integers(1, algorithm.covered), _integers(2, algorithm.taps)
    sums = [Fraction(0)] * algorithm.products
    pairs = zip(forms.inputs(exact, d), forms.filters(exact, g), strict=True)
    for i, (a, b) in enumerate(pairs):
        sums[i % algorithm.products] += a * b
    expected = [sum(d[stride * o + j] * g[j] for j in range(algorithm.taps)) for o in range(tile)]
    assert forms.outputs(exact, sums) == expected


@pytest.mark.parametrize("name", FORWARD)
def test_the_transforms_give_the_gradient_of_the_filter_exactly(name: str) -> None:
    algorithm, exact = ALGORITHMS[name], Exact()
    forms, tile, stride = algorithm.forms, algorithm.tile, _stride(algorithm)
    assert forms.cotangents is not None
    assert forms.weights is not None
    d, y = _integers(3, algorithm.covered), _integers(4, tile)
    cotangents = _positions(algorithm, forms.cotangents(exact, y))
    products = [a * b for a, b in zip(forms.inputs(exact, d), cotangents, strict=True)]
    expected = [sum(d[stride * o + j] * y[o] for o in range(tile)) for j in range(algorithm.taps)]
    assert forms.weights(exact, products) == expected


@pytest.mark.parametrize("name", ["3_transposed", "4_transposed"])
def test_the_transforms_give_the_gradient_of_the_inputs_exactly(name: str) -> None:
    algorithm, exact = ALGORITHMS[name], Exact()
    forms, tile = algorithm.forms, algorithm.tile
    y, g = _integers(5, algorithm.covered), _integers(6, TAPS)
    inputs = _positions(algorithm, forms.inputs(exact, y))
    filters = forms.filters(exact, g[::-1])
    products = [a * b for a, b in zip(inputs, filters, strict=True)]
    whole = [Fraction(0)] * (2 * len(y) + 1)
    for o, value in enumerate(y):
        for j in range(TAPS):
            whole[2 * o + j] += value * g[j]
    assert forms.outputs(exact, products) == whole[1 : 1 + tile]


def _problem(
    direction: str, shape: Sequence[int], *, groups: int = 1, last: bool = False, kernel: int = 3,
    stride: int = 1, dilation: int = 1, dtype: torch.dtype = torch.float32,
) -> ConvolutionProblem:  # fmt: skip
    """Return a problem on random numbers, whose result is NaN."""
    images, channels, outputs, rows, columns, pad = shape
    generator = torch.Generator().manual_seed(len(direction))
    reach = dilation * (kernel - 1)
    pad = max(pad, (reach + 2 - min(rows, columns)) // 2)  # the filter fits into the padded image
    space = [(n + 2 * pad - reach - 1) // stride + 1 for n in (rows, columns)]

    def random(*extents: int) -> torch.Tensor:
        numbers = torch.randn(*extents, generator=generator, dtype=dtype)
        return numbers.to(memory_format=torch.channels_last) if last else numbers

    x = random(images, channels * groups, rows, columns)
    w = random(outputs * groups, channels, kernel, kernel) / (channels * kernel**2) ** 0.5
    y = random(images, outputs * groups, *space)
    pair = (stride,) * 2, (dilation,) * 2
    problem = ConvolutionProblem(direction, x, w, y, (-pad, -pad), *pair, groups)
    problem.out.fill_(torch.nan)
    return problem


def _expected(problem: ConvolutionProblem) -> torch.Tensor:
    """Return the result in float64, by torch."""
    x, w, y = (tensor.double() for tensor in (problem.x, problem.w, problem.y))
    pad = [-start for start in problem.offset]
    mask = [problem.direction == "data", problem.direction == "filter", False]
    if problem.direction == "forward":
        return torch.nn.functional.conv2d(
            x, w, None, problem.stride, pad, problem.dilation, problem.groups
        )
    gradients = torch.ops.aten.convolution_backward(
        y, x.zero_() if mask[0] else x, w, None, problem.stride, pad, problem.dilation, False,
        [0, 0], problem.groups, mask,
    )  # fmt: skip
    return gradients[0 if mask[0] else 1]


def _error(problem: ConvolutionProblem, expected: torch.Tensor) -> float:
    """Return the maximum error relative to the root mean square of the result."""
    if not expected.numel():
        return 0.0
    size = expected.square().mean().sqrt().clamp_min(1e-30)
    return float((problem.out.double() - expected).abs().max() / size)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("method", ERROR_BOUND, ids=[method.name for method in ERROR_BOUND])
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_winograd_stays_within_its_error_bound(direction: str, method: Method, last: bool) -> None:
    for shape in SHAPES:
        problem = _problem(direction, shape, last=last, stride=method.stride, kernel=method.taps)
        expected = _expected(problem)
        winograd.bind(problem, method)()
        assert _error(problem, expected) <= ERROR_BOUND[method], shape


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use this number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _among_other_channels(problem: ConvolutionProblem) -> ConvolutionProblem:
    """Return the problem with images that are every other channel, and some columns, of others."""
    images, channels, rows, columns = problem.x.shape
    wide = problem.x.new_full((images, 2 * channels, rows, columns + 6), torch.nan)
    part = wide[:, ::2, :, 3 : columns + 3]
    return replace(problem, x=part.copy_(problem.x))


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("method", ERROR_BOUND, ids=[method.name for method in ERROR_BOUND])
def test_winograd_of_groups_strided_views_and_one_thread(direction: str, method: Method) -> None:
    problem = _problem(
        direction, (2, 18, 16, 11, 10, 1), groups=3, stride=method.stride, kernel=method.taps
    )
    expected = _expected(problem)
    problem = _among_other_channels(problem)
    call = winograd.bind(problem, method)
    with _threads(1):
        call()
    assert _error(problem, expected) <= ERROR_BOUND[method]


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [
    (1, 1, 1), (1, 3, 1), (3, 1, 1), (3, 2, 1), (2, 3, 2), (5, 1, 2), (5, 2, 1), (7, 2, 1), (11, 4, 1),
])  # fmt: skip
def test_direct_stays_within_its_error_bound(
    direction: str, last: bool, kernel: int, stride: int, dilation: int
) -> None:
    """On one thread and on several, which divide outputs or images of small problems."""
    for shape in [*SHAPES, (1, 3, 40, 33, 37, 2), (2, 700, 20, 3, 4, 0), (9, 16, 200, 4, 4, 1)]:
        problem = _problem(
            direction, shape, last=last, kernel=kernel, stride=stride, dilation=dilation
        )
        if not direct.can_bind(problem):
            assert shape[1 if direction == "data" else 2] < direct.MIN_OUTPUTS
            continue
        expected = _expected(problem)
        for threads in (1, 3):
            problem.out.fill_(torch.nan)
            with _threads(threads):
                direct.bind(problem)()
            assert _error(problem, expected) <= direct.ERROR_BOUND, (shape, threads)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("channels", [2, 18])
def test_direct_of_groups_strided_views_and_filters(direction: str, channels: int) -> None:
    if direction == "data" and channels < direct.MIN_OUTPUTS:
        channels = direct.MIN_OUTPUTS
    for shape in ((2, channels, 16, 11, 10, 1), (1, channels, 9, 1, 1, 1)):
        problem = _problem(direction, shape, groups=3, stride=2, last=True)
        expected = _expected(problem)
        direct.bind(_among_other_channels(problem) if direction != "data" else problem)()
        assert _error(problem, expected) <= direct.ERROR_BOUND


LARGE_FILTERS = [
    # shape, filter: an image of one pixel; filters larger than the image; odd sizes
    ((2, 3, 5, 1, 1, 3), 7),
    ((1, 5, 3, 4, 6, 8), 11),
    ((3, 20, 37, 13, 9, 1), 5),
    ((2, 17, 9, 20, 31, 0), 15),
    ((7, 9, 12, 18, 16, 3), 7),
    ((1, 4, 6, 40, 33, 15), 31),
]


SMALL_PARTS, ONE_PART = 1, 32 << 20  # bytes: for each image, and of the whole batch
NEW_FILTERS, FROZEN_FILTERS = None, torch.tensor(7)
WAYS = {  # by groups; every part and every kind of filters with several groups too
    1: [
        (SMALL_PARTS, NEW_FILTERS),
        (SMALL_PARTS, FROZEN_FILTERS),
        (ONE_PART, NEW_FILTERS),
        (ONE_PART, FROZEN_FILTERS),
    ],
    3: [(SMALL_PARTS, NEW_FILTERS), (ONE_PART, FROZEN_FILTERS)],
}


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", fourier_convolution.ERROR_BOUND, ids=str)
@pytest.mark.parametrize("groups", WAYS)
def test_fourier_transforms_stay_within_their_error_bound(
    direction: str, last: bool, dtype: torch.dtype, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one part of the batch, and in one part for each image; with new and with frozen filters."""
    for shape, kernel in LARGE_FILTERS:
        problem = _problem(direction, shape, last=last, kernel=kernel, groups=groups, dtype=dtype)
        expected = _expected(problem)
        for part_bytes, content_id in WAYS[groups]:
            monkeypatch.setattr(fourier_convolution, "PART_BYTES", part_bytes)
            problem.out.fill_(torch.nan)
            fourier_convolution.bind(replace(problem, content_id=content_id), None)()
            assert _error(problem, expected) <= fourier_convolution.ERROR_BOUND[dtype], (
                shape,
                part_bytes,
            )


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("offset", [-60, -6, -3, 0, 4, 29, 31])
def test_fourier_transforms_of_vectors_and_tiles(direction: str, offset: int) -> None:
    """The elements of y need any elements of x, all, some or only one inside of it."""
    x, w = torch.randn(2, 5, 32, dtype=torch.float64), torch.randn(6, 5, 50, dtype=torch.float64)
    y = torch.randn(2, 6, 12, dtype=torch.float64)
    around = torch.nn.functional.pad(x, (60, 60))[:, :, 60 + offset :][:, :, : 12 + 49]
    around = around.clone().requires_grad_()
    filters = w.clone().requires_grad_()
    result = torch.nn.functional.conv1d(around, filters)
    result.backward(y)
    problem = ConvolutionProblem(direction, x, w, y, (offset,), (1,), (1,), 1)
    expected = {"forward": result.detach(), "filter": filters.grad}
    if direction == "data":
        assert around.grad is not None
        whole = torch.zeros(2, 5, 200, dtype=torch.float64)
        whole[:, :, 60 + offset :][:, :, : 12 + 49] = around.grad
        expected["data"] = whole[:, :, 60:92]
    problem.out.fill_(torch.nan)
    fourier_convolution.bind(problem, None)()
    exact = expected[direction]
    assert exact is not None
    assert _error(problem, exact) < 1e-13


def test_fourier_transforms_are_offered_for_large_filters_and_many_channels() -> None:
    def takes(shape: Sequence[int], kernel: int = 11, **more: Any) -> bool:
        return fourier_convolution.can_bind(_problem("forward", shape, kernel=kernel, **more))

    assert takes((2, 32, 32, 32, 32, 5))
    assert takes((2, 32, 32, 32, 32, 5), dtype=torch.float64)
    assert not takes((2, 32, 32, 32, 32, 1), 3)
    assert not takes((2, 32, 32, 32, 32, 2), 5)
    assert not takes((2, 3, 3, 32, 32, 3), 7)
    assert not takes((0, 32, 32, 32, 32, 5))
    assert not takes((2, 32, 32, 32, 32, 5), stride=2)
    assert not takes((2, 32, 32, 32, 32, 5), dilation=2)
    names = [
        [
            candidate.name
            for candidate in candidates_for(
                _problem("forward", (2, 32, 32, 32, 32, 5), kernel=11), limit, winograd=winograd
            )
        ]
        for limit, winograd in ((1 << 28, True), (1 << 28, False), (1 << 20, True))
    ]
    assert ["fourier" in some for some in names] == [True, False, False]


@pytest.mark.parametrize("method", ERROR_BOUND, ids=[method.name for method in ERROR_BOUND])
def test_winograd_accepts_no_empty_batch_other_stride_or_small_channels(method: Method) -> None:
    def takes(shape: Sequence[int], stride: int = method.stride, **more: Any) -> bool:
        problem = _problem("forward", shape, stride=stride, kernel=method.taps, **more)
        return winograd.can_bind(problem, method)

    assert takes((2, 16, 16, 32, 32, 1))
    for shape in ((0, 16, 16, 32, 32, 1), (2, 15, 16, 32, 32, 1), (1, 16, 16, 4, 4, 1)):
        assert not takes(shape)
    assert not takes((2, 16, 16, 32, 32, 1), stride=3 - method.stride)
    assert not takes((2, 16, 16, 32, 32, 1), dilation=2)


problems = st.builds(
    _problem,
    st.sampled_from(PASSES),
    st.tuples(
        st.integers(0, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 12),
        st.integers(1, 12), st.integers(0, 3),
    ),
    groups=st.integers(1, 2),
    last=st.booleans(),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
)  # fmt: skip


@given(
    st.integers(1, 90), st.integers(1, 60), st.integers(-70, 70), st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_dot_products_of_vectors(
    terms: int, outputs: int, start: int, strided: bool, dtype: torch.dtype
) -> None:
    """Any part of the correlation of a vector, which zeros surround, by the default candidate."""
    x = (
        torch.randn(1, 1, 160, dtype=dtype)[:, :, ::2]
        if strided
        else torch.randn(1, 1, 80, dtype=dtype)
    )
    w, y = (
        torch.randn(1, 1, terms, dtype=dtype),
        torch.full((1, 1, outputs), torch.nan, dtype=dtype),
    )
    problem = ConvolutionProblem("forward", x, w, y, (start,), (1,), (1,), 1)
    default, *_ = candidates_for(problem, 1 << 28)
    assert default.name == "dot products"
    default.bind(problem, _product)()
    around = np.pad(x[0, 0].double().numpy(), 200)
    expected = np.correlate(around[200 + start :][: outputs + terms - 1], w[0, 0].double().numpy())
    np.testing.assert_allclose(y[0, 0], expected, atol=1e-4 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("terms", [3, 20])
@pytest.mark.parametrize(
    ("direction", "channels", "outputs", "extents"),
    [("forward", 1, 1, (5, 0)), ("data", 1, 1, (0, 4)), ("filter", 1, 0, (9, 4))],
)
def test_a_result_without_elements_needs_no_computation(
    direction: str, channels: int, outputs: int, extents: tuple[int, int], terms: int
) -> None:
    """As that of a worker with fewer elements than others, which reads a replicated operand."""
    x, y = torch.randn(1, channels, extents[0]), torch.randn(1, outputs, extents[1])
    w = torch.randn(outputs, channels, terms)
    problem = ConvolutionProblem(direction, x, w, y, (0,), (1,), (1,), 1)
    assert not problem.out.numel()
    bind_convolution(problem, tuner=OFF)()


@given(problems)
@settings(max_examples=60, deadline=None)
def test_all_candidates_agree(problem: ConvolutionProblem) -> None:
    """With filters that change in each call and, in forward passes, with frozen ones."""
    expected = _expected(problem)
    problems = [problem]
    if problem.direction == "forward":
        problems.append(replace(problem, content_id=torch.tensor(7)))
    for candidate, posed in product(CANDIDATES.values(), problems):
        if candidate.can_bind(posed):
            posed.out.fill_(torch.nan)
            candidate.bind(posed, _product)()
            assert _error(posed, expected) < 1e-4, candidate.name


WITHIN_THEIR_MEMORY = """
import torch
from magmath.kernels.conv import torch_convolution
from magmath.kernels.conv.convolution_problem import PASSES, ConvolutionProblem

torch.set_num_threads(1)
for channels in range(1, 9):
    for kernel, stride in (1, 2), (1, 3), (2, 2), (3, 2), (3, 1):
        x, w = torch.randn(4, channels, 9, 9), torch.randn(8, channels, kernel, kernel)
        y = torch.conv2d(x, w, stride=stride)
        for direction in PASSES:
            problem = ConvolutionProblem(
                direction, x, w, y, (0, 0), (stride, stride), (1, 1), groups=1
            )
            for bind in torch_convolution.bind, torch_convolution.bind_channels_last:
                for _ in range(2):
                    bind(problem, None)()
print("done")
"""
CHECKER = find_library("c_malloc_debug")


@pytest.mark.skipif(CHECKER is None, reason="glibc's checks of the heap are not installed")
def test_convolutions_of_few_channels_write_no_other_memory() -> None:
    """oneDNN's gradient of strided filters of one element writes beyond its workspace."""
    checks = {"LD_PRELOAD": str(CHECKER), "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    command = [sys.executable, "-c", WITHIN_THEIR_MEMORY]
    done = subprocess.run(command, env=os.environ | checks, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("direction", PASSES)
def test_direct_convolution_of_few_channels(direction: str, last: bool) -> None:
    """Up to the number of channels above which filter rows are not merged: in one vector, and in
    several."""
    for channels in range(1, 18):
        shape = (2, 8, channels, 4, 5, 1) if direction == "data" else (2, channels, 8, 4, 5, 1)
        problem = _problem(direction, shape, last=last)
        assert CANDIDATES["direct"].can_bind(problem)
        CANDIDATES["direct"].bind(problem, _product)()
        assert _error(problem, _expected(problem)) < 1e-4, channels


@pytest.mark.parametrize("name", ["packed", "winograd 4×4", "winograd 2×2", "direct", "fourier"])
@pytest.mark.parametrize("groups", [1, 2])
def test_frozen_filters_are_converted_once_for_each_content_id(
    name: str, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by several bindings to different images."""
    converted: list[int] = []
    update = FrozenFilters.update

    def counted(self: FrozenFilters, content_id: torch.Tensor, convert: Any) -> torch.Tensor:
        return update(self, content_id, lambda: converted.append(1) or convert())

    monkeypatch.setattr(FrozenFilters, "update", counted)
    content_id = torch.tensor(1)
    kernel = 9 if name == "fourier" else 3
    first = _problem("forward", (1, 32, 32, 16, 16, 1), groups=groups, kernel=kernel)
    first = replace(first, content_id=content_id)
    second = replace(first, x=torch.randn_like(first.x), y=first.y.clone())
    calls = [CANDIDATES[name].bind(problem, _product) for problem in (first, second)]
    times = groups if name != "packed" else 1
    for changes in range(1, 4):
        for _ in range(3):
            for problem, call in zip((first, second), calls, strict=True):
                problem.y.fill_(torch.nan)
                call()
                assert _error(problem, _expected(problem)) < 1e-4
        assert len(converted) == changes * times
        first.w.mul_(-2).add_(0.1)
        content_id.add_(1)


@pytest.mark.parametrize("name", ["packed", "winograd 4×4", "winograd 2×2", "direct", "fourier"])
@pytest.mark.parametrize("groups", [1, 2])
def test_tiles_of_frozen_filters_that_are_moved_to_one_address(name: str, groups: int) -> None:
    """As by programs that divide one array of filters otherwise and share their temporaries."""
    kernel = 9 if name == "fourier" else 3
    problem = _problem("forward", (1, 32, 32, 16, 16, 1), groups=groups, kernel=kernel)
    tiles = [torch.randn_like(problem.w) for _ in range(2)]
    posed = [replace(problem, content_id=torch.tensor(7), w_tile=i) for i in range(2)]
    calls = [CANDIDATES[name].bind(part, _product) for part in posed]
    for _ in range(2):
        for tile, call in zip(tiles, calls, strict=True):
            problem.w.copy_(tile)
            problem.y.fill_(torch.nan)
            call()
            assert _error(problem, _expected(problem)) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("direction", PASSES)
def test_candidates_for_half_types_round_once(direction: str, dtype: torch.dtype) -> None:
    for last in (False, True):
        problem = _problem(
            direction, (2, 5, 7, 9, 8, 1), groups=2, stride=2, last=last, dtype=dtype
        )
        expected = _expected(problem)
        for candidate in matching(ROWS, "cpu", dtype):
            if candidate.can_bind(problem):
                problem.out.fill_(torch.nan)
                candidate.bind(problem, _product)()
                limit = 4 * torch.finfo(dtype).eps
                assert _error(problem, expected) < limit, candidate.name


@pytest.mark.parametrize("direction", PASSES)
def test_depthwise_with_several_outputs_a_channel(direction: str) -> None:
    for shape, kernel, dilation in (
        ((2, 1, 1, 11, 40, 1), 3, 1), ((1, 1, 2, 7, 9, 2), 2, 2), ((3, 1, 3, 1, 1, 1), 3, 1),
        ((1, 1, 1, 12, 21, 0), 5, 1),
    ):  # fmt: skip
        problem = _problem(direction, shape, groups=6, kernel=kernel, dilation=dilation)
        assert depthwise.can_bind(problem)
        expected = _expected(problem)
        depthwise.bind(problem)()
        assert _error(problem, expected) < 5e-6


def _product(*operands: torch.Tensor, **factors: Any) -> BoundCall:
    return bind_gemm(*operands, tuner=OFF, **factors)


@pytest.mark.parametrize("direction", PASSES)
@pytest.mark.parametrize("rows", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("columns", [-2, -1, 0])
def test_strided_tiles_begin_anywhere_in_the_images(
    direction: str, rows: int, columns: int
) -> None:
    """The first element of y can need any element of x, inside or outside of a worker's tile."""
    whole = _problem(direction, (2, 16, 20, 19, 22, 0), stride=2)
    y = whole.y[:, :, :8, :8].clone()
    problem = replace(whole, y=y, offset=(rows, columns))
    x = torch.zeros(2, 16, 17, 17, dtype=torch.float64)  # the elements that y needs
    there = [slice(max(0, -first), 17) for first in (rows, columns)]
    here = [slice(max(0, first), first + 17) for first in (rows, columns)]
    if direction != "data":
        x[:, :, there[0], there[1]] = whole.x[:, :, here[0], here[1]].double()
    strided = {"forward": y, "data": whole.x, "filter": whole.w}[direction]
    strided.fill_(torch.nan)
    w, cotangents = whole.w.double(), y.double()
    if direction == "forward":
        expected = torch.nn.functional.conv2d(x, w, stride=2)
    elif direction == "data":
        expected = torch.zeros_like(whole.x, dtype=torch.float64)
        full = torch.nn.functional.conv_transpose2d(cotangents, w, stride=2)
        expected[:, :, here[0], here[1]] = full[:, :, there[0], there[1]]
    else:
        expected = torch.nn.grad.conv2d_weight(x, w.shape, cotangents, stride=2)
    for method in (Method(4, 2), Method(3, 2)):
        strided.fill_(torch.nan)
        winograd.bind(problem, method)()
        assert _error(problem, expected) < ERROR_BOUND[method], method.name
    strided.fill_(torch.nan)
    direct.bind(problem)()
    assert _error(problem, expected) < direct.ERROR_BOUND


@pytest.mark.parametrize("direction", PASSES)
def test_tiles_whose_offsets_differ_from_the_padding(direction: str) -> None:
    """A worker's tile starts in the middle of x, and a neighbour has other elements that y
    needs."""
    whole = _problem(direction, (2, 16, 16, 12, 12, 1))
    problem = replace(
        whole, x=whole.x[:, :, 3:9].clone(), y=whole.y[:, :, 2:7].clone(), offset=(-2, -1)
    )
    x = torch.zeros(2, 16, 8, 14, dtype=torch.float64)  # rows -2 … 5 of the tile
    x[:, :, 2:, 1:13] = problem.x[:, :, :6]
    w, y = problem.w.double(), problem.y.double()
    if direction == "forward":
        expected = torch.nn.functional.conv2d(x[:, :, :7], w)
    elif direction == "data":
        full = torch.nn.functional.conv_transpose2d(y, w)  # rows -2 … 4
        expected = torch.zeros(2, 16, 6, 12, dtype=torch.float64)
        expected[:, :, :5] = full[:, :, 2:, 1:13]
    else:
        expected = torch.nn.grad.conv2d_weight(x[:, :, :7], w.shape, y)
    for name in ("torch", "channels-last", "winograd 4×4", "winograd 2×2", "direct"):
        problem.out.fill_(torch.nan)
        CANDIDATES[name].bind(problem, _product)()
        assert _error(problem, expected) < 5e-5, name


@given(problems, st.integers(0, 1 << 22))
@settings(max_examples=60, deadline=None)
def test_no_candidate_needs_more_than_the_workspace_limit(
    problem: ConvolutionProblem, limit: int
) -> None:
    default, *others = candidates_for(problem, limit)
    assert default.name == "torch"
    assert all(candidate.workspace(problem) <= limit for candidate in others)


def test_winograd_is_offered_unless_it_is_off() -> None:
    problem = _problem("forward", (2, 32, 32, 16, 16, 1))
    names = [candidate.name for candidate in candidates_for(problem, 1 << 28)]
    assert names == ["torch", "channels-last", "winograd 4×4", "winograd 2×2", "direct"]
    names = [candidate.name for candidate in candidates_for(problem, 1 << 28, winograd=False)]
    assert names == ["torch", "channels-last", "direct"]


def test_a_disabled_tuner_executes_the_default() -> None:
    problem = _problem("forward", (2, 32, 32, 16, 16, 1))
    bind_convolution(problem, tuner=OFF)()
    expected = torch.nn.functional.conv2d(problem.x, problem.w, padding=1)
    assert torch.equal(problem.y, expected)


def test_the_program_decides_while_it_runs() -> None:
    problem, tuner = _problem("forward", (2, 32, 32, 16, 16, 1)), Tuner()
    call, expected = bind_convolution(problem, tuner=tuner), _expected(problem)
    names = tuple(candidate.name for candidate in candidates_for(problem, 1 << 28))
    for _ in range(len(names) * (ROUNDS + 1) + 1):
        problem.out.fill_(torch.nan)
        call()
        assert _error(problem, expected) < 5e-5
    assert tuner.known_choice(key(problem), names) in names


def _timed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], BoundCall]:
    """Return a function that returns calls of given durations on a simulated clock."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def make(name: str, seconds: float) -> BoundCall:
        def call() -> None:
            now[0] += seconds
            made.append(name)

        return call

    made: list[str] = []
    make.__dict__["made"] = made
    return make


def _options(
    make: Callable[[str, float], BoundCall], **seconds: float
) -> dict[str, OnlineCandidate]:
    return {
        name: OnlineCandidate(lambda name=name, s=s: make(name, s), is_always_ready)  # type: ignore[misc]
        for name, s in seconds.items()
    }


def test_each_candidate_is_measured_in_turn_and_the_fastest_remains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, tuner = _timed(monkeypatch), Tuner()
    call = OnlineCall(tuner, "op", _options(make, default=1.0, fast=0.8, hopeless=9.0))
    for _ in range(2 * ROUNDS + 20):
        call()
    made = make.__dict__["made"]
    assert made[:6] == ["default"] * 2 + ["fast"] * 2 + ["hopeless"] * 2
    assert made.count("hopeless") == 2  # one loads, one is measured
    assert made[-10:] == ["fast"] * 10
    again = OnlineCall(tuner, "op", _options(make, default=1.0, fast=0.8, hopeless=9.0))
    again()
    assert made[-1] == "fast"


def test_the_choice_holds_for_one_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are bound for the current number, which is lower while other processes compute."""
    now, count, runs = [0.0], [1], []
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("torch.get_num_threads", lambda: count[0])

    def option(name: str, seconds: dict[int, float]) -> OnlineCandidate:
        def bind() -> BoundCall:
            bound_for = count[0]

            def call() -> None:
                now[0] += seconds[bound_for]
                runs.append((name, bound_for, count[0]))

            return call

        return OnlineCandidate(bind, is_always_ready)

    options = {"a": option("a", {1: 1.0, 2: 0.9}), "b": option("b", {1: 2.0, 2: 0.5})}
    call = OnlineCall(Tuner(), "op", options)
    for count[0], fastest in [(1, "a"), (2, "b"), (1, "a"), (2, "b")]:
        for _ in range(2 * ROUNDS + 5):
            call()
        assert runs[-1] == (fastest, count[0], count[0])
    assert all(bound_for == current for _, bound_for, current in runs)


def test_the_first_call_of_each_of_several_layers_is_not_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Layers of one shape share their timings, and each reorders its own filters at first."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def reordering() -> BoundCall:
        calls: list[None] = []

        def call() -> None:
            now[0] += 0.1 if calls else 50.0
            calls.append(None)

        return call

    def plain() -> BoundCall:
        def call() -> None:
            now[0] += 1.0

        return call

    tuner = Tuner()
    options = {
        "plain": OnlineCandidate(plain, is_always_ready),
        "packed": OnlineCandidate(reordering, is_always_ready),
    }
    layers = [OnlineCall(tuner, "op", options) for _ in range(4)]
    for _ in range(20):
        for layer in layers:
            layer()
    assert tuner.known_choice("op", tuple(options)) == "packed"


def test_the_default_remains_unless_it_is_clearly_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    make = _timed(monkeypatch)
    call = OnlineCall(Tuner(), "op", _options(make, default=1.0, other=0.97))
    for _ in range(2 * ROUNDS + 5):
        call()
    assert make.__dict__["made"][-1] == "default"


def test_a_candidate_that_is_being_compiled_is_measured_when_it_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, ready = _timed(monkeypatch), [False]
    options = _options(make, default=1.0, quick=0.9, fast=0.5)
    options["fast"] = replace(options["fast"], is_ready=lambda: ready[0])
    call = OnlineCall(Tuner(), "op", options)
    for _ in range(20):
        call()
    made = make.__dict__["made"]
    assert "fast" not in made
    assert made[-1] == "quick"
    ready[0] = True
    for _ in range(20):
        call()
    assert made[-1] == "fast"
