"""The build of programs: from a graph to a program for the workers of a pool."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from magmath.core.debugging import debugging
from magmath.core.dtypes import DType
from magmath.core.optional_passes import REMATERIALIZE
from magmath.core.stage_times import stage
from magmath.core.type_aliases import Number
from magmath.cost import ETHERNET, Network, current_machine
from magmath.engine.drawn_indices import DrawnIndices
from magmath.engine.number_checks import NumberChecks
from magmath.engine.programs.memory_check import can_exceed, need_of
from magmath.engine.programs.memory_fit import fit_memory
from magmath.executor.bias_tuner import fastest_gradients
from magmath.graph import Graph, Node, Shape
from magmath.layout import Layout, Mesh
from magmath.passes import pipeline
from magmath.passes.environment import Environment
from magmath.program.arena import arrange
from magmath.program.instructions import Program
from magmath.program.lower import lower

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool

UNSENT = -1
"""The id of a program that the workers do not have."""


@final
class ResultSpec(NamedTuple):
    """The shape, type and layout of an output."""

    shape: Shape
    dtype: DType
    layout: Layout


@final
@dataclass(frozen=True)
class CompiledProgram:
    """A program on the workers, and the positions of the graph leaves that it reads."""

    program_id: int
    program: Program
    inputs: tuple[int, ...]
    scalars: tuple[int, ...]
    is_fallible: bool = False
    """True if it fails for some data, whatever its numbers are
    (`engine/fallible_operations.py`)."""
    number_checks: NumberChecks | None = None
    """The checks before a run, which fail for some numbers."""
    drawn_indices: DrawnIndices | None = None
    """The indices that it draws at random, which are in range for some numbers."""

    def can_fail(self, numbers: Sequence[Number]) -> bool:
        """Return True if a run with these numbers fails for some data, or for some indices that it
        draws."""
        drawn = self.drawn_indices
        return self.is_fallible or (drawn is not None and drawn.can_be_out_of_range(numbers))

    @cached_property
    def results(self) -> list[ResultSpec]:
        """The specifications of the outputs, with interned layouts, whose comparison is fast."""
        slots = [self.program.slots[output] for output in self.program.outputs]
        usual = [
            Layout.replicated_on(x.shape, x.layout.mesh, shared=x.layout.shared) for x in slots
        ]
        return [
            ResultSpec(x.shape, x.dtype, y if y == x.layout else x.layout)
            for x, y in zip(slots, usual, strict=True)
        ]

    @cached_property
    def result_bytes(self) -> int:
        """The bytes of all outputs on a worker."""
        return sum([x.layout.max_local_size * x.dtype.itemsize for x in self.results])

    @cached_property
    def new_bytes(self) -> int:
        """The bytes that the program needs on a worker in addition to its inputs."""
        return need_of(self.program).new_bytes


def build_program(
    graph: Graph, environment: Environment, device: str, room: int | None = None
) -> CompiledProgram:
    """Return the program of a graph, not yet sent to the workers.

    `room`: the bytes of a worker that the program may need, or None. If it needs more, it computes
    intermediates a second time, as far as that helps.
    """
    single = plan_and_lower(graph, environment, room=room)
    if room is not None and environment.workers > 1 and can_exceed(single.program, room):
        single = _with_less_memory(graph, single, environment, room)
    with stage("team"):
        team = _team_program(graph, single, environment, device)
        if team is not None and room is not None and room < _bytes_with_team(single.program, team):
            team = None
    return replace(single, program=msgspec.structs.replace(single.program, team=team))


def _with_less_memory(
    graph: Graph, usual: CompiledProgram, environment: Environment, room: int
) -> CompiledProgram:
    """Return a program that needs less memory than the usual one, if that exceeds the room: workers
    repeat computations on small arrays where that is faster than an exchange."""
    need = need_of(usual.program).nbytes
    if need <= room:
        return usual
    frugal = plan_and_lower(graph, replace(environment, is_frugal=True), room=room)
    return frugal if need_of(frugal.program).nbytes < need else usual


def environment_of(pool: Pool) -> Environment:
    """Return the environment of a pool, for the passes."""
    topology, machine = pool.topology, current_machine()
    shared = topology.shares_memory and topology.device == "cpu"
    link = machine.shared if shared else machine.messages
    if any(topology.hosts):
        network = Network(topology.hosts, *(topology.network or ETHERNET))
        link = replace(link, network=network)
    return Environment(
        pool.mesh, link, shared, pool.deterministic,
        memory_limit=pool.memory_limit, memory_bound=pool.memory_bound, machine=machine,
        threads=topology.threads, fold_bias=pool.fold_bias,
        fastest_gradients=fastest_gradients if shared else None, without=debugging().without,
    )  # fmt: skip


def _team_environment(environment: Environment) -> Environment:
    """Return the environment of the threads of one worker: cheap barriers and shared memory."""
    machine = environment.machine
    return Environment(
        Mesh.line(environment.threads), machine.team, shares_memory=True, machine=machine,
        fold_bias=environment.fold_bias, fastest_gradients=environment.fastest_gradients,
        without=environment.without,
    )  # fmt: skip


def _team_program(
    graph: Graph, single: CompiledProgram, environment: Environment, device: str
) -> Program | None:
    """Return the same program for the threads of a single worker, or None.

    Only programs that update variables have one: loops run them.
    """
    updates = bool(graph.targets) and all(t and t.name == "variable" for t in graph.targets)
    alone = environment.workers == 1 and device == "cpu" and environment.threads > 1
    if not (alone and updates) or environment.deterministic:
        return None
    team_environment = _team_environment(environment)
    lanes = {
        leaf: leaf.replace(
            (), team_environment.replicated(leaf.shape, shared=leaf.name != "scalar")
        )
        for leaf in graph.leaves
    }
    shared = Graph(graph.outputs, graph.targets, graph.emitted).substituted(lanes)
    team = plan_and_lower(shared, team_environment)
    same = (team.inputs, team.scalars, team.program.donated) == (
        single.inputs,
        single.scalars,
        single.program.donated,
    )
    return team.program if same else None


def _bytes_with_team(single: Program, team: Program) -> int:
    """Return the bytes that a program needs if its team, which has memory of its own, runs too."""
    return need_of(single).nbytes + team.workers * arrange(team).nbytes


def plan_and_lower(
    graph: Graph,
    environment: Environment,
    changing: Collection[Node] = (),
    room: int | None = None,
) -> CompiledProgram:
    """Return the program of a graph for the workers of an environment.

    `changing`: leaves that change between the steps of a run, in addition to the targets. `room`:
    as for `build_program`.
    """
    numbers = {
        x: x.replace((), environment.replicated(())) for x in graph.leaves if x.layout is None
    }
    graph = graph.substituted(numbers) if numbers else graph
    planned = pipeline.run(graph, environment, changing)
    position = {leaf: i for i, leaf in enumerate(graph.leaves)}
    used = sorted(planned.graph.leaves, key=position.__getitem__)
    inputs = [leaf for leaf in used if leaf.name != "scalar"]
    scalars = [leaf for leaf in used if leaf.name == "scalar"]
    input_position = {leaf: i for i, leaf in enumerate(inputs)}
    targets = enumerate(planned.graph.targets)
    donated = {i: input_position[target] for i, target in targets if target is not None}

    def lower_plan(planned: pipeline.PlannedGraph) -> Program:
        with stage("lower"):
            return lower(planned, inputs, scalars, environment, donated)

    program = lower_plan(planned)
    if room is not None and REMATERIALIZE not in environment.without:
        program = fit_memory(planned, program, environment, room, lower_plan)
    return CompiledProgram(
        UNSENT,
        program,
        tuple(position[leaf] for leaf in inputs),
        tuple(position[leaf] for leaf in scalars),
    )
