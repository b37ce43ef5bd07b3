"""Distributed sorting: each worker sorts its part, then merges its share of all parts.

For each boundary between workers in the result, the algorithm determines exactly how many keys of
each part precede it. A search over all possible keys, with the summed counts of all workers, finds
the key at the boundary; equal keys of lower ranks come first, so the sort is stable (Varman et al.
1991). So every worker gets exactly its share for any data, and an element moves once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.codegen.aot_cache import AotModule
from magmath.core.block_cyclic import round_to_cache_lines
from magmath.kernels.sort.sortable_keys import (
    MAX_POSITIONS,
    KeyCode,
    Keys,
    are_positions_packed,
    bits_of,
    order_keys,
    sort_keys,
)

if TYPE_CHECKING:
    from magmath.comm import Communicator

Counts = NDArray[np.int64]

PROBES = 16  # keys that are tested at a time: a round determines four bits


@final
class SortedRun(NamedTuple):
    """Sorted keys, and the original position of each unless the keys contain it."""

    keys: Keys
    positions: NDArray[np.uint64] | None

    def part(self, start: int, stop: int) -> SortedRun:
        """Return the elements from `start` to `stop` as a run."""
        positions = self.positions
        return SortedRun(
            self.keys[start:stop], None if positions is None else positions[start:stop]
        )

    def arrays(self) -> list[Keys]:
        """Return the arrays to be sent: keys, and positions if there are any."""
        return [self.keys] if self.positions is None else [self.keys, self.positions]


def boundaries(comm: Communicator, keys: Keys, cuts: Sequence[int]) -> Counts:
    """Return for each worker (row) the indices in its sorted keys at which the parts of the sorted
    array, divided at `cuts`, begin and end. Collective."""
    inner = np.array(cuts[1:-1], np.int64)
    boundary_keys = _boundary_keys(comm, keys, inner)
    less, up_to = (np.searchsorted(keys, boundary_keys, side) for side in ("left", "right"))
    lengths = np.full(len(inner), len(keys))
    less, up_to, lengths = _counts_of_all(comm, np.stack([less, up_to, lengths]))
    equal = up_to - less
    equal_of_lower_ranks = equal.cumsum(0) - equal
    equal_before = np.clip(inner - less.sum(0) - equal_of_lower_ranks, 0, equal)
    begin, end = np.zeros_like(less[:, :1]), lengths[:, :1]
    return np.concatenate([begin, less + equal_before, end], axis=1)


def _boundary_keys(comm: Communicator, keys: Keys, cuts: Counts) -> Keys:
    """Return for each cut the smallest key such that at least as many keys of all workers are not
    larger. Collective."""
    low = np.zeros(len(cuts), np.uint64)
    high = np.full(len(cuts), np.iinfo(keys.dtype).max, np.uint64)
    columns = np.arange(len(cuts))
    while (low < high).any():
        step = (high - low) // np.uint64(PROBES) + np.uint64(1)
        offsets = np.minimum(step * np.arange(PROBES, dtype=np.uint64)[:, None], high - low)
        probes = np.concatenate([low + offsets, high[None]])
        up_to = _total(comm, np.searchsorted(keys, probes[:-1].astype(keys.dtype), "right"))
        below = (up_to < cuts).sum(0)  # number of probes (ascending) below the boundary
        high = probes[below, columns]
        low = np.where(below > 0, probes[below - 1, columns] + np.uint64(1), low)
    return low.astype(keys.dtype)


def _total(comm: Communicator, counts: Any) -> Counts:
    tensor = torch.from_numpy(counts.astype(np.int64))
    comm.allreduce(tensor)
    return tensor.numpy()


def _counts_of_all(comm: Communicator, counts: Any) -> Counts:
    """Return the counts of all workers, (kinds, workers, …) for counts of shape (kinds, …)."""
    own_counts = torch.from_numpy(counts.astype(np.int64))
    out = torch.empty((comm.size, *own_counts.shape), dtype=torch.int64)
    comm.allgather(out, own_counts)
    return out.numpy().swapaxes(0, 1)


def merge_runs(
    comm: Communicator,
    own_run: SortedRun,
    peers: Sequence[SortedRun] | None,
    cuts: Sequence[int],
    out: SortedRun,
    spare: SortedRun,
) -> None:
    """Fill `out` with this worker's part of the merged runs. Collective.

    own_run  this worker's run
    peers    the runs of all workers; None without shared memory
    spare    a run of the size of `out`
    """
    bounds = boundaries(comm, own_run.keys, cuts)  # also waits until all runs are sorted
    levels = (comm.size - 1).bit_length()
    buffers = (out, spare) if levels % 2 else (spare, out)
    ends = bounds[:, comm.rank : comm.rank + 2].tolist()
    if peers is None:
        runs = _received(comm, own_run, bounds, buffers[1])
    else:
        runs = [run.part(*end) for run, end in zip(peers, ends, strict=True)]
    for level in range(levels):
        runs = _merged_pairs(runs, buffers[level % 2])


def _received(
    comm: Communicator, own_run: SortedRun, bounds: Counts, into: SortedRun
) -> list[SortedRun]:
    """Receive the parts of all workers' runs that belong to this worker, consecutively in
    `into`."""
    rank, sends, receives, runs, start = comm.rank, [], [], [], 0
    for peer in range(comm.size):
        first, last = bounds[peer, rank : rank + 2].tolist()
        runs.append(into.part(start, start + last - first))
        start += last - first
        part = own_run.part(*bounds[rank, peer : peer + 2].tolist())
        sends += [(peer, _signed(array)) for array in part.arrays()]
        receives += [(peer, _signed(array)) for array in runs[-1].arrays()]
    comm.exchange(sends, receives)
    return runs


def _signed(array: Keys) -> torch.Tensor:
    return torch.from_numpy(array.view(f"i{array.itemsize}"))


def _merged_pairs(runs: Sequence[SortedRun], into: SortedRun) -> list[SortedRun]:
    """Merge consecutive pairs of runs, in order."""
    merged, start = [], 0
    for i in range(0, len(runs), 2):
        pair = runs[i : i + 2]
        target = into.part(start, start + sum(len(run.keys) for run in pair))
        start += len(target.keys)
        if len(pair) == 1:
            for source, copy in zip(pair[0].arrays(), target.arrays(), strict=True):
                copy[:] = source
        else:
            _merge(pair[0], pair[1], target)
        merged.append(target)
    return merged


_SOURCE = '''
def merge(a: {T}[1], a_count: int64, b: {T}[1], b_count: int64, out: {T}[1]):
    """Two sorted arrays into one, from both ends at once: the processor works on the one while it
    waits for the other's comparison."""
    i = 0
    j = 0
    first = 0
    p = a_count - 1
    q = b_count - 1
    last = a_count + b_count - 1
    while i < p and j < q:
        x = a[i]
        y = b[j]
        behind = y < x
        out[first] = y if behind else x
        j = j + int64(behind)
        i = i + 1 - int64(behind)
        first = first + 1
        x = a[p]
        y = b[q]
        behind = y < x
        out[last] = x if behind else y
        p = p - int64(behind)
        q = q - 1 + int64(behind)
        last = last - 1
    while first <= last:
        second = i > p
        if i <= p and j <= q:
            second = b[j] < a[i]
        if second:
            out[first] = b[j]
            j = j + 1
        else:
            out[first] = a[i]
            i = i + 1
        first = first + 1

