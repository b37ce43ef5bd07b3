"""Convolution with large filters by Fourier transforms, as products of matrices.

A convolution is a product at each frequency. Filters of k×k elements cost 2·k² operations for each
pixel and pair of channels in a direct sum, here about 4, and the transforms, which each channel
shares with all channels of the other side.

A discrete Fourier transform of a few dozen elements is faster as a product with a matrix than as a
fast one: it runs at the rate of the BLAS, and its result has the frequencies first, as the products
need it. A matrix contains any positions, so padding, offsets and the part of the result that is
stored need no copies; and the length need not be a product of small primes. Numbers are real: the
planes of real and imaginary parts are adjacent rows. The images are transformed in parts of the
batch. Frozen filters, those of inference, are transformed once for each content id.

Rounding errors are relative to the largest elements of an image, not to those under the filter:
tests check `ERROR_BOUND`. An infinity or a NaN makes its whole image NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.frozen_filters import FrozenFilters, frozen_filters
from magmath.kernels.conv.padded_input import needed_elements
from magmath.kernels.thread_workspace import thread_workspace

MIN_TAPS: Final = 36  # elements of a filter; below, Winograd's and direct sums are faster
MAX_OPERATIONS: Final = 0.4
"""The operations relative to those of the direct sum; with more, the direct sum is faster."""
PART_BYTES: Final = 32 << 20
"""The memory for the images of one part of the batch, at least one image."""
KEPT_MATRICES: Final = 64
MAX_KEPT_BYTES: Final = 32 << 20
"""Bytes of the spectra of frozen filters; more are computed in each call."""

ERROR_BOUND: Final = {torch.float32: 2e-5, torch.float64: 4e-14}
"""The maximum error of an element relative to the root mean square of the result, for normally
distributed operands and at most 4,096 summands."""


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True for problems that this method can compute and is likely to compute faster."""
    if problem.x.ndim not in (3, 4) or {*problem.stride, *problem.dilation} != {1}:
        return False
    if prod(problem.kernel) < MIN_TAPS or not _has_numbers(problem):
        return False
    group = problem.group(0)
    return _Plan(group).flops <= MAX_OPERATIONS * group.flops


def _has_numbers(problem: ConvolutionProblem) -> bool:
    """Return True if y needs an element of x; no array is empty then."""
    tensors = (problem.x, problem.w, problem.y)
    return all(t.numel() for t in tensors) and bool(_needed(problem).x.numel())


def _lengths(problem: ConvolutionProblem) -> list[int]:
    """Return the lengths of the transforms, so large that the products do not wrap around."""
    pairs = zip(problem.y.shape[2:], problem.kernel, strict=True)
    return [n + k - 1 for n, k in pairs]


@final
@dataclass(frozen=True, slots=True)
class _Needed:
    """The elements of x that y needs, and the positions of the first relative to `offset`."""

    x: torch.Tensor
    first: tuple[int, ...]


def _needed(problem: ConvolutionProblem) -> _Needed:
    in_needed, in_x = needed_elements(problem)
    return _Needed(problem.x[in_x], tuple(part.start for part in in_needed[1:]))


# the transforms ---------------------------------------------------------------------------------


def _waves(length: int, first: int, count: int, sign: int, frequencies: int) -> NDArray[Any]:
    """Return exp(sign·2πi·f·p / length) for frequencies f and positions p: first … + count - 1."""
    turns = np.outer(np.arange(frequencies), np.arange(first, first + count)) % length
    return np.asarray(np.exp(sign * 2j * np.pi * turns / length))


def _as_real(waves: NDArray[Any]) -> NDArray[Any]:
    """Return (2, 2, a, b): the parts of a product with complex numbers (a, b), by the parts of the
    factor."""
    return np.array([[waves.real, -waves.imag], [waves.imag, waves.real]])


