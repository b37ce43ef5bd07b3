"""The build of steps that workers run on their own: a program with parts for one worker each.

`engine/programs/step_split.py` splits the graph of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import final

from magmath.engine.programs.program_build import UNSENT, CompiledProgram, plan_and_lower
from magmath.engine.programs.step_split import AsynchronousDivision, StepSplit
from magmath.errors import LayoutError
from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import layout_of
from magmath.layout import Layout
from magmath.passes.environment import Environment
from magmath.program.instructions import AsynchronousStep, Program, Slot, SlotKind, WorkerProgram


def build_asynchronous(
    graph: Graph, division: AsynchronousDivision, environment: Environment
) -> CompiledProgram:
    """Return the program of a step that each worker runs on its own, not yet sent to the workers.

    Raises LayoutError if an array that the step reads is divided over the workers.
    """
    return _Assembly(graph, division, StepSplit(graph, division), environment).compiled()


@final
class _Assembly:
    """The program of all workers: its slots, and the programs for one worker on these slots.

    A step reads private slots instead of the shared ones of counts and of the arrays that depend on
    the number of steps alone: its own numbers and values.
    """

    def __init__(
        self,
        graph: Graph,
        division: AsynchronousDivision,
        split: StepSplit,
        environment: Environment,
    ) -> None:
        self._leaves, self._split, self._environment = graph.leaves, split, environment
        self._staleness = division.staleness
        self._slots: list[Slot] = []
        copies = dict.fromkeys(split.copies.values())
        private = [*copies, *split.sent.values()]
        self._scalars = [x for x in graph.leaves if x.name == "scalar"]
        self._inputs = [x for x in graph.leaves if x.name != "scalar" and x not in copies]
        self._targets = [target for target in graph.targets if target is not None]
        for leaf in self._inputs:
            self._require_whole(leaf)
        replicated = environment.replicated
        self._shared = {x: self._new_slot(x, layout_of(x), "input") for x in self._inputs}
        self._private = {x: self._new_slot(x, replicated(x.shape), "temporary") for x in private}
        self._steps = self._private_slots([x for x in division.steps if x in self._shared])
        self._updates = self._private_slots([x for x in division.updates if x in self._shared])
        self._states = self._private_slots(split.advance.targets)
        self._slot_in_step = (
            self._shared | self._private | self._steps | self._updates | self._states
        )
        self._changing = {self._slot_in_step[x] for x in (*self._targets, *private)}

    def compiled(self) -> CompiledProgram:
        """Return the program of all workers."""
        replicated, targets = self._environment.replicated, self._targets
        step = self._asynchronous_step()
        scalars = [self._new_slot(x, replicated(()), "scalar") for x in self._scalars]
        program = Program(
            slots=self._slots,
            instructions=[],
            inputs=list(self._shared.values()),
            outputs=[self._shared[target] for target in targets],
            scalars=scalars,
            donated={i: self._inputs.index(target) for i, target in enumerate(targets)},
            workers=self._environment.workers,
            reads_peers=self._environment.shares_memory,
            asynchronous=step,
        )
        position = {leaf: i for i, leaf in enumerate(self._leaves)}
        inputs, scalar_positions = (
            tuple([position[x] for x in group]) for group in (self._inputs, self._scalars)
        )
        return CompiledProgram(UNSENT, program, inputs, scalar_positions)

    def _asynchronous_step(self) -> AsynchronousStep:
        split, slot = self._split, self._shared | self._private
        return AsynchronousStep(
            compute=self._part(split.first, list(split.sent.values())),
            updates=[self._part(update, update.targets) for update in split.updates],
            copies=[
                [(slot[x], slot[copy]) for x, copy in split.copies.items() if x in server]
                for server in split.servers
            ],
            steps_counted=self._pairs(self._steps),
            updates_counted=self._pairs(self._updates),
            staleness=self._staleness,
            advance=self._part(split.advance, split.advance.targets),
            advanced=self._pairs(self._states),
        )

    def _pairs(self, private: Mapping[Node, int]) -> list[tuple[int, int]]:
        """Return pairs of a shared slot and of the private one that a step reads instead."""
        return [(self._shared[x], private_slot) for x, private_slot in private.items()]

    def _part(self, graph: Graph, outputs: Sequence[Node | None]) -> WorkerProgram:
        """Return the program of a graph for one worker."""
        slot = self._slot_in_step
        alone = self._environment.of_one_worker()
        new = {x: x.replace((), alone.replicated(x.shape)) for x in graph.leaves if x.layout}
        former = {y: x for x, y in new.items()}
        changing = [y for x, y in new.items() if slot[x] in self._changing]
        placed = Graph(graph.outputs, graph.targets, graph.emitted).substituted(new)
        part = plan_and_lower(placed, alone, changing)
        read = [former.get(x, x) for x in placed.leaves]
        return WorkerProgram(
            part.program,
            [slot[read[i]] for i in part.inputs],
            [slot[x] for x in outputs if x is not None],
            [self._scalars.index(read[i]) for i in part.scalars],
        )

    def _private_slots(self, leaves: Iterable[Node | None]) -> dict[Node, int]:
        """Return new private slots for leaves that have shared ones."""
        replicated = self._environment.replicated
        return {
            x: self._new_slot(x, replicated(x.shape), "temporary") for x in leaves if x is not None
        }

    def _new_slot(self, leaf: Node, layout: Layout, kind: SlotKind) -> int:
        self._slots.append(Slot(leaf.shape, leaf.dtype, layout, kind))
        return len(self._slots) - 1

    def _require_whole(self, leaf: Node) -> None:
        layout = layout_of(leaf)
        if layout.mesh.size != self._environment.workers or not layout.is_replicated:
            raise LayoutError(
                f"fit: every worker of an asynchronous strategy reads whole arrays, but an array "
                f"of shape {leaf.shape} that the step reads has the layout {layout}; replicate it "
                f"by x.redistribute(mm.Layout.replicated())"
            )
