"""Eager programs: operations on small arrays in this process, one call each, prepared once.

A program of the workers is bound to the memory of its operands, which takes longer than to compute
a few kilobytes, and a worker process must also be sent a message. An eager program reads NumPy
arrays wherever they are, and makes new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from magmath.executor.eager import EagerKernels, number_array
from magmath.executor.numpy_fast_path import silent
from magmath.executor.user_line import attach_user_line
from magmath.graph import Node
from magmath.memory.torch_dtypes import NUMPY
from magmath.ops.leaves import CONSTANT, SCALAR

EagerValues = Sequence[np.ndarray[Any, Any]]


@final
class _EagerInstruction(NamedTuple):
    """A call of an operation's function: the positions of operands and result, and its form."""

    function: Callable[..., object]
    sources: tuple[int, ...]
    target: int
    shape: tuple[int, ...]
    type: np.dtype[Any]
    node: Node


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
        position = {node: i for i, node in enumerate(order)}
        self._arrays = [position[x] for x in arrays]
        self._numbers = [(position[x], NUMPY[x.dtype]) for x in numbers]
        self._constants: list[Any] = [None] * len(order)
        self._steps: list[_EagerInstruction] = []
        given = {*arrays, *numbers}
        for node in order:
            if node in given:
                continue
            if node.operation is CONSTANT or node.operation is SCALAR:
                self._constants[position[node]] = number_array(node)
                continue
            sources = tuple([position[x] for x in node.inputs])
            function = kernels.function_of(node)
            self._steps.append(
                _EagerInstruction(
                    function, sources, position[node], node.shape, NUMPY[node.dtype], node
                )
            )
        self._outputs = [position[x] for x in outputs]
        self._copied = _copied(outputs, {step.node for step in self._steps})

    def run(self, arrays: EagerValues, numbers: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Return the outputs, in new memory, for these values of the leaves.

        An error carries the line that built the node.
        """
        values = self._constants.copy()
        for i, array in zip(self._arrays, arrays):  # noqa: B905  they are as many
            values[i] = array
        for (i, kind), number in zip(self._numbers, numbers):  # noqa: B905
            values[i] = np.array(number, kind)
        silent().run(self._compute, values)
        found = [values[i] for i in self._outputs]
        for i in self._copied:
            found[i] = found[i].copy()
        return found

    def _compute(self, values: list[Any]) -> None:
        empty = np.empty
        for function, sources, target, shape, kind, node in self._steps:
            values[target] = out = empty(shape, kind)
            try:
                function(*[values[i] for i in sources], out)
            except Exception as error:
                attach_user_line(error, node)
                raise


def _copied(outputs: Sequence[Node], made: Collection[Node]) -> list[int]:
    """Return the numbers of the outputs that are no new arrays, or the same as an earlier one."""
    return [i for i, x in enumerate(outputs) if x not in made or x in outputs[:i]]
