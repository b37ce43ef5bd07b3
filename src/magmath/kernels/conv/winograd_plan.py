"""The convolution plan of Winograd's method: the JOB that its compiled loops read, and its
workspace."""

from __future__ import annotations

from typing import Final, final

import torch

from magmath.core.byte_sizes import round_up
from magmath.core.cpu import PAGE, second_level_cache
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.image_views import view_of
from magmath.kernels.conv.plan_runs import ConvolutionPlan, job_record
from magmath.kernels.conv.winograd_loops import JOB, PAD, SUMS_HEADER, WIDTH
from magmath.kernels.conv.winograd_transforms import ALGORITHMS
from magmath.kernels.gemm.microkernel import ROWS, VECTORS

CACHE_BYTES: Final = second_level_cache() * 5 // 4
"""The bytes of transformed inputs of a block, most of which stay in the second-level cache."""
MIN_BLOCK, MAX_BLOCK = 32, 96  # tiles of a block; twice the minimum for MANY_FILTERS
GRADIENT_BLOCK: Final = 128  # likewise, for the gradient of MANY_FILTERS; half of it for fewer
MANY_FILTERS: Final = 1 << 17  # too many for a second-level cache, and read for each block


def _padded(elements: int) -> int:
    """Return the distance of positions, in elements: pages and an odd number of cache lines, so
    that different positions use different sets of the caches."""
    return round_up(4 * elements, PAGE) // 4 + PAD


@final
class WinogradPlan(ConvolutionPlan):
    """The JOB of a problem without groups, and the sizes of its workspace."""

    def __init__(self, problem: ConvolutionProblem, name: str) -> None:
        self._problem = problem  # the addresses hold no reference
        self._algorithm = algorithm = ALGORITHMS[name]
        self.threads = torch.get_num_threads()
        of_filters = problem.direction == "filter"
        turned = problem.direction == "data"
        source, target = (problem.y, problem.x) if turned else (problem.x, problem.y)
        offset, start = self._origin(turned)
        channels, outputs = source.shape[1], round_up(target.shape[1], WIDTH)
        rows, columns = (
            -(-(extent - first) // algorithm.tile)
            for extent, first in zip(target.shape[2:], start, strict=True)
        )
        tiles = target.shape[0] * rows * columns
        block = self._block_tiles(channels, outputs, tiles, of_filters)
        pitch = round_up(channels, WIDTH) + WIDTH
        others_pitch = outputs + WIDTH if of_filters else min(outputs, VECTORS * WIDTH)
        inputs_stride, others_stride = _padded(block * pitch), _padded(block * others_pitch)
        inputs_bytes = 4 * algorithm.inputs**2 * inputs_stride
        sums = outputs * algorithm.positions**2 if of_filters else 0  # of a channel, in `finish`
        self._slot_bytes = inputs_bytes + 4 * max(algorithm.products**2 * others_stride, sums)
        self.shared_bytes = self._filter_bytes(channels, outputs, of_filters)
        self._views = [view_of(source), view_of(target), view_of(problem.w, turned=turned)]
        values = {
            "source": self._views[0].ctypes.data, "target": self._views[1].ctypes.data,
            "filters": self._views[2].ctypes.data, "offset_y": offset[0], "offset_x": offset[1],
            "start_y": start[0], "start_x": start[1], "tiles": tiles, "tile_rows": rows,
            "tile_columns": columns, "block_tiles": block, "blocks": -(-tiles // block),
            "slot_bytes": self._slot_bytes, "inputs_pitch": pitch, "inputs_stride": inputs_stride,
            "inputs_bytes": inputs_bytes, "others_pitch": others_pitch,
            "others_stride": others_stride,
            "outputs": outputs,
        }  # fmt: skip
        self._job = job_record(JOB, values)
        self.address = int(self._job.ctypes.data)

    def _origin(self, turned: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the first pixels of the source that the first tile covers, and its own.

        Tiles of the gradient of the inputs begin at the odd elements of filters, so with stride 2
        and an even offset they begin before the images.
        """
        offset, start = self._problem.offset, (0,) * len(self._problem.offset)
        if not turned:
            return offset, start
        if self._problem.stride[0] == 1:
            return tuple([1 - self._algorithm.taps - first for first in offset]), start
        start = tuple([first % 2 - 1 for first in offset])
        pairs = zip(start, offset, strict=True)
        return tuple([(first - begin - 1) // 2 for first, begin in pairs]), start

    def _filter_bytes(self, channels: int, outputs: int, of_filters: bool) -> int:
        """Return the bytes of the transformed filters, or of the sums of all threads."""
        numbers, positions = channels * outputs, self._algorithm.positions**2
        if of_filters:
            return self.threads * (4 * positions * (numbers + PAD) + SUMS_HEADER)
        return 4 * positions * (numbers + PAD * (outputs // WIDTH))

    def _block_tiles(self, channels: int, outputs: int, tiles: int, of_filters: bool) -> int:
        """Return the number of tiles of a block: few enough for the cache and for all threads.

        A block with many filters has more tiles, because it reads all filters, or sums.
        """
        numbers = self._algorithm.inputs**2 * channels
        if of_filters:
            numbers += self._algorithm.products**2 * outputs
        fitting = CACHE_BYTES // (4 * numbers) // ROWS * ROWS
        many = channels * outputs >= MANY_FILTERS
        min_tiles, max_tiles = MIN_BLOCK * (2 if many else 1), MAX_BLOCK
        if of_filters:
            min_tiles, max_tiles = GRADIENT_BLOCK // (1 if many else 2), GRADIENT_BLOCK
        share = -(-tiles // self.threads)
        return max(1, min(max(min_tiles, fitting), max_tiles, share))

    def start(self, memory: int, filters: int | None = None) -> None:
        start = round_up(memory, PAGE)
        end = start + self.threads * self._slot_bytes
        changed = {
            "next_block": 0, "next_slot": 0, "next_filter": 0, "next_finisher": 0,
            "workspace": start,
            "transformed": end if filters is None else round_up(filters, PAGE),
        }  # fmt: skip
        for name, value in changed.items():
            self._job[JOB.index(name)] = value