@lru_cache(KEPT_MATRICES)
def _transform_matrices(
    lengths: tuple[int, int], first: tuple[int, int], extents: tuple[int, int], sign: int,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the matrices (2·column frequencies, columns) and (2, row frequencies, rows·2)."""
    half = lengths[1] // 2 + 1
    columns = _waves(lengths[1], first[1], extents[1], sign, half)
    of_columns = np.concatenate([columns.real, columns.imag])
    rows = _as_real(_waves(lengths[0], first[0], extents[0], sign, lengths[0]))
    of_rows = rows.transpose(0, 2, 3, 1).reshape(2, lengths[0], 2 * extents[0])
    return torch.from_numpy(of_columns).to(dtype), torch.from_numpy(of_rows).to(dtype)


@lru_cache(KEPT_MATRICES)
def _inverse_matrices(
    lengths: tuple[int, int], first: tuple[int, int], extents: tuple[int, int],
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the matrices (2, 2·rows, row frequencies) and (columns, column frequencies·2)."""
    half = lengths[1] // 2 + 1
    rows = _as_real(_waves(lengths[0], first[0], extents[0], 1, lengths[0]).T / prod(lengths))
    of_rows = rows.transpose(1, 0, 2, 3).reshape(2, 2 * extents[0], lengths[0])
    columns = _waves(lengths[1], first[1], extents[1], 1, half).T.copy()
    columns[:, 1 : (lengths[1] + 1) // 2] *= 2  # and their conjugates, which are not stored
    of_columns = np.stack([columns.real, -columns.imag], 2).reshape(extents[1], 2 * half)
    return torch.from_numpy(of_rows).to(dtype), torch.from_numpy(of_columns).to(dtype)


@final
@dataclass(frozen=True, slots=True)
class _Side:
    """Arrays of one operand or result: (a, b, rows, columns), in a transform of given lengths.

    first    the position of the first element
    sign     of the exponents: 1 for the conjugate
    """

    lengths: tuple[int, int]
    first: tuple[int, int]
    extents: tuple[int, int]
    sign: int = -1

    @property
    def half(self) -> int:
        """The number of column frequencies that are stored."""
        return self.lengths[1] // 2 + 1

    @property
    def frequencies(self) -> int:
        """The number of frequencies."""
        return self.half * self.lengths[0]

    @property
    def flops(self) -> int:
        """The operations of the transform of one array."""
        (rows, columns), half = self.extents, self.half
        return 4 * rows * columns * half + 8 * half * self.lengths[0] * rows

    def temporary_numbers(self, count: int) -> int:
        """Return the numbers of temporary memory that a transform of `count` arrays needs."""
        rows, columns = self.extents
        return count * rows * (columns + 2 * self.half)

    def transform(self, arrays: torch.Tensor, out: torch.Tensor, memory: torch.Tensor) -> None:
        """Set `out` (2, frequencies, a, b) to the transform of (a, b, rows, columns)."""
        (rows, columns), (a, b), half = self.extents, arrays.shape[:2], self.half
        count = a * b
        pixels, waves = self._temporary(memory, count)
        pixels.view(rows, columns, a, b).copy_(arrays.permute(2, 3, 0, 1))
        of_columns, of_rows = _transform_matrices(
            self.lengths, self.first, self.extents, self.sign, out.dtype
        )
        torch.bmm(of_columns.expand(rows, -1, -1), pixels, out=waves.view(rows, 2 * half, count))
        operand = waves.view(2 * rows, half, count).movedim(1, 0)
        for matrix, part in zip(of_rows, out.view(2, half, self.lengths[0], count), strict=True):
            torch.bmm(matrix.expand(half, -1, -1), operand, out=part)

    def invert(self, spectrum: torch.Tensor, arrays: torch.Tensor, memory: torch.Tensor) -> None:
        """Set arrays (a, b, rows, columns) to the inverse of the spectrum."""
        (rows, columns), (a, b), half = self.extents, arrays.shape[:2], self.half
        count = a * b
        pixels, waves = self._temporary(memory, count)
        of_rows, of_columns = _inverse_matrices(
            self.lengths, self.first, self.extents, spectrum.dtype
        )
        result = waves.view(half, 2 * rows, count)
        parts = spectrum.view(2, half, self.lengths[0], count)
        for beta, matrix, part in zip((0, 1), of_rows, parts, strict=True):
            matrices = matrix.expand(half, -1, -1)
            torch.baddbmm(result, matrices, part, beta=beta, out=result)
        operand = waves.view(2 * half, rows, count).movedim(1, 0)
        torch.bmm(of_columns.expand(rows, -1, -1), operand, out=pixels)
        arrays.copy_(pixels.view(rows, columns, a, b).permute(2, 3, 0, 1))

    def _temporary(self, memory: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return memory for the arrays, and for the transforms of their rows."""
        rows, columns = self.extents
        size = rows * columns * count
        pixels = memory[:size].view(rows, columns, count)
        return pixels, memory[size : size + rows * 2 * self.half * count]


def _multiply(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, beta: int = 0) -> None:
    """Set out (2, frequencies, m, n) to beta·out + a·b, for a (…, m, l) and b (…, l, n)."""
    real, imaginary = out
    torch.baddbmm(real, a[0], b[0], beta=beta, out=real)
    torch.baddbmm(real, a[1], b[1], alpha=-1, out=real)
    torch.baddbmm(imaginary, a[0], b[1], beta=beta, out=imaginary)
    torch.baddbmm(imaginary, a[1], b[0], out=imaginary)


# the passes -------------------------------------------------------------------------------------


def _padded_to_two(values: Sequence[int], value: int) -> tuple[int, int]:
    """Return the values of two dimensions, for those of one or two."""
    first, second = (value, *values)[-2:]
    return first, second


def _as_images(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view with two spatial dimensions."""
    return tensor if tensor.ndim == 4 else tensor.unsqueeze(2)


@final
class _Plan:
    """The transforms of a problem without groups, and its parts of the batch."""

    def __init__(self, problem: ConvolutionProblem) -> None:
        self.direction = problem.direction
        needed = _needed(problem)
        self.x, self.w, self.y = map(_as_images, (needed.x, problem.w, problem.y))
        self._problem = problem
        self.content_id = problem.content_id if problem.direction == "forward" else None
        lengths = _padded_to_two(_lengths(problem), 1)
        first = _padded_to_two(needed.first, 0)
        conjugated = {"forward": "w", "data": "", "filter": "y"}[self.direction]
        self.sides = {
            name: _Side(
                lengths, start, _padded_to_two(tensor.shape[2:], 1), 1 if name == conjugated else -1
            )
            for name, tensor, start in (
                ("x", self.x, first), ("w", self.w, (0, 0)), ("y", self.y, (0, 0)),
            )
        }  # fmt: skip
        self.count = self._images_of_part()
        self._form = "fourier", self.sides["w"], self.w.dtype, tuple(self.w.shape), self.w.stride()

    @property
    def flops(self) -> int:
        """The operations of a run."""
        (batch, channels), outputs = self.x.shape[:2], self.w.shape[0]
        sides, pairs = self.sides, channels * outputs
        images = channels * sides["x"].flops + outputs * sides["y"].flops
        products = 8 * sides["x"].frequencies * pairs
        return batch * (images + products) + pairs * sides["w"].flops

    def _numbers_of_spectra(self, images: int) -> int:
        """Return the numbers of the spectra of some images, and of x and y."""
        channels = self.x.shape[1] + self.y.shape[1]
        return 2 * self.sides["x"].frequencies * images * channels

    def _temporary_numbers(self, images: int) -> int:
        """Return the numbers of memory of one transform, of whatever side."""
        counts = {
            "x": images * self.x.shape[1], "y": images * self.y.shape[1],
            "w": self.w.shape[0] * self.w.shape[1],
        }  # fmt: skip
        return max(self.sides[name].temporary_numbers(n) for name, n in counts.items())

    def _images_of_part(self) -> int:
        """Return the number of images of the largest part; all parts are almost equal."""
        batch = len(self.x)
        nbytes = self._numbers_of_spectra(1) * self.x.itemsize
        parts = -(-batch // max(1, PART_BYTES // nbytes))
        return -(-batch // parts)

    @property
    def filter_numbers(self) -> int:
        """The numbers of the spectra of the filters."""
        return 2 * self.sides["w"].frequencies * self.w.shape[0] * self.w.shape[1]

    @property
    def image_numbers(self) -> int:
        """The numbers of memory that a run needs in addition to the spectra of the filters."""
        return self._numbers_of_spectra(self.count) + self._temporary_numbers(self.count)

    def parts(self) -> Iterator[slice]:
        """Return the parts of the batch."""
        return (slice(i, i + self.count) for i in range(0, len(self.x), self.count))

    def call(self) -> BoundCall:
        """Return a call that computes the result."""
        if self.direction == "filter":
            return self._add_filters
        is_large = self.filter_numbers * self.x.itemsize > MAX_KEPT_BYTES
        if self.content_id is None or is_large:
            return self._correlate_with_new_filters
        filters = frozen_filters(self._problem, self._form)
        return partial(self._correlate_with_frozen_filters, filters)

    def _workspace(self, numbers: int) -> torch.Tensor:
        """Return memory of this thread for numbers of the operands' type."""
        nbytes = numbers * self.x.itemsize
        return thread_workspace(nbytes)[:nbytes].view(self.x.dtype)

    def _filters_and_scratch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return memory for the spectra of the filters, and for the images."""
        memory = self._workspace(self.filter_numbers + self.image_numbers)
        return memory[: self.filter_numbers], memory[self.filter_numbers :]

    def _correlate_with_new_filters(self) -> None:
        filters, scratch = self._filters_and_scratch()
        self._correlate(self._transform_filters(filters, scratch), scratch)

    def _correlate_with_frozen_filters(self, frozen: FrozenFilters) -> None:
        def transformed() -> torch.Tensor:
            filters = self.x.new_empty(self.filter_numbers)
            return self._transform_filters(filters, self.x.new_empty(self._temporary_numbers(0)))

        assert self.content_id is not None
        filters = frozen.update(self.content_id, transformed)
        self._correlate(filters, self._workspace(self.image_numbers))

    def _transform_filters(self, filters: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        """Return the transformed filters (2, frequencies, channels read, channels written), in the
        memory `filters`."""
        w = self.w.movedim(0, 1) if self.direction == "forward" else self.w
        spectrum = filters.view(2, -1, *w.shape[:2])
        self.sides["w"].transform(w, spectrum, scratch)
        return spectrum

    def _correlate(self, filters: torch.Tensor, scratch: torch.Tensor) -> None:
        """Compute y or x with transformed filters."""
        is_forward = self.direction == "forward"
        if not is_forward and self.x.shape != self._problem.x.shape:
            self._problem.x.zero_()
        source, target = ("x", "y") if is_forward else ("y", "x")
        arrays = {"x": self.x, "y": self.y}
        for part in self.parts():
            read, written = arrays[source][part], arrays[target][part]
            a, out, temporary = self._spectra(scratch, read, written)
            self.sides[source].transform(read, a, temporary)
            _multiply(a, filters, out)
            self.sides[target].invert(out, written, temporary)

    def _add_filters(self) -> None:
        """Compute w."""
        filters, scratch = self._filters_and_scratch()
        total = filters.view(2, -1, *self.w.shape[:2])
        for beta, part in zip((0, *[1] * len(self.x)), self.parts(), strict=False):
            y, x = self.y[part].movedim(0, 1), self.x[part]
            a, b, temporary = self._spectra(scratch, y, x)
            self.sides["y"].transform(y, a, temporary)
            self.sides["x"].transform(x, b, temporary)
            _multiply(a, b, total, beta)
        self.sides["w"].invert(total, self.w, scratch)

    def _spectra(
        self, memory: torch.Tensor, *arrays: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return memory for the spectra of two arrays, and what remains."""
        spectra, frequencies = [], self.sides["x"].frequencies
        for array in arrays:
            shape = (2, frequencies, *array.shape[:2])
            spectra.append(memory[: prod(shape)].view(shape))
            memory = memory[prod(shape) :]
        return spectra[0], spectra[1], memory


def workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of memory that a call needs in addition to the operands."""
    plan = _Plan(problem.group(0))
    return (plan.filter_numbers + plan.image_numbers) * problem.x.itemsize


def bind(problem: ConvolutionProblem, bind_product: Callable[..., BoundCall]) -> BoundCall:
    """Return a bound call."""
    plans = [_Plan(problem.group(i)) for i in range(problem.groups)]
    return sequence(*[plan.call() for plan in plans])
