"""Eager programs: operations on small arrays in this process, one call each, prepared once.

A program of the workers is bound to the memory of its operands, which takes longer than to compute
a few kilobytes, and a worker process must also be sent a message. An eager program reads NumPy
arrays wherever they are, and makes new ones. It is a Python function without loops, in which each
operation is a line: the interpretation of a list of calls would take as long as the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import numpy as np

from magmath.executor.eager_kernels import EagerKernels
from magmath.executor.error_context import attach_user_line
from magmath.executor.numpy_fast_path import context_without_fp_warnings
from magmath.executor.prepared_kernels import number_array
from magmath.graph import Node
from magmath.memory.torch_dtypes import NUMPY
from magmath.ops.leaves import CONSTANT, SCALAR

EagerValues = Sequence[np.ndarray[Any, Any]]


@final
class EagerProgram:
    """The calls that compute some outputs.

    order     the nodes that the outputs need, each after its inputs
    arrays    the leaves whose values each run receives
    numbers   the same for numbers
    """

    def __init__(
        self,
        kernels: EagerKernels,
        order: Sequence[Node],
        arrays: Sequence[Node],
        numbers: Sequence[Node],
        outputs: Sequence[Node],
    ) -> None:
        leaves = (*arrays, *numbers)  # of which some may be read by none of the nodes
        name = {node: f"x{i}" for i, node in enumerate(dict.fromkeys((*leaves, *order)))}
        received = {*leaves}
        self._nodes: list[Node] = []
        self._names: dict[str, Any] = {"empty": np.empty, "array": np.array}
        lines = [f"def program({', '.join(name[x] for x in leaves)}):"]
        if numbers:
            self._names.update({f"type_{name[x]}": NUMPY[x.dtype] for x in numbers})
            converted = [f"{name[x]} = array({name[x]}, type_{name[x]})" for x in numbers]
            lines.append(f"    {'; '.join(converted)}")
        self._first_line = len(lines) + 1
        memory = _ReusedMemory(order, outputs)
        for node in order:
            if node in received:
                continue
            if node.operation is CONSTANT or node.operation is SCALAR:
                self._names[name[node]] = number_array(node)
                continue
            constant = self._constant(kernels, node, name)
            if constant is not None:
                self._names[name[node]] = constant
                continue
            lines.append(self._line(kernels, node, name, memory))
            self._nodes.append(node)
        lines.append(f"    return {', '.join(name[x] for x in outputs)}{',' * (len(outputs) == 1)}")
        exec("\n".join(lines), self._names)
        self._program: Callable[..., tuple[np.ndarray[Any, Any], ...]] = self._names["program"]
        self._copied = _copied(outputs, self._nodes)

    def _constant(
        self, kernels: EagerKernels, node: Node, name: dict[Node, str]
    ) -> np.ndarray[Any, Any] | None:
        """Return the value of a node that is computed from constants alone; None for others, and if
        that fails, as each run then does."""
        names = [name[x] for x in node.inputs]
        if node.operation.is_random or not all(x in self._names for x in names):
            return None
        try:
            return kernels.value_of(node, [self._names[x] for x in names])
        except Exception:
            return None

    def _line(
        self,
        kernels: EagerKernels,
        node: Node,
        name: dict[Node, str],
        memory: _ReusedMemory,
    ) -> str:
        """Return the line that computes a node, in the memory of an earlier value if possible."""
        target, sources = name[node], [name[x] for x in node.inputs]
        function, allocates = kernels.function_of(node)
        self._names[f"f_{target}"] = function
        former = memory.take(node, overwrites_inputs=allocates)
        if former is None and allocates:
            return f"    {target} = f_{target}({', '.join(sources)})"
        if former is not None:
            allocation = f"{target} = {name[former]}"
        else:
            self._names[f"shape_{target}"] = node.shape
            self._names[f"type_{target}"] = NUMPY[node.dtype]
            allocation = f"{target} = empty(shape_{target}, type_{target})"
        return f"    {allocation}; f_{target}({', '.join([*sources, target])})"

    def run(self, arrays: EagerValues, numbers: Sequence[Any]) -> Sequence[np.ndarray[Any, Any]]:
        """Return the outputs, in new memory, for these values of the leaves.

        An error of an operation carries the line that built its node.
        """
        run: Any = context_without_fp_warnings().run
        try:
            if numbers:
                results: Any = run(self._program, *arrays, *numbers)
            elif len(arrays) == 1:  # a starred call takes as long as a short sum
                results = run(self._program, arrays[0])
            else:
                results = run(self._program, *arrays)
        except Exception as error:
            attach_user_line(error, self._failed(error))
            raise
        if self._copied:
            results = [x.copy() if i in self._copied else x for i, x in enumerate(results)]
        return results  # type: ignore[no-any-return]

    def _failed(self, error: Exception) -> Node | None:
        """Return the node whose line has raised an error; None if none has, such as for a number
        that its type does not represent."""
        code, traceback = self._program.__code__, error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code is not code:
            traceback = traceback.tb_next
        position = -1 if traceback is None else traceback.tb_lineno - self._first_line
        return self._nodes[position] if 0 <= position < len(self._nodes) else None


@final
class _ReusedMemory:
    """The memory of intermediate values that no later line reads.

    So `std` needs one array as large as its operand, as in NumPy. New pages for each value may
    take longer than the arithmetic.
    """

    def __init__(self, order: Sequence[Node], outputs: Sequence[Node]) -> None:
        self._last = {x: node for node in order for x in node.inputs}
        """The last reader of each node."""
        self._outputs = {*outputs}
        self._computed: set[Node] = set()
        self._free: list[Node] = []

    def take(self, node: Node, *, overwrites_inputs: bool) -> Node | None:
        """Return an earlier node in whose memory the next one is computed, or None.

        `overwrites_inputs`: its function may write the result into the memory of an operand.
        """
        last = [x for x in dict.fromkeys(node.inputs) if self._is_read_last_by(x, node)]
        choices = [*last, *self._free] if overwrites_inputs else self._free
        spec = node.shape, node.dtype
        former = next((x for x in choices if (x.shape, x.dtype) == spec), None)
        self._free = [x for x in (*self._free, *last) if x is not former]
        self._computed.add(node)
        return former

    def _is_read_last_by(self, x: Node, node: Node) -> bool:
        return x in self._computed and x not in self._outputs and self._last[x] is node


def _copied(outputs: Sequence[Node], computed: Collection[Node]) -> list[int]:
    """Return the numbers of the outputs that are no new arrays, or the same as an earlier one."""
    return [i for i, x in enumerate(outputs) if x not in computed or x in outputs[:i]]
