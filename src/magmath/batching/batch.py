"""Batching, from graph to graph: converts an expression of one example to that of a whole batch.

The batch is the first dimension of all values that differ between examples; all other values are
computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import final

from magmath.batching.custom_call import batched_call
from magmath.batching.loop import batched_loop, batched_scan
from magmath.batching.masked_examples import values_of_needed_examples
from magmath.batching.operand import BatchOperand, BatchOperands
from magmath.batching.rules import drawn, of_batch
from magmath.graph import Node
from magmath.graph.graph import topological_until
from magmath.ops.counted_loops import SCAN
from magmath.ops.custom_gradients import CUSTOM_CALL
from magmath.ops.loop_results import LOOP_RESULT
from magmath.ops.predication import BRANCH, BRANCH_RESULT, branch, branch_result
from magmath.ops.reductions import reduce
from magmath.ops.while_loops import WHILE


def batched(
    outputs: Sequence[Node], arguments: Mapping[Node, Node], drawn: Collection[Node], size: int
) -> list[BatchOperand]:
    """Return the outputs for a batch of `size` examples; `arguments` maps nodes of one example to
    those of the batch.

    `drawn` are the nodes that number streams of random numbers, from which every example draws its
    own.
    """
    new = {node: BatchOperand(batch, True, size) for node, batch in arguments.items()}
    return _results(outputs, new, drawn, size)


def _results(
    outputs: Sequence[Node], new: Mapping[Node, BatchOperand], drawn: Collection[Node], size: int
) -> list[BatchOperand]:
    return _Batch(dict(new), set(drawn), size).results(outputs)


@final
class _Batch:
    """The nodes of one example and those of the batch.

    `streams` are the nodes that number the random streams of each example.
    """

    def __init__(self, new: dict[Node, BatchOperand], streams: set[Node], size: int) -> None:
        self._new, self._streams, self._size = new, streams, size
        self._branches: dict[Node, _Batch] = {}
        self._loops: dict[Node, list[BatchOperand]] = {}

    def results(self, outputs: Sequence[Node]) -> list[BatchOperand]:
        """Return the outputs for the batch."""
        for node in topological_until(outputs, self._new, _read):
            if node in self._new:
                continue
            self._new[node] = result = self._result(node)
            if node in self._streams:
                self._streams.add(result.node)
        return [self._new[node] for node in outputs]

    def _result(self, node: Node) -> BatchOperand:
        if node.is_leaf or node.value is not None:
            return BatchOperand(node, False, self._size)
        if node.operation is BRANCH_RESULT:
            return self._branch_result(node)
        operands = [self._new[source] for source in node.inputs]
        if node.operation is BRANCH:
            return self._branch(node, operands)
        if node.operation in (WHILE, SCAN):
            of_batch_loop = batched_loop if node.operation is WHILE else batched_scan
            self._loops[node] = of_batch_loop(node, operands, _results, self._size)
            return BatchOperand(node, False, self._size)  # nothing reads it but LOOP_RESULT
        if node.operation is LOOP_RESULT:
            index: int = node.attributes["index"]
            return self._loops[node.inputs[0]][index]
        if node.operation is CUSTOM_CALL and any(x.varies for x in operands):
            return batched_call(node, operands, _results, self._streams, self._size)
        if node.name == "recompute":
            self._streams.update([node] if node.inputs[0] in self._streams else [])
            varies = operands[0].varies
        else:
            varies = any(x.varies for x in operands) or _is_drawn(node, self._streams)
        if varies:
            own_numbers = _is_drawn(node, self._streams) and not any(x.varies for x in operands[:2])
            result = drawn(node, operands) if own_numbers else of_batch(node, operands)
            return BatchOperand(result, True, self._size)
        return BatchOperand(_with_inputs(node, operands), False, self._size)

    def _branch(self, node: Node, operands: BatchOperands) -> BatchOperand:
        """Begin a branch.

        If the predicate differs between examples, the branch is computed for all of them: the
        examples that do not take it get the operands of one that does, so that they add no nan to
        gradients by what all examples share. If none takes it, the batch does not.
        """
        predicate, *read = operands
        if predicate.varies:
            if self._size:
                read = values_of_needed_examples(read, predicate)
            predicate = BatchOperand(reduce("any", predicate.node), False, self._size)
        inside = dict(zip(node.inputs[1:], read, strict=True))
        self._branches[node] = _Batch(inside, self._streams, self._size)
        return BatchOperand(branch(predicate.node, [x.node for x in read]), False, self._size)

    def _branch_result(self, node: Node) -> BatchOperand:
        value, branch_node = node.inputs
        (result,) = self._branches[branch_node].results([value])
        marked = branch_result(result.node, self._new[branch_node].node)
        return BatchOperand(marked, result.varies, self._size)


def _read(node: Node) -> Sequence[Node]:
    """Return the inputs of a node that the batch needs; a branch computes what is inside it."""
    if node.value is not None:
        return ()
    return node.inputs[1:] if node.operation is BRANCH_RESULT else node.inputs


def _with_inputs(node: Node, operands: BatchOperands) -> Node:
    """Return the node with operands that are the same for all examples."""
    inputs = tuple([x.node for x in operands])
    same = all(x is source for x, source in zip(inputs, node.inputs, strict=True))
    return node if same else node.replace(inputs)


def _is_drawn(node: Node, streams: Collection[Node]) -> bool:
    """Return True for random numbers that differ between examples."""
    return node.operation.is_random and node.inputs[1] in streams
