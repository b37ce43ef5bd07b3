"""Lowering: converts a planned graph into a program of slots and instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

from magmath.core.dtypes import uint8
from magmath.graph import Graph, Node
from magmath.graph.collective_nodes import is_collective
from magmath.graph.operation import MemoryOrder
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout, Mesh
from magmath.passes.assign_buffers import BufferAssignment, outputs_with_own_buffer
from magmath.passes.environment import Environment
from magmath.passes.pipeline import PlannedGraph
from magmath.program.barriers import BarrierInsertion
from magmath.program.instructions import (
    Call,
    Emit,
    Instruction,
    Program,
    Redistribute,
    Slot,
    SlotKind,
)
from magmath.program.overlap import with_overlap
from magmath.program.slot_lifetimes import with_lifetimes


def lower(
    planned: PlannedGraph,
    inputs: Sequence[Node],
    scalars: Sequence[Node],
    environment: Environment,
    donated: dict[int, int],
) -> Program:
    """Return the program that computes a planned graph from these leaves, in this order."""
    graph, schedule, buffers = planned.graph, planned.schedule, planned.buffers
    lowering = _Lowering(graph, buffers, planned.orders, environment, planned.originals)
    for node in schedule.order:
        if node not in schedule.invariant and lowering.prologue is None:
            lowering.prologue = len(lowering.instructions)
        lowering.add(node)
    lowering.finish()
    instructions, prologue = lowering.instructions, lowering.prologue or 0
    reads_peers = False
    if environment.shares_memory:
        insertion = BarrierInsertion(lowering.slots, instructions, prologue)
        instructions, prologue = insertion.with_barriers()
        reads_peers = bool(insertion.shared_roots)
    elif environment.workers > 1:
        instructions = with_overlap(
            lowering.slots, instructions, prologue, environment.overlap_min_bytes
        )
    return Program(
        slots=with_lifetimes(lowering.slots, instructions, prologue),
        instructions=instructions,
        inputs=[lowering.slot[leaf] for leaf in inputs],
        outputs=lowering.output_slots,
        scalars=[lowering.slot[leaf] for leaf in scalars],
        donated=donated,
        workers=environment.workers,
        reads_peers=reads_peers,
        prologue=prologue,
    )


@final
@dataclass
class _Lowering:
    """The state of the lowering: slots and instructions so far."""

    graph: Graph
    buffers: BufferAssignment
    orders: Mapping[Node, MemoryOrder]
    environment: Environment
    originals: Mapping[Node, Node]
    slots: list[Slot] = field(default_factory=list)
    slot: dict[Node, int] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    output_slots: list[int] = field(default_factory=list)
    prologue: int | None = None

    def __post_init__(self) -> None:
        self.own_outputs = outputs_with_own_buffer(self.graph, self.buffers)
        for leaf in self.graph.leaves:
            self.slot_of(leaf)

    def slot_of(self, node: Node) -> int:
        """Return the slot of a node; create it, and those of the nodes in whose buffer it is, on
        first use."""
        chain: list[Node] = []
        owner: Node | None = node
        while owner is not None and owner not in self.slot:  # a loop of writes is a long chain
            chain.append(owner)
            owner = self.buffers.alias.get(owner)
        alias = None if owner is None else self.slot[owner]
        for x in reversed(chain):
            alias = self.slot[x] = self._add_slot(x, self._kind(x), alias)
        return self.slot[node]

    def _add_slot(self, node: Node, kind: SlotKind, alias: int | None = None) -> int:
        value = node.attributes["value"] if node.name == "constant" else None
        is_peer_readable = node in self.buffers.peer_readable and self.environment.shares_memory
        self.slots.append(
            Slot(
                node.shape,
                node.dtype,
                layout_of(node),
                kind,
                alias,
                is_peer_readable,
                value=value,
                start=self.buffers.start.get(node),
                is_at_beginning=node in self.buffers.at_beginning,
                order=self.orders.get(node) if kind == "temporary" else None,
            )
        )
        return len(self.slots) - 1

    def _kind(self, node: Node) -> SlotKind:
        if node.name == "scalar":
            return "scalar"
        if node.name == "constant":
            return "constant"
        if node.is_leaf:
            return "input"
        return "output" if node in self.own_outputs else "temporary"

    def add(self, node: Node) -> None:
        """Add the instructions that compute a node (none for leaves and views)."""
        is_stored = node.is_leaf_or_constant
        start, alias = self.buffers.start, self.buffers.alias
        view = node in start and alias[node] is node.inputs[0]  # not a part of a concatenation
        if is_stored or view or node.name == "recompute":
            self.slot_of(node)
        elif node.name == "redistribute":
            self._redistribute(node)
        else:
            inputs = tuple(self.slot_of(source) for source in node.inputs)
            out = self.slot_of(node)
            workspace = self.workspace if _is_collective(node) else None
            is_recomputation = node in self.originals
            call = Call(
                node.name,
                dict(node.attributes),
                inputs,
                out,
                node.line,
                workspace,
                is_recomputation,
            )
            self.instructions.append(call)

    @cached_property
    def workspace(self) -> int:
        """The slot for data that the workers exchange in collective kernels.

        All operations use the same slot, since they run one after the other. Workers that share
        memory read one another's part of it.
        """
        collective = [node for node in self.graph.nodes if _is_collective(node)]
        nbytes = max(map(_workspace_bytes, collective))
        workers, shared = self.environment.workers, self.environment.shares_memory
        mesh = Mesh((workers,), None, self.environment.mesh.workers)
        layout = Layout.even((workers, nbytes), mesh, 0)
        self.slots.append(Slot(layout.shape, uint8, layout, "temporary", is_peer_readable=shared))
        return len(self.slots) - 1

    def _redistribute(self, node: Node) -> None:
        source = node.inputs[0]
        alias = self.buffers.alias
        is_view, is_inside = alias.get(node) is source, alias.get(source) is node
        source_slot, slot = self.slot_of(source), self.slot_of(node)
        is_complete = is_inside and not layout_of(node).has_overlaps  # without halos
        if not is_view and not is_complete:
            self.instructions.append(Redistribute(source_slot, slot, node.line))

    def finish(self) -> None:
        """Add copies of outputs that cannot be computed in place, and reports of scalars."""
        sources: dict[int, int] = {}
        for i, output in enumerate(self.graph.outputs):
            if i in self.buffers.copied:
                sources[i] = self._slot_before_overwrite(output)
        emitted = [self._slot_before_overwrite(node) for node in self.graph.emitted]
        for i, (output, target) in enumerate(self.graph.outputs_and_targets):
            slot = self.slot_of(output) if target is None else self.slot_of(target)
            if i in self.buffers.copied:
                if target is None:
                    slot = self._add_slot(output, "output")
                self.instructions.append(Redistribute(sources[i], slot, output.line))
            self.output_slots.append(slot)
        self.instructions += [Emit(slot) for slot in emitted]

    def _slot_before_overwrite(self, output: Node) -> int:
        """Return the slot to copy or report: that of the output, or a copy of it if its buffer may
        be overwritten first."""
        slot = self.slot_of(output)
        root = self.buffers.root(output)
        if root not in self.graph.targets:
            return slot
        copy = self._add_slot(output, "temporary")
        self.instructions.append(Redistribute(slot, copy, output.line))
        return copy


def _is_collective(node: Node) -> bool:
    """Return True for a node that a collective kernel computes."""
    if node.operation.collective is None or node.layout is None:
        return False
    inputs = [source.layout for source in node.inputs if source.layout is not None]
    return is_collective(node, inputs, node.layout)


def _workspace_bytes(node: Node) -> int:
    assert node.operation.collective is not None
    return node.operation.collective.workspace(node, layout_of(node).mesh.size).nbytes
