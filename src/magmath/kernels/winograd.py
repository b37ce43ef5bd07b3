"""Winograd convolution of float32 images with 3×3 filters, on the processor.

F(4×4, 3×3) needs a quarter of the multiplications of the direct sum, F(2×2, 3×3) four ninths
(`kernels/winograd_transforms.py`). The gradient with respect to the images is a convolution with
filters turned by 180°, whose inputs and outputs are exchanged; the gradient of the filters adds the
products of transformed images and cotangents over all tiles, and transforms the sum once.

The results differ from the direct sum by rounding: for operands of random sign, the root mean
square error relative to that of the result is about 4 times that of the direct sum for F(2×2) and 8
times for F(4×4). `ERROR_BOUND` is tested. An infinity or a NaN makes the whole tile NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import torch

from magmath.kernels.convolution_problem import ConvolutionProblem
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.scratch import shared_workspace
from magmath.kernels.winograd_loops import JOB, PAD, WIDTH, code
from magmath.kernels.winograd_transforms import TAPS

Call = Callable[[], object]

MIN_CHANNELS: Final = 16  # of either side; below, the transforms cost more than the products save
MIN_TILES: Final = 8
CACHE_BYTES: Final = 640 << 10  # of transformed inputs that stay in a second-level cache
MIN_BLOCK, MAX_BLOCK = 32, 96  # tiles of a block
MAX_WEIGHT_BLOCK: Final = 128
ERROR_BOUND: Final = {2: 3e-6, 4: 1e-5}
"""The maximum error of an element relative to the root mean square of the result, for operands of
random sign and at most 4,096 summands."""

_PAGE = 4096


def takes(problem: ConvolutionProblem, tile: int) -> bool:
    """Return True for problems that F(tile×tile, 3×3) computes and that are worth it."""
    tensors = (problem.x, problem.w, problem.y)
    if problem.kernel != (TAPS, TAPS) or {*problem.stride, *problem.dilation} != {1}:
        return False
    if problem.x.dtype != torch.float32 or not all(x.numel() for x in tensors):
        return False
    if not (_is_readable(problem.x) and _is_readable(problem.y)):
        return False
    channels = min(problem.w.shape[1], problem.w.shape[0] // problem.groups)
    tiled = problem.x if problem.direction == "data" else problem.y
    return channels >= MIN_CHANNELS and _tile_count(tiled, tile) >= MIN_TILES


def _is_readable(tensor: torch.Tensor) -> bool:
    """True if the pixels of a row or the channels of a pixel are contiguous."""
    return tensor.stride(3) == 1 or tensor.stride(1) == 1


def _tile_count(tensor: torch.Tensor, tile: int) -> int:
    rows, columns = (-(-extent // tile) for extent in tensor.shape[2:])
    return tensor.shape[0] * rows * columns


def workspace(problem: ConvolutionProblem, tile: int) -> int:
    """Return the bytes of memory that a call needs in addition to the operands."""
    return _Plan(problem.group(0), tile).nbytes


def bind(problem: ConvolutionProblem, tile: int) -> Call:
    """Return a ready call that computes a problem by F(tile×tile, 3×3)."""
    calls = [_bind_group(problem.group(i), tile) for i in range(problem.groups)]
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


def _bind_group(problem: ConvolutionProblem, tile: int) -> Call:
    plan = _Plan(problem, tile)
    functions = ("weight_sums", "finish")
    if problem.direction != "filter":
        functions = ("transform_filters", "correlate")
    return partial(_run, plan, [code(tile).address(name) for name in functions])


def _run(plan: _Plan, functions: Sequence[int]) -> None:
    memory = shared_workspace(plan.nbytes)
    plan.start(memory.data_ptr(), torch.get_num_threads())
    for function in functions:
        run_on_threads(function, plan.address)


def _padded(elements: int) -> int:
    """Return the distance of positions, in elements: pages and an odd number of cache lines, so
    that different positions use different sets of the caches."""
    return -(-elements * 4 // _PAGE) * _PAGE // 4 + PAD


def _view(
    tensor: torch.Tensor, *, turned: bool = False
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the VIEW of images, or of filters; `turned`: by 180°, inputs and outputs exchanged."""
    images, channels, rows, columns = tensor.shape
    strides, address = list(tensor.stride()), tensor.data_ptr()
    if turned:
        address += 4 * ((rows - 1) * strides[2] + (columns - 1) * strides[3])
        strides = [strides[1], strides[0], -strides[2], -strides[3]]
        images, channels = channels, images
    return np.array([address, *strides, images, channels, rows, columns], np.int64)


