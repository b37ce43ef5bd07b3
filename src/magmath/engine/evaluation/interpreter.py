"""The interpreter: the worker of this process computes an expression of small nodes one after the
other, by their kernels, without a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from magmath.engine.remote_array import RemoteArray, no_value_error, remote_array_of
from magmath.graph import Node
from magmath.ops.leaves import CONSTANT, SCALAR, VARIABLE
from magmath.ops.redistribute import REDISTRIBUTE

if TYPE_CHECKING:
    from magmath.engine.programs.program_runs import ProgramRuns


@final
class Interpreter:
    """The interpreter of one pool, if its only worker is in this process.

    max_bytes  the size of the largest arrays that it computes (`Engine.small_sizes`)
    """

    def __init__(self, runs: ProgramRuns, *, deterministic: bool) -> None:
        self._runs = runs
        self._pool = pool = runs.pool
        self._can_interpret = pool.is_inline and not deterministic
        self.max_bytes = 0

    @property
    def _is_possible(self) -> bool:
        """True if small nodes may be computed without a program, which a profiler could observe."""
        return self._can_interpret and self._runs.profiler is None

    def can_compute(self, node: Node) -> bool:
        """Return True if the worker computes a node of this size without a program."""
        return self._is_possible and node.nbytes <= self.max_bytes

    def array_ids_of_operands(
        self, order: Sequence[Node], requested: Sequence[Node]
    ) -> dict[Node, int] | None:
        """Return the array ids of leaves and evaluated nodes if the nodes are interpreted.

        Returns None if a program computes them. The interpreter needs the worker of this process
        and small arrays, each whole on that worker. Raises TracingError for an argument of a
        function that is being traced.
        """
        pool, max_bytes = self._pool, self.max_bytes
        small = self._is_possible
        small &= not any(node.operation.is_leaf or node.operation is CONSTANT for node in requested)
        array_ids: dict[Node, int] = {}
        for node in order:
            operation, value = node.operation, node.value
            if operation is SCALAR or operation is VARIABLE:
                if value is None or operation is VARIABLE:
                    raise no_value_error()
            elif not small:
                continue
            elif value is not None or operation.is_leaf:
                data = remote_array_of(node)
                small = data.layout.is_whole_on_first_worker and data.nbytes <= max_bytes
                array_ids[node] = (
                    data.array_id if data.pool is pool else self._runs.checked(data).array_id
                )
            else:
                small = node.nbytes <= max_bytes and operation is not REDISTRIBUTE
        return array_ids if small else None

    def execute(
        self, order: Sequence[Node], requested: Sequence[Node], array_ids: dict[Node, int]
    ) -> list[RemoteArray]:
        """Return the data of requested nodes, given the array ids of their operands."""
        different = list(dict.fromkeys(requested))  # a mark and its value are the same node now
        outputs = self._pool.compute(order, different, array_ids)
        self._runs.pending_memory.count_bytes(self.max_bytes * len(different))  # at most
        arrays = [
            RemoteArray(self._pool, array_id, node.shape, node.dtype, layout)
            for node, (array_id, layout) in zip(different, outputs, strict=True)
        ]
        if len(different) < len(requested):
            data = dict(zip(different, arrays, strict=True))
            arrays = [data[node] for node in requested]
        if self._pool.interrupts.count:
            self._pool.interrupt_point()
        return arrays
