"""Measurement of the calls of a program on one worker that waits for no other.

The simulator needs the seconds of each call without waiting for other workers and without their
competition for processors and memory, which it models itself. The calls are those that a worker of
a pool binds: kernels that the tuner has chosen, and native segments if a compiler has finished
them. Operands have arbitrary valid values.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import torch

from magmath.comm.isolated_communicator import IsolatedCommunicator
from magmath.core.type_aliases import BoundCall
from magmath.executor.bind import Binding, bind
from magmath.executor.call_list import CallList
from magmath.executor.call_times import CallTime, CallTimes
from magmath.executor.context import Context
from magmath.executor.native import write_segments
from magmath.executor.native_segments import NativeSegments
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.kernels.denormals import flushed
from magmath.kernels.thread_count import max_threads, threads_of_kernels
from magmath.memory.chunk_sources import PrivateSource, SharedWindowSource
from magmath.memory.heap import Heap
from magmath.memory.local_array import LocalArray, tile_tensor
from magmath.memory.torch_dtypes import to_torch
from magmath.program.arena import arrange
from magmath.program.instructions import Call, Instruction, Program

ROUNDS: Final = 5
"""Minimum number of rounds; the one of median length counts, as in a run of many steps."""
ROUND_SECONDS: Final = 0.3
"""Seconds within which further rounds begin."""
COMPILE_SECONDS: Final = 20.0
"""Maximum seconds of waiting for the compiler of segments."""
VALUES: Final = (0.05, 0.45)
"""The range of the elements of floating point operands, which are random, as those of training are:
kernels with branches, such as max pooling, take longer than for equal elements."""
NUMBER: Final = 2.0**-20
"""Floating point scalars, such as a learning rate: kernels skip work for a factor of 0, and
operands that grow in each round would overflow."""


def isolated_times(
    program: Program,
    rank: int,
    *,
    shares_memory: bool,
    threads: int,
    rounds: int = ROUNDS,
    compiled: bool = True,
) -> dict[str, CallTimes]:
    """Return the times of the calls of worker `rank` of a program, for each form in which it runs.

    "replay" has a time for each instruction, "segments" one for each native segment and for each
    instruction outside of them. Waits of barriers and messages take no time; the calls of
    collective kernels and of messages are left out.
    """
    with (
        threads_of_kernels(min(threads, max_threads())),
        flushed() if program.flushes_denormals else nullcontext(),
    ):
        return _measured(program, rank, shares_memory, rounds, compiled)


def _measured(
    program: Program, rank: int, shares_memory: bool, rounds: int, compiled: bool
) -> dict[str, CallTimes]:
    binding, counters = _binding(program, rank, shares_memory)
    local = frozenset([i for i, x in enumerate(program.instructions) if _is_local(x)])
    times = {"replay": _timed(binding, binding.step, {}, local, rounds, counters)}
    segments = _segments(binding) if compiled else None
    if segments is not None:
        calls = segments.bind(binding.tensors)
        step = binding.with_segments(calls)
        times["segments"] = _timed(binding, step, calls, local, rounds, counters)
        segments.close()
    return times


def _is_local(instruction: Instruction) -> bool:
    """Return True for an instruction that waits for no other worker's call."""
    return not isinstance(instruction, Call) or instruction.workspace is None


def _binding(
    program: Program, rank: int, shares_memory: bool
) -> tuple[Binding, list[torch.Tensor]]:
    """Return the program with arrays of its own, and those among them that count its runs: integers
    that each run updates, such as the step of a loop."""
    comm = IsolatedCommunicator(rank, program.workers, shares_memory)
    device = torch.device("cpu")
    shared = shares_memory and program.workers > 1
    heap = Heap(
        SharedWindowSource(comm) if shared else PrivateSource(device, rank, program.workers)
    )
    context = Context(comm, heap, device)
    inputs = [_operand(program, slot, heap, rank, shared) for slot in program.inputs]
    outputs = [
        inputs[program.donated[position]]
        if position in program.donated
        else _operand(program, slot, heap, rank, shared)
        for position, slot in enumerate(program.outputs)
    ]
    arena = arrange(program)
    block = heap.allocate(arena.nbytes, "the temporaries of a program")
    dtypes = {slot: program.slots[slot].dtype for slot in program.scalars}
    scalars = {
        slot: torch.tensor(NUMBER if dtype.is_floating else 0, dtype=to_torch(dtype))
        for slot, dtype in dtypes.items()
    }
    counters = [
        tile_tensor(heap, inputs[position].block, slot.layout, slot.dtype, rank)
        for position in {*program.donated.values()}
        if not (slot := program.slots[program.inputs[position]]).dtype.is_floating
    ]
    return bind(program, context, inputs, outputs, scalars, block, arena.offsets), counters


def _operand(program: Program, index: int, heap: Heap, rank: int, shared: bool) -> LocalArray:
    """Allocate an array, with valid values in the memory of all workers."""
    slot = program.slots[index]
    stored = LocalArray.allocate(heap, slot.layout, slot.dtype, rank)
    random = torch.Generator().manual_seed(index)
    for worker in range(program.workers) if shared else (rank,):
        tile = tile_tensor(heap, stored.block, slot.layout, slot.dtype, worker)
        if slot.dtype.is_floating:
            tile.uniform_(*VALUES, generator=random)
        else:
            tile.zero_()
    return stored


def _segments(binding: Binding) -> NativeSegments | None:
    """Return the native segments of a binding; None if it has none, or the compiler fails."""
    source = write_segments(binding.tensors.program, binding.tensors, exact=False)
    if source is None:
        return None
    segments = NativeSegments(source, exact=False)
    end = time.perf_counter() + COMPILE_SECONDS
    while not segments.is_ready():
        if segments.error() or time.perf_counter() > end:
            segments.close()
            return None
        time.sleep(0.01)
    return segments


def _timed(
    binding: Binding,
    calls: CallList,
    segments: Mapping[range, BoundCall],
    requested: Collection[int],
    rounds: int,
    counters: Sequence[torch.Tensor],
) -> CallTimes:
    """Return the times of the requested instructions in the round of median length, after one to
    warm up. Each round is a first run by the counters."""
    segment_at = {position: segment for segment in segments for position in segment}
    count = len(binding.tensors.program.instructions)
    measured: list[list[float]] = []
    prologue, step = binding.prologue.calls_at(requested), calls.calls_at(requested)
    without_fp_warnings(_add_seconds, prologue, [0.0] * count)
    end = time.perf_counter() + ROUND_SECONDS
    while len(measured) <= rounds or time.perf_counter() < end:
        measured.append([0.0] * count)
        for counter in counters:
            counter.zero_()
        without_fp_warnings(_add_seconds, step, measured[-1])
    usual = sorted(measured[1:], key=sum)[(len(measured) - 1) // 2]
    times: CallTimes = []
    for position in range(binding.tensors.program.prologue, count):
        segment = segment_at.get(position, range(position, position + 1))
        if position == segment[-1]:
            times.append(CallTime(segment, usual[position]))
    return times


def _add_seconds(calls: Sequence[tuple[int, BoundCall]], seconds: list[float]) -> None:
    """Make calls, and add the seconds of each to the entry of its position."""
    for position, call in calls:
        start = time.perf_counter()
        call()
        seconds[position] += time.perf_counter() - start
