"""The interpreter of a worker: computes nodes one kernel after the other, without a program.

It serves expressions of small arrays on the single worker of this process (`Interpreter` in
`engine/evaluation/interpreter.py` chooses them). Memory is reused as soon as its last reader has
run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from magmath.executor.context import Context
from magmath.executor.error_context import attach_user_line
from magmath.executor.numpy_fast_path import context_without_fp_warnings
from magmath.executor.prepared_kernels import (
    WholeTile,
    call_kernel,
    number_view,
    prepared_kernel,
)
from magmath.graph import Node
from magmath.memory.heap import View
from magmath.memory.local_array import LocalArray
from magmath.ops.leaves import NUMBERS

_Value = tuple[LocalArray, list[LocalArray]]
"""The value of a node, and the free list to which its memory returns. No class, since each node
makes one."""


def interpret(
    context: Context,
    order: Sequence[Node],
    requested: Sequence[Node],
    views: dict[Node, View],
) -> list[LocalArray]:
    """Return the values of `requested`, in new memory, computed by the nodes in `order`, each after
    its inputs.

    `views` contains the arrays of the leaves and of the known nodes; the function adds all others.
    An error carries the user's line that built the failing node, and all memory is freed then.
    """
    values: dict[Node, _Value] = {}
    free: defaultdict[WholeTile, list[LocalArray]] = defaultdict(list)
    try:
        context_without_fp_warnings().run(_compute, context, order, requested, views, values, free)
    except BaseException:
        _release([array for array, _ in values.values()], context)
        raise
    finally:
        for arrays in free.values():
            _release(arrays, context)
    return [values[node][0] for node in requested]


def _release(arrays: Iterable[LocalArray], context: Context) -> None:
    for array in arrays:
        array.free(context.heap)


def _compute(
    context: Context,
    order: Sequence[Node],
    requested: Sequence[Node],
    views: dict[Node, View],
    values: dict[Node, _Value],
    free: defaultdict[WholeTile, list[LocalArray]],
) -> None:
    """Compute all nodes. `values` gets those with pending readers, `free` memory for reuse."""
    pending, last_reader = _pending_nodes(order, requested, views)
    on_cpu = context.device.type == "cpu"
    for node in pending:
        inputs = node.inputs
        try:
            if not inputs and node.operation in NUMBERS:
                views[node] = number_view(node)
                continue
            prepared = prepared_kernel(node)
            whole, function = prepared.whole, prepared.function
            free_list = free[whole]
            out = free_list.pop() if free_list else whole.spec.allocate(context.heap)
            if context.heap.should_fill:
                context.heap.fill(out.block)
            values[node] = out, free_list
            views[node] = view = out.view
            if function is None or not on_cpu:
                call_kernel(node, whole, views, context)
            elif len(inputs) == 2:
                x, y = inputs
                function(views[x].array, views[y].array, view.array)
            else:
                function(*[views[x].array for x in inputs], view.array)
        except Exception as error:
            attach_user_line(error, node)
            raise
        for source in inputs:
            if last_reader.get(source) is node and source in values:
                array, free_list = values.pop(source)
                free_list.append(array)


def _pending_nodes(
    order: Sequence[Node], requested: Sequence[Node], views: dict[Node, View]
) -> tuple[list[Node], dict[Node, Node]]:
    """Return the nodes to compute, and the last reader of each node that is not requested."""
    pending: list[Node] = []
    last_reader: dict[Node, Node] = {}
    for node in order:
        if node not in views:
            pending.append(node)
            for source in node.inputs:
                last_reader[source] = node
    for node in requested:
        last_reader.pop(node, None)
    return pending, last_reader
