"""The program of a training step that follows from a plan, and its tasks for the simulator.

The program is the same for all workers: computations and collectives in the order of issue, the
forward pass, the backward pass, the exchange of gradients as soon as each is known, the updates.
`tasks` writes it out for every worker, or for one that represents all: if all workers are equal,
both take the same time, and the second does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from magmath.cost.collective_costs import Group, fastest, group_levels
from magmath.parallel.planner.costs import CostTables, exchanges
from magmath.parallel.planner.layer_graph import Edge
from magmath.parallel.planner.layer_options import (
    Exchange,
    LayerState,
    Option,
    PlannerMesh,
    gradient_state,
    operand_state,
    result_state,
    transfer,
)
from magmath.parallel.simulator.events import (
    COMMUNICATE,
    COMPUTE,
    PortStage,
    SimulatedTask,
    on_ports,
)

STEPS: Final = 3
"""Simulated steps, so that the last one shows the steady state."""


@final
@dataclass(frozen=True)
class SimulatedInstruction:
    """A computation, or a collective of groups of workers.

    exchange   the collective, with `nbytes` of the whole value; None for a computation
    after      numbers of the instructions whose results it reads
    """

    name: str
    layer: int
    phase: str
    seconds: float = 0.0
    exchange: Exchange | None = None
    nbytes: float = 0.0
    after: tuple[int, ...] = ()


@final
@dataclass
class StepProgram:
    """The instructions of some steps of a plan, and the last one of each step's backward pass."""

    mesh: PlannerMesh
    instructions: list[SimulatedInstruction] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, instruction: SimulatedInstruction) -> int:
        """Append an instruction and return its number."""
        self.instructions.append(instruction)
        return len(self.instructions) - 1


def step_program(
    tables: CostTables, options: Sequence[Option], *, sharded: bool = False, steps: int = STEPS
) -> StepProgram:
    """Return the program of some training steps.

    sharded   gradients are reduced and scattered, each worker updates its chunk, and chunks are
              replicated while the next forward pass begins (Eliuk et al. 2016, section 2.1),
              instead of an allreduce of gradients and a replicated update
    """
    writer = _StepWriter(tables, options, sharded)
    for _ in range(steps):
        writer.step()
    return writer.program