def merge_positions(
    a: {T}[1], of_a: uint64[1], a_count: int64, b: {T}[1], of_b: uint64[1], b_count: int64,
    out: {T}[1], positions: uint64[1]
):
    i = 0
    j = 0
    for k in range(a_count + b_count):
        second = i == a_count
        if i < a_count and j < b_count:
            second = b[j] < a[i]
        if second:
            out[k] = b[j]
            positions[k] = of_b[j]
            j = j + 1
        else:
            out[k] = a[i]
            positions[k] = of_a[i]
            i = i + 1
'''


@cache
def _code(key: str) -> AotModule:
    return AotModule(_SOURCE.format(T=key), ["merge", "merge_positions"])


def _merge(a: SortedRun, b: SortedRun, out: SortedRun) -> None:
    """Merge two sorted runs into one, stably."""
    assert all(array.flags.c_contiguous for run in (a, b, out) for array in run.arrays())
    code = _code(out.keys.dtype.name)
    x, y, z = (run.keys.ctypes.data for run in (a, b, out))
    a_count, b_count = len(a.keys), len(b.keys)
    if a.positions is None or b.positions is None or out.positions is None:
        code.function("merge")(x, a_count, y, b_count, z)
        return
    of_a, of_b, positions = (part.ctypes.data for part in (a.positions, b.positions, out.positions))
    code.function("merge_positions")(x, of_a, a_count, y, of_b, b_count, z, positions)


# the kernels --------------------------------------------------------------------------------------


@final
class SortWorkspaces:
    """The workspaces of the workers, as arrays of keys.

    cuts    the boundaries of the workers' parts in the sorted array
    memory  the workspace of each worker; None for those that this worker cannot read
    """

    def __init__(
        self, memory: Sequence[torch.Tensor | None], rank: int, cuts: Sequence[int], key: Any
    ) -> None:
        self._memory, self._rank, self._key = memory, rank, np.dtype(key)
        self._sizes = [stop - start for start, stop in pairwise(cuts)]

    def array(self, number: int, rank: int | None = None) -> Keys:
        """Return the `number`-th array of a worker, by default of this one."""
        rank = self._rank if rank is None else rank
        memory, size = self._memory[rank], self._sizes[rank] * self._key.itemsize
        assert memory is not None
        start = number * round_to_cache_lines(max(self._sizes) * self._key.itemsize)
        array: Keys = memory[start : start + size].numpy().view(self._key)
        return array

    def runs(self, keys: int, positions: int | None) -> list[SortedRun] | None:
        """Return the runs of all workers in the arrays with these numbers; None if this worker
        cannot read them all."""
        if any(memory is None for memory in self._memory):
            return None
        return [
            SortedRun(self.array(keys, r), None if positions is None else self.array(positions, r))
            for r in range(len(self._memory))
        ]


def sort(
    comm: Communicator, memory: Sequence[torch.Tensor | None], cuts: Sequence[int],
    x: torch.Tensor, out: torch.Tensor, *, descending: bool,
) -> None:  # fmt: skip
    """Fill this worker's part of a 1-D result, divided at `cuts`, with the sorted numbers of all
    workers. Collective."""
    code = KeyCode(x.dtype, descending)
    workspaces = SortWorkspaces(memory, comm.rank, cuts, code.key)
    keys, spare, target = workspaces.array(0), workspaces.array(1), bits_of(out)
    code.encode(bits_of(x), keys)
    sort_keys(keys)
    merge_runs(
        comm,
        SortedRun(keys, None),
        workspaces.runs(0, None),
        cuts,
        SortedRun(target, None),
        SortedRun(spare, None),
    )
    code.decode(target, target)


def argsort(
    comm: Communicator, memory: Sequence[torch.Tensor | None], cuts: Sequence[int],
    x: torch.Tensor, out: torch.Tensor, *, descending: bool,
) -> None:  # fmt: skip
    """Fill this worker's part of a 1-D int64 result, divided at `cuts`, with the positions that
    sort x stably. Collective."""
    code = KeyCode(x.dtype, descending, zeros_differ=False)
    workspaces = SortWorkspaces(memory, comm.rank, cuts, np.uint64)
    first, target = cuts[comm.rank], bits_of(out)
    if are_positions_packed(code.key.itemsize, cuts[-1]):
        packed = workspaces.array(0)
        code.pack(bits_of(x), first, packed)
        sort_keys(packed)
        spare = SortedRun(workspaces.array(1), None)
        merge_runs(
            comm,
            SortedRun(packed, None),
            workspaces.runs(0, None),
            cuts,
            SortedRun(target, None),
            spare,
        )
        target &= np.uint64(MAX_POSITIONS - 1)
        return
    own_run, out_keys = SortedRun(workspaces.array(0), workspaces.array(1)), workspaces.array(2)
    keys = np.empty(len(out_keys), code.key)
    code.encode(bits_of(x), keys)
    positions = own_run.positions
    assert positions is not None
    order_keys(keys, positions)
    np.take(keys.astype(np.uint64, copy=False), positions.view(np.int64), out=own_run.keys)
    positions += np.uint64(first)
    spare = SortedRun(workspaces.array(3), workspaces.array(4))
    merge_runs(comm, own_run, workspaces.runs(0, 1), cuts, SortedRun(out_keys, target), spare)
