"""Buffers: decides which nodes share the buffer of others.

A redistribution in which every worker keeps a part of its own tile is a view, and so is a slice. A
gathering among workers that share memory is computed directly in the shared copy. An output with a
target is computed in the target's buffer if that is safe. An operand that is accumulated onto, or
transformed in place, is computed in the buffer of the result, or at its beginning if the result is
larger. The operands of a concatenation are computed in their parts of it, and an array that is
copied with halos in its tile of the copy. A result reuses the buffer of an operand after its last
use, if its kernel can store it there. Every other node gets its own part of the program's arena,
from its first to its last use.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import final

from magmath.core.optional_passes import IN_PLACE
from magmath.graph import Graph, Node, users_of
from magmath.graph.placed_nodes import layout_of
from magmath.passes.aliasing import can_publish, is_cross_worker, is_part, is_slice_view, is_view
from magmath.passes.schedule import ExecutionOrder
from magmath.passes.unused_buffers import UnusedBuffers, have_equal_memory


@final
@dataclass
class BufferAssignment:
    """The buffers of nodes.

    `alias[n]` is the node in whose buffer n is stored, and `start[n]` the index where n begins in
    it if n is a slice, or an operand of a concatenation. `at_beginning`: nodes that are the first
    elements of the memory of their alias, which has another shape. `peer_readable`: nodes that
    other workers read.
    `copied`: outputs that end with a copy into their target (or into an array of their own).
    """

    alias: dict[Node, Node] = field(default_factory=dict)
    start: dict[Node, tuple[int, ...]] = field(default_factory=dict)
    at_beginning: set[Node] = field(default_factory=set)
    peer_readable: set[Node] = field(default_factory=set)
    copied: set[int] = field(default_factory=set)
    _ancestor: dict[Node, Node] = field(default_factory=dict)  # shortcuts along chains of aliases

    def root(self, node: Node) -> Node:
        """Return the node that owns the memory of `node`.

        Chains of aliases may be as long as the program: each walk shortens the chains that it
        follows.
        """
        walked: list[Node] = []
        while (above := self._ancestor.get(node) or self.alias.get(node)) is not None:
            walked.append(node)
            node = above
        for below in walked[:-1]:
            self._ancestor[below] = node
        return node


def assign_buffers(
    graph: Graph, schedule: ExecutionOrder, without: Collection[str] = ()
) -> BufferAssignment:
    """Return the buffer of every node of a placed, scheduled graph."""
    buffers = BufferAssignment()
    for node in schedule.order:
        if node.name == "recompute" or _is_own_part(node):
            buffers.alias[node] = node.inputs[0]
        elif node.name == "slice" and is_slice_view(node):
            buffers.alias[node] = node.inputs[0]
            buffers.start[node] = tuple([first for first, _, _ in node.attributes["bounds"]])
    _assign_outputs(graph, schedule, buffers)
    _store_in_halo_copies(graph, schedule, buffers)
    _assign_peer_readable(schedule, buffers, set(graph.outputs))
    _store_operands_in_results(graph, schedule, buffers)
    _store_parts_in_results(graph, schedule, buffers)
    if IN_PLACE not in without:
        _reuse_operands(graph, schedule, buffers)
    return buffers


def _is_own_part(node: Node) -> bool:
    """Return True for a redistribution in which every worker keeps a part of its own tile."""
    return node.name == "redistribute" and is_view(layout_of(node.inputs[0]), layout_of(node))


def _assign_outputs(graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment) -> None:
    """Compute outputs in the buffer of their targets where that is safe; copy the others there."""
    earlier: set[Node] = set()
    for i, (output, target) in enumerate(graph.outputs_and_targets):
        is_stored = output.is_leaf_or_constant or output in earlier or output in buffers.alias
        earlier.add(output)
        if is_stored or output in schedule.late:
            buffers.copied.add(i)
            continue
        if target is None:
            continue
        writer = output
        if output.name == "redistribute" and _can_compute_inside(output, buffers, earlier):
            writer = output.inputs[0]
        if not _can_overwrite(writer, target, buffers):
            buffers.copied.add(i)
            continue
        buffers.alias[output] = target
        if writer is not output:
            buffers.alias[writer] = output


def _can_compute_inside(shared: Node, buffers: BufferAssignment, outputs: set[Node]) -> bool:
    """Return True if the source of a gathering redistribution can be computed in the gathered
    copy."""
    source = shared.inputs[0]
    if source.is_leaf or source.name == "redistribute":
        return False
    if source in buffers.alias or source in outputs:
        return False
    return can_publish(layout_of(source), layout_of(shared))


def overwritable_operands(node: Node) -> Sequence[int]:
    """Return the positions of the operands in whose memory the kernel of a node can store its
    result, if they have the same shape and layout. No other operand may be stored there."""
    operation, last = node.operation, len(node.inputs) - 1
    if operation.is_elementwise or operation.can_overwrite_operand:
        return range(last + 1)
    if operation.overwrites_first:
        return (0,)
    if _is_accumulation(node):
        return (last - 1,)  # before the factor of the product
    return (last,) if node.attributes.get("residual") else ()


def _is_accumulation(node: Node) -> bool:
    """Return True for a product that is added to an operand (`Operation.epilogues`)."""
    return bool(node.attributes.get("accumulate"))


def _can_overwrite(writer: Node, target: Node, buffers: BufferAssignment) -> bool:
    """Return True if `writer` may write into the memory of `target`, where it may read operands."""
    reading = [i for i, x in enumerate(writer.inputs) if buffers.root(x) is target]
    if not set(reading).issubset(overwritable_operands(writer)):
        return False
    operands = [writer.inputs[i] for i in reading]
    return all(x.shape == writer.shape and x.layout == writer.layout for x in operands)


def _store_in_halo_copies(
    graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment
) -> None:
    """Compute arrays in their tiles of copies with halos, so that only the halos are copied."""
    roots = set(graph.roots)
    for node in schedule.order:
        if node.name != "redistribute" or node in buffers.alias:
            continue
        if not layout_of(node).has_overlaps:
            continue
        x = node.inputs[0]
        if (
            not can_be_part(x)
            or x in roots
            or x in buffers.alias
            or _is_read_again(x, node, schedule)
        ):
            continue
        if is_part(layout_of(node), layout_of(x), (0,) * x.ndim):
            buffers.alias[x] = node


def _assign_peer_readable(
    schedule: ExecutionOrder, buffers: BufferAssignment, outputs: set[Node]
) -> None:
    """Note the buffers that other workers read; compute sources of gathering redistributions in the
    gathered copy."""
    for node in schedule.order:
        if node.name != "redistribute" or buffers.alias.get(node) is node.inputs[0]:
            continue
        source = node.inputs[0]
        if is_cross_worker(layout_of(source), layout_of(node)):
            buffers.peer_readable.add(buffers.root(source))
        if layout_of(node).shared and node not in buffers.alias:
            buffers.peer_readable.add(node)
            if _can_compute_inside(node, buffers, outputs):
                buffers.alias[source] = node


def _store_operands_in_results(
    graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment
) -> None:
    """Compute operands in the buffer of the result, if nothing else reads them: an operand onto
    which a product accumulates, one that is transformed in place, one that is overwritten in part,
    and one that grows."""
    users = users_of(graph.nodes)
    roots = set(graph.roots)
    for node in graph.nodes:
        operand = _rewritten(node)
        if operand is None or buffers.root(node).is_leaf or users[operand] != [node]:
            continue
        if operand in roots or operand in buffers.alias or operand in buffers.peer_readable:
            continue
        if _is_read_again(operand, node, schedule):
            continue
        grows = node.operation.grows_operand
        if grows and node not in buffers.alias:
            buffers.alias[operand] = node
            buffers.at_beginning.add(operand)
        elif not grows and operand.layout == node.layout:
            buffers.alias[operand] = node


def _is_read_again(operand: Node, node: Node, schedule: ExecutionOrder) -> bool:
    """Return True if later steps read an operand again, after a node would have overwritten it."""
    return operand in schedule.invariant and node not in schedule.invariant


def _store_parts_in_results(
    graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment
) -> None:
    """Compute operands of concatenations in their parts of the result, so that nothing is copied.

    Others may read the operand too: the result keeps its value. If the result is computed in the
    buffer of a node that overwrites it, they must read before.
    """
    if all(node.name != "concat" for node in graph.nodes):
        return
    excluded = {*graph.roots, *[buffers.alias[x] for x in buffers.at_beginning]}
    position = {node: i for i, node in enumerate(schedule.order)}
    last = _last_uses(graph, schedule, buffers, position)
    for node in graph.nodes:
        if node.name != "concat" or buffers.root(node).is_leaf:
            continue
        above = buffers.alias.get(node, node)
        overwritten = len(position) if above.operation.is_move else position.get(above, 0)
        axis, first = node.attributes["axis"], 0
        for x in node.inputs:
            start = tuple([first if d == axis else 0 for d in range(node.ndim)])
            first += x.shape[axis]
            if not can_be_part(x) or x in excluded or x in buffers.alias:
                continue
            is_read_later = node in buffers.alias and last[x] >= overwritten
            if is_read_later or _is_read_again(x, node, schedule):
                continue
            if is_part(layout_of(node), layout_of(x), start):
                buffers.alias[x] = node
                buffers.start[x] = start
                if x in buffers.peer_readable:
                    buffers.peer_readable.add(buffers.root(node))
                last[node] = max(last.get(node, 0), last[x])


def can_be_part(x: Node) -> bool:
    """Return True for a node whose kernel may store its result as a part of a larger array."""
    return not (x.is_leaf_or_constant or x.operation.is_move)


def _rewritten(node: Node) -> Node | None:
    """Return the operand that a node expects in its own buffer, if the operand can be computed
    there."""
    operation = node.operation
    if operation.can_overwrite_operand or operation.overwrites_first or operation.grows_operand:
        operand = node.inputs[0]
        computed = not operand.is_leaf and operand.name != "constant"
        fits = operation.grows_operand or have_equal_memory(operand, node)
        return operand if computed and fits else None
    if _is_accumulation(node):
        onto = node.inputs[-2]
        return onto if onto.operation is operation else None
    return None


def _divided(buffers: BufferAssignment) -> set[Node]:
    """Return the nodes in whose buffers others with another shape or type are stored."""
    pairs = [(node, buffers.root(node)) for node in buffers.alias]
    return {root for node, root in pairs if not have_equal_memory(node, root)}


def _reuse_operands(graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment) -> None:
    """Give results the buffer of an operand after its last use, if their kernels can store them
    there.

    An output has a buffer of its own. There, the operand gets the buffer of the output.
    """
    position = {node: i for i, node in enumerate(schedule.order)}
    roots = set(graph.roots)
    with_own_buffer = outputs_with_own_buffer(graph, buffers)
    last = _last_uses(graph, schedule, buffers, position)
    unused = UnusedBuffers(buffers.root, {*roots, *buffers.peer_readable, *_divided(buffers)}, last)
    for i, node in enumerate(schedule.order):
        if i:
            unused.add(schedule.order[i - 1], i - 1)
        fixed = (
            node in buffers.alias
            or node in buffers.peer_readable
            or (node in roots and node not in with_own_buffer)
        )
        read_later = {x for x in map(buffers.root, node.inputs) if last[x] > position[node]}
        operand = None if fixed else _reusable_operand(node, buffers, roots, read_later)
        if operand is None and not fixed and node not in with_own_buffer:
            operand = unused.take(node)
        if operand is None:
            continue
        root = buffers.root(operand)
        if node in with_own_buffer:
            buffers.alias[root] = node
        else:
            buffers.alias[node] = operand
            last[root] = last[node]


def _reusable_operand(
    node: Node, buffers: BufferAssignment, roots: Collection[Node], read_later: Collection[Node]
) -> Node | None:
    """Return the first operand in whose buffer a node can be computed; None if there is none: not
    in that of roots, or of nodes that are read later.

    If only one of several operands can be replaced, no other one may have its memory: not even the
    same node a second time.
    """
    # Where products are accumulated, `_store_operands_in_results` has decided before.
    positions = () if _is_accumulation(node) else overwritable_operands(node)
    is_one_of_several = len(positions) == 1 < len(node.inputs)
    for x in [node.inputs[i] for i in positions]:
        root = buffers.root(x)
        inside = [v for v in node.inputs if buffers.root(v) is root]
        if is_one_of_several and len(inside) > 1:
            return None
        if root.is_leaf_or_constant or root in roots or root in buffers.peer_readable:
            continue
        if root in read_later:
            continue
        if all(have_equal_memory(v, node) for v in (root, *inside)):
            return x
    return None


def _last_uses(
    graph: Graph, schedule: ExecutionOrder, buffers: BufferAssignment, position: dict[Node, int]
) -> dict[Node, int]:
    """Return the position of the last use of each buffer, by the node that owns it."""
    users = users_of(graph.nodes)
    roots = set(graph.roots)
    last: dict[Node, int] = {}
    for node in schedule.order:
        uses = [position[user] for user in users.get(node, []) if user in position]
        root = buffers.root(node)  # a view that is a root keeps its base
        end = len(schedule.order) if node in schedule.invariant or node in roots else 0
        last[root] = max([last.get(root, 0), position[node], end, *uses])
    return last


def outputs_with_own_buffer(graph: Graph, buffers: BufferAssignment) -> set[Node]:
    """Return the outputs that become arrays of their own, computed where these are stored."""
    pairs = enumerate(graph.outputs_and_targets)
    return {node for i, (node, target) in pairs if target is None and i not in buffers.copied}
