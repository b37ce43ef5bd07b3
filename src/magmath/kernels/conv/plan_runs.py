"""Runs of convolution plans: native functions of a convolution, called on all threads in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.core.cpu import PAGE
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.frozen_filters import FrozenFilters
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.thread_workspace import thread_workspace


class ConvolutionPlan(ABC):
    """The division of a convolution for native functions."""

    threads: int
    shared_bytes: int
    """Bytes of the converted filters, which all threads read."""
    _slot_bytes: int
    """Bytes of the workspace of a thread."""
    address: int
    """The address of the record that the functions read."""

    @property
    def nbytes(self) -> int:
        """The bytes of workspace, the converted filters included."""
        return self.shared_bytes + self.threads * self._slot_bytes + PAGE

    @abstractmethod
    def start(self, memory: int, filters: int | None = None) -> None:
        """Set the addresses of the workspace and of the converted filters, which may have their own
        memory, and all counters to 0."""


def run_plan(
    plan: ConvolutionPlan, functions: Sequence[int], filters: torch.Tensor | None = None
) -> None:
    """Run functions of a plan, with converted filters in their own memory or the workspace."""
    memory = thread_workspace(plan.nbytes - (0 if filters is None else plan.shared_bytes))
    plan.start(memory.data_ptr(), None if filters is None else filters.data_ptr())
    threads = min(plan.threads, torch.get_num_threads())  # 1 in a process that was forked since
    for function in functions:
        run_on_threads(function, plan.address, threads)


def frozen_call(
    plan: ConvolutionPlan,
    filters: FrozenFilters,
    content_id: torch.Tensor,
    convert: int,
    correlate: int,
) -> BoundCall:
    """Return a call that converts the filters only if their content id has changed."""

    def converted() -> torch.Tensor:
        memory = torch.from_numpy(np.empty(plan.shared_bytes + PAGE, np.uint8))  # huge pages
        run_plan(plan, [convert], memory)
        return memory

    return lambda: run_plan(plan, [correlate], filters.update(content_id, converted))


def job_record(names: Sequence[str], values: Mapping[str, int]) -> NDArray[np.int64]:
    """Return the record that native functions read, with 0 for names without a value."""
    assert values.keys() <= set(names), "the record has these fields"
    return np.array([values.get(name, 0) for name in names], np.int64)