@final
class _StepWriter:
    """Appends steps to a program. Its methods take and return the instructions to wait for."""

    def __init__(self, tables: CostTables, options: Sequence[Option], sharded: bool) -> None:
        self._tables = tables
        self._graph = tables.graph
        self._options = options
        self._sharded = sharded
        self._costs = [
            tables.layer_cost(layer, option)
            for layer, option in zip(self._graph.layers, options, strict=True)
        ]
        self._fresh: dict[int, tuple[int, ...]] = {}
        """The instructions that make the parameters of each layer current."""
        self.program = StepProgram(tables.mesh)

    def step(self) -> None:
        """Append one step."""
        ready = self._forward()
        gradients = self._backward(ready)
        self.program.ends.append(len(self.program.instructions) - 1)
        self._update(gradients)

    def _forward(self) -> dict[int, tuple[int, ...]]:
        """Append the forward pass; return the instructions that complete each layer's result."""
        ready: dict[int, tuple[int, ...]] = {}
        for number, layer in enumerate(self._graph.layers):
            after = list(self._fresh.get(number, ()))
            for edge in layer.inputs:
                after += self._move(number, edge, ready[edge.source])
            last = self._compute(number, "forward", self._costs[number].forward, after)
            ready[number] = self._exchange_within(number, "forward", last)
        return ready

    def _backward(self, ready: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """Append the backward pass and the exchanges of gradients; return the instructions that
        complete these."""
        layers = self._graph.layers
        cotangents: dict[int, list[int]] = {i: [] for i in range(len(layers))}
        gradients: dict[int, tuple[int, ...]] = {}
        for number in reversed(range(len(layers))):
            layer = layers[number]
            if not layer.trainable:
                continue
            after = (*cotangents[number], *ready[number])
            after = self._exchange_within(number, "backward", after)
            last = self._compute(number, "backward", self._costs[number].backward, after)
            for edge in layer.inputs:
                if edge.has_gradient:
                    cotangents[edge.source] += self._move_gradient(number, edge, last)
            gradients[number] = self._exchange_gradients(number, last)
        return gradients

    def _update(self, gradients: dict[int, tuple[int, ...]]) -> None:
        """Append the updates, in the order in which the next forward pass needs them."""
        for number in sorted(gradients):
            cost, option = self._costs[number], self._options[number]
            reductions = self._tables.gradient_exchanges(self._graph.layers[number], option)
            share = 1.0
            if self._sharded and reductions:
                share = 1.0 / self._tables.mesh.group(reductions[0].exchange.axes).size
            last = self._compute(number, "update", cost.update * share, gradients[number])
            if self._sharded:
                for reduction in reductions:
                    gather = reduction.exchange._replace(kind="allgather")
                    last = (self._collective(number, "replicate", gather, reduction.nbytes, last),)
            self._fresh[number] = last

    # instructions ---------------------------------------------------------------------------------

    def _compute(
        self, number: int, phase: str, seconds: float, after: Sequence[int]
    ) -> tuple[int, ...]:
        """Append a computation, unless it takes no time; return what to wait for."""
        if not seconds:
            return tuple(after)
        name = self._graph.layers[number].name
        instruction = SimulatedInstruction(name, number, phase, seconds=seconds, after=tuple(after))
        return (self.program.add(instruction),)

    def _collective(
        self, number: int, phase: str, exchange: Exchange, nbytes: float, after: Sequence[int]
    ) -> int:
        name = f"{self._graph.layers[number].name}: {exchange.kind}"
        instruction = SimulatedInstruction(name, number, phase, 0.0, exchange, nbytes, tuple(after))
        return self.program.add(instruction)

    def _transfer(
        self,
        number: int,
        phase: str,
        have: LayerState,
        want: LayerState,
        nbytes: int,
        after: Sequence[int],
    ) -> tuple[int, ...]:
        """Append the collectives that change the state of a value."""
        last = tuple(after)
        if have != want:
            for exchange in transfer(self._tables.mesh, have, want):
                last = (self._collective(number, phase, exchange, nbytes, last),)
        return last

    def _move(self, number: int, edge: Edge, after: Sequence[int]) -> tuple[int, ...]:
        """Append the redistribution of an operand."""
        is_product = self._graph.layers[number].has_product
        have = result_state(self._options[edge.source], edge.roles)
        want = operand_state(self._options[number], edge.roles, is_product=is_product)
        return self._transfer(number, "forward", have, want, edge.nbytes, after)

    def _move_gradient(self, number: int, edge: Edge, after: Sequence[int]) -> tuple[int, ...]:
        """Append the redistribution of the gradient of an operand."""
        is_product = self._graph.layers[number].has_product
        have = gradient_state(self._options[number], edge.roles, is_product=is_product)
        want = result_state(self._options[edge.source], edge.roles)
        return self._transfer(number, "backward", have, want, edge.nbytes, after)

    def _exchange_within(self, number: int, phase: str, after: Sequence[int]) -> tuple[int, ...]:
        """Append the exchanges within a layer."""
        layer, option = self._graph.layers[number], self._options[number]
        last = tuple(after)
        for exchange, nbytes, own_phase in exchanges(layer, option, self._tables.mesh):
            if own_phase == phase:
                last = (self._collective(number, phase, exchange, nbytes, last),)
        return last

    def _exchange_gradients(self, number: int, after: Sequence[int]) -> tuple[int, ...]:
        """Append the exchange of a layer's gradients."""
        layer, option = self._graph.layers[number], self._options[number]
        last = tuple(after)
        for exchange, nbytes, phase in self._tables.gradient_exchanges(layer, option):
            reduction = exchange._replace(kind="reduce_scatter") if self._sharded else exchange
            last = (self._collective(number, phase, reduction, nbytes, last),)
        return last


# tasks --------------------------------------------------------------------------------------------


def tasks(
    program: StepProgram, tables: CostTables, *, every_worker: bool, overlap: bool = True
) -> tuple[list[SimulatedTask], list[set[int]]]:
    """Return the tasks of a program, and those of all workers that end the backward pass of each
    step.

    every_worker   write out all workers; otherwise one worker represents all
    overlap        False: workers do not compute while they communicate
    """
    streams = (COMMUNICATE,) if overlap else (COMMUNICATE, COMPUTE)
    simulated_tasks: list[SimulatedTask] = []
    numbers_of: list[dict[int, int]] = []
    known: dict[Hashable, tuple[PortStage, ...]] = {}
    workers = range(tables.mesh.workers) if every_worker else range(1)
    for instruction in program.instructions:
        members: list[tuple[int, ...]] = [(worker,) for worker in workers]
        if instruction.exchange is not None:
            members = _groups(tables.mesh, instruction.exchange.axes) if every_worker else [(0,)]
        numbers: dict[int, int] = {}
        for group in members:
            after = tuple({numbers_of[i][worker] for i in instruction.after for worker in group})
            numbers.update(dict.fromkeys(group, len(simulated_tasks)))
            name = f"{instruction.name} ({instruction.phase})"
            if instruction.exchange is None:
                simulated_tasks.append(
                    SimulatedTask(name, group, (COMPUTE,), instruction.seconds, (), after)
                )
            else:
                key = (instruction.exchange, instruction.nbytes, group)
                if key not in known:
                    known[key] = _stages(tables, instruction, group, every_worker)
                stages = known[key]
                simulated_tasks.append(SimulatedTask(name, group, streams, 0.0, stages, after))
        numbers_of.append(numbers)
    return simulated_tasks, [set(numbers_of[end].values()) for end in program.ends]


def _groups(mesh: PlannerMesh, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the workers of each group that differs in some axes."""
    group = mesh.group(axes)
    block = group.size * group.stride
    return [
        tuple(range(start + first, start + first + block, group.stride))
        for start in range(0, mesh.workers, block)
        for first in range(group.stride)
    ]


def _stages(
    tables: CostTables,
    instruction: SimulatedInstruction,
    workers: tuple[int, ...],
    every_worker: bool,
) -> tuple[PortStage, ...]:
    """Return the stages of a collective on the ports that its workers pass."""
    assert instruction.exchange is not None
    levels = tables.model.machine.levels
    group: Group = tables.mesh.group(instruction.exchange.axes)
    size = instruction.exchange.share * instruction.nbytes
    chosen = fastest(levels, instruction.exchange.kind, size, group, tables.model.algorithm)
    parts = group_levels(levels, group)
    ports: dict[int, list[int]] = {}
    child = 1
    for number, level in enumerate(levels):
        ports[number] = sorted({worker // child for worker in workers})
        child *= level.fan_out or 1
    sharing = {} if every_worker else {part.level: part.sharing for part in parts}
    return on_ports(chosen.algorithm.stages_for(size), ports, sharing)
