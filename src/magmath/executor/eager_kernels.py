"""The kernels of eager arrays and eager programs: they compute single nodes on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch

from magmath.comm.local_group import LocalGroup
from magmath.executor.context import Context
from magmath.executor.error_context import attach_user_line
from magmath.executor.numpy_fast_path import context_without_fp_warnings
from magmath.executor.prepared_kernels import PreparedKernel, call_kernel, prepared_kernel
from magmath.graph import Node
from magmath.memory.chunk_sources import PrivateSource
from magmath.memory.heap import Heap, View


@final
class EagerKernels:
    """The computation of single nodes in this process, on NumPy arrays, by the algorithms that a
    pool allows its workers."""

    def __init__(self, winograd: bool, workspace_limit: int) -> None:
        cpu = torch.device("cpu")
        self._context = Context(
            LocalGroup(1).communicator(0),
            Heap(PrivateSource(cpu)),
            cpu,
            winograd=winograd,
            workspace_limit=workspace_limit,
        )

    def value_of(
        self, node: Node, operands: Sequence[np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any]:
        """Return the value of a node of a type that NumPy has, in new memory.

        `operands` are the values of its inputs. An error carries the line that built the node.
        """
        prepared = prepared_kernel(node)
        out = np.empty(node.shape, prepared.type)
        run: Any = context_without_fp_warnings().run
        try:
            if prepared.function is not None:
                run(prepared.function, *operands, out)
            else:
                run(self._call, node, prepared, operands, out)
        except Exception as error:
            attach_user_line(error, node)
            raise
        return out

    def has_function(self, node: Node) -> bool:
        """Return True if NumPy's function computes a node."""
        return prepared_kernel(node).function is not None

    def function_of(self, node: Node) -> tuple[Callable[..., Any], bool]:
        """Return the function that computes a node's value from those of its inputs, and True if it
        returns a new array; otherwise its last argument is the memory for the result."""
        prepared = prepared_kernel(node)
        if prepared.function is not None:
            return prepared.function, prepared.allocates
        return (lambda *values: self._call(node, prepared, values[:-1], values[-1])), False

    def _call(
        self,
        node: Node,
        prepared: PreparedKernel,
        operands: Sequence[np.ndarray[Any, Any]],
        out: np.ndarray[Any, Any],
    ) -> None:
        if node.operation.memory_orders is None:  # the kernel reads rows
            operands = [np.asarray(value, order="C") for value in operands]
        views = {x: View(value) for x, value in zip(node.inputs, operands, strict=True)}
        views[node] = View(out)
        call_kernel(node, prepared.whole, views, self._context)