class _Plan:
    """The JOB of a problem without groups, and the sizes of its memory."""

    def __init__(self, problem: ConvolutionProblem, tile: int) -> None:
        self._problem = problem  # the addresses hold no reference
        source, target, offset = problem.x, problem.y, problem.offset
        turned = problem.direction == "data"
        if turned:
            source, target = problem.y, problem.x
            offset = tuple(1 - TAPS - start for start in problem.offset)
        self._views = [_view(source), _view(target), _view(problem.w, turned=turned)]
        self._positions = (tile + TAPS - 1) ** 2
        channels, outputs = source.shape[1], -(-target.shape[1] // WIDTH) * WIDTH
        tiles = _tile_count(target, tile)
        block = self._block_tiles(problem.direction, channels, outputs, tiles)
        pitch = -(-channels // WIDTH) * WIDTH + WIDTH
        wide = outputs + WIDTH if problem.direction == "filter" else self._group_width(outputs)
        strides = _padded(block * pitch), _padded(block * wide)
        nbytes = [4 * self._positions * stride for stride in strides]
        self._slot_bytes = sum(nbytes)
        self._filters = 4 * self._positions * (
            channels * outputs + PAD * (outputs // WIDTH + 1)
        ) + 64  # fmt: skip
        self._sums = 4 * self._positions * (channels * outputs + PAD) + 64
        values = {
            "source": self._views[0].ctypes.data, "target": self._views[1].ctypes.data,
            "filters": self._views[2].ctypes.data, "offset_y": offset[0], "offset_x": offset[1],
            "tiles": tiles, "tile_rows": -(-target.shape[2] // tile),
            "tile_columns": -(-target.shape[3] // tile), "block_tiles": block,
            "blocks": -(-tiles // block), "slot_bytes": self._slot_bytes, "inputs_pitch": pitch,
            "inputs_stride": strides[0], "inputs_bytes": nbytes[0], "others_pitch": wide,
            "others_stride": strides[1], "others_bytes": nbytes[1], "outputs": outputs,
        }  # fmt: skip
        self._job = np.array([values.get(name, 0) for name in JOB], np.int64)
        self.address = int(self._job.ctypes.data)

    @staticmethod
    def _group_width(outputs: int) -> int:
        from magmath.kernels.microkernel import VECTORS

        return min(outputs, VECTORS * WIDTH)

    def _block_tiles(self, direction: str, channels: int, outputs: int, tiles: int) -> int:
        """Return the number of tiles of a block: few enough for the cache and for all threads."""
        both = channels + (outputs if direction == "filter" else 0)
        fitting = CACHE_BYTES // (4 * self._positions * both)
        least, most = (MIN_BLOCK, MAX_BLOCK)
        if direction == "filter":
            most = MAX_WEIGHT_BLOCK
            least = MAX_WEIGHT_BLOCK if channels * outputs > 1 << 16 else 64
        share = -(-tiles // torch.get_num_threads())
        return max(1, min(max(least, fitting // 8 * 8), most, share))

    @property
    def nbytes(self) -> int:
        """The bytes of workspace."""
        threads = torch.get_num_threads()
        shared = self._filters
        if self._problem.direction == "filter":
            shared = threads * self._sums
        return shared + threads * self._slot_bytes + _PAGE

    def start(self, memory: int, threads: int) -> None:
        """Set the addresses of the workspace, and all counters to 0."""
        start = -(-memory // _PAGE) * _PAGE
        changed = {
            "next_block": 0, "next_slot": 0, "next_filter": 0, "slots": threads,
            "workspace": start, "transformed": start + threads * self._slot_bytes,
        }  # fmt: skip
        for name, value in changed.items():
            self._job[JOB.index(name)] = value
