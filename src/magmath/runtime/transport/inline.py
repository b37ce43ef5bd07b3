"""The inline worker, in the controller's process: commands are method calls.

The default, `workers=0`. Nothing is encoded or copied, and exceptions propagate directly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch

from magmath.comm.local_group import LocalGroup
from magmath.core.dtypes import DType
from magmath.core.type_aliases import Number
from magmath.kernels.thread_count import (
    BlasThreads,
    processor_limit,
    restore_running,
    set_threads,
)
from magmath.layout import Layout
from magmath.memory.local_array import LocalArray
from magmath.runtime.executable_program import LoadProgram, load_program
from magmath.runtime.failures import add_user_line
from magmath.runtime.messages import Command, Hello, Interrupt, LongCommand, Progress
from magmath.runtime.transport_interface import (
    Expression,
    HandleReply,
    Payload,
    Transport,
    WorkerOptions,
)
from magmath.runtime.worker import Worker


@final
class InlineTransport(Transport):
    """One worker, called directly."""

    is_inline = True

    def __init__(self, options: WorkerOptions, load: LoadProgram = load_program) -> None:
        super().__init__(1)
        self.options = options
        self._load = load
        self._worker: Worker | None = None
        self._own_threads = 0
        """The threads of torch before `start`."""
        self._own_blas_threads: BlasThreads | None = None
        """Those of every BLAS if `start` has changed them."""

    def start(self, handle_reply: HandleReply) -> list[Hello]:
        self._handle_reply = handle_reply
        try:
            if count := self.options.threads or processor_limit():
                self._own_threads = torch.get_num_threads()
                self._own_blas_threads = BlasThreads()
                set_threads(count)
            self._worker = Worker(LocalGroup(1).communicator(0), self.options, self._load)
            self._worker.poll = self._poll
            self._worker.is_abandoned = lambda: self.is_interrupted()
            return [self._worker.hello()]
        except BaseException:  # of the worker, or Ctrl-C
            self.close(force=True)
            raise

    def send(
        self, command: Command, ranks: Sequence[int], payloads: Sequence[Payload] = ()
    ) -> None:
        self.traffic.messages += 1
        if self._worker is None or isinstance(command, Interrupt):  # `_poll` looks at these itself
            return
        try:
            reply = self._worker.handle(command, payloads[0] if payloads else None)
        except Exception as error:
            add_user_line(error)
            raise
        if reply is not None:
            self._handle_reply(0, *reply)

    def compute(
        self,
        order: Sequence[Expression],
        requested: Sequence[Expression],
        array_ids: Mapping[Expression, int],
        outputs: Sequence[int],
        released: Sequence[int],
    ) -> list[LocalArray]:
        self.traffic.messages += 1
        assert self._worker is not None
        try:
            return self._worker.compute(order, requested, array_ids, outputs, released)
        except Exception as error:
            add_user_line(error)
            raise

    def run(
        self,
        program_id: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        scalars: Sequence[Number],
        released: Sequence[int],
    ) -> list[float]:
        self.traffic.messages += 1
        assert self._worker is not None
        try:
            self._worker.drop(released)
            return self._worker.run(program_id, inputs, outputs, scalars)
        except Exception as error:
            add_user_line(error)
            raise

    def store(
        self, array_id: int, values: np.ndarray[Any, Any], layout: Layout, dtype: DType
    ) -> None:
        self.traffic.messages += 1
        assert self._worker is not None
        self._worker.store(array_id, values, layout, dtype)

    def get(self, array_id: int) -> LocalArray:
        self.traffic.messages += 1
        assert self._worker is not None
        return self._worker.arrays.get(array_id)

    def prepare_run(
        self, program_id: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> Callable[[Sequence[Number]], object]:
        assert self._worker is not None
        return self._worker.prepare_run(program_id, inputs, outputs)

    def pump(self, seconds: float) -> None:
        """Do nothing: `send` has delivered every reply."""

    def close(self, *, force: bool) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        restore_running()
        if self._own_blas_threads is not None:
            torch.set_num_threads(self._own_threads)
            self._own_blas_threads.restore()
            self._own_blas_threads = None

    def _poll(self, command: LongCommand, steps: int, values: list[float]) -> bool:
        return self._handle_reply(0, Progress(command.ticket, steps, values), None)
