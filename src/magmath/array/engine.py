"""The engine: from graphs to running programs on one pool, with programs cached by structure.

A graph is cut out, its evaluated parts replaced by leaves, and looked up by its key. On a miss the
passes run and the program is sent to the workers once; from then on a run names the program, the
handles of its inputs and the values of its parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from magmath.core.dtypes import DType
from magmath.errors import MagmathError
from magmath.graph import Graph, Node, Shape, topological
from magmath.layout import Layout, Mesh
from magmath.layout.cost import Link
from magmath.ops.leaves import input_leaf
from magmath.passes import pipeline
from magmath.passes.environment import Environment
from magmath.program.instructions import Program
from magmath.program.lower import lower

if TYPE_CHECKING:
    from magmath.runtime.pending import Run
    from magmath.runtime.pool import Pool

KEPT_PROGRAMS = 512
Progress = Callable[[int, list[float]], None]


class Data:
    """An array held by the workers of a pool: a handle, given back when nobody refers to it."""

    __slots__ = ("__weakref__", "dtype", "handle", "layout", "pool", "shape")

    def __init__(self, pool: Pool, handle: int, shape: Shape, dtype: DType, layout: Layout) -> None:
        self.pool = pool
        self.handle = handle
        self.shape = shape
        self.dtype = dtype
        self.layout = layout

    def __del__(self) -> None:
        if not self.pool.closed:
            self.pool.release(self.handle)


class Cell:
    """What a variable leaf holds: its current data, and a version that grows with each change."""

    __slots__ = ("data", "name", "version")

    def __init__(self, name: str, data: Data) -> None:
        self.name = name
        self.data = data
        self.version = 0

    def set(self, data: Data) -> None:
        """Replace the data."""
        self.data = data
        self.version += 1


@dataclass(frozen=True)
class Compiled:
    """A program on the workers, and which leaves of its graph it takes, by position."""

    identifier: int
    program: Program
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]


class Engine:
    """Programs of one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.environment = environment_of(pool)
        self.streams = 0  # of random numbers that have been drawn from
        self._programs: OrderedDict[Hashable, Compiled] = OrderedDict()
        self._last: Run | None = None

    def compile(self, graph: Graph) -> Compiled:
        """The program of a graph of leaves that all have layouts; made on a miss."""
        key = graph.key
        compiled = self._programs.get(key)
        if compiled is not None:
            self._programs.move_to_end(key)
            return compiled
        compiled = self._programs[key] = self._build(graph)
        if len(self._programs) > KEPT_PROGRAMS:
            _, old = self._programs.popitem(last=False)
            self.pool.forget(old.identifier)
        return compiled

    def _build(self, graph: Graph) -> Compiled:
        lowered = _lowered(graph, self.environment)
        team = self._team(graph, lowered)
        program = msgspec.structs.replace(lowered.program, team=team)
        return replace(lowered, identifier=self.pool.define(program), program=program)

    def _team(self, graph: Graph, single: Compiled) -> Program | None:
        """The same for the threads of a single worker, where a loop will run it."""
        topology = self.pool.topology
        updates = bool(graph.targets) and all(t is not None for t in graph.targets)
        alone = self.environment.workers == 1 and topology.device == "cpu"
        if not (alone and updates and topology.threads > 1) or self.environment.deterministic:
            return None
        environment = team_environment(topology.threads)
        lanes = {
            leaf: leaf.replace((), environment.whole(leaf.shape, shared=leaf.name != "parameter"))
            for leaf in graph.leaves
        }
        shared = Graph(graph.outputs, graph.targets, graph.emitted).substituted(lanes)
        team = _lowered(shared, environment)
        same = (team.inputs, team.parameters, team.program.donated) == (
            single.inputs,
            single.parameters,
            single.program.donated,
        )
        return team.program if same else None

    def run(
        self,
        compiled: Compiled,
        leaves: Sequence[Node],
        *,
        steps: int = 1,
        progress: Progress | None = None,
    ) -> tuple[list[Data], Run]:
        """Run a program on the data of `leaves`; the outputs' data, and the run itself.

        Variables among the targets must be given their new data by the caller. Raises MagmathError
        for data of another pool.
        """
        handles = [self._handle(leaves[i]) for i in compiled.inputs]
        numbers = [leaves[i].value for i in compiled.parameters]
        run = self.pool.run(compiled.identifier, handles, numbers, steps=steps, progress=progress)
        self._last = run
        slots = [compiled.program.slots[s] for s in compiled.program.outputs]
        outputs = [
            Data(self.pool, handle, slot.shape, slot.dtype, slot.layout)
            for handle, slot in zip(run.outputs, slots, strict=True)
        ]
        return outputs, run

    def wait(self) -> None:
        """Wait until everything that was started is done; raises what went wrong in it."""
        if self._last is not None:
            self._last.values()

    def _handle(self, leaf: Node) -> int:
        data = data_of(leaf)
        if data.pool is not self.pool:  # its number may be that of some array of this pool
            raise MagmathError(
                f"an array of shape {data.shape} lies in another pool, which has ended or is not "
                f"the current one; make it again in this pool (mm.init starts with no arrays)"
            )
        return data.handle

    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Input leaves holding the values of `nodes`."""
        graph = self.cut(Graph(tuple(nodes)))
        compiled = self.compile(graph)
        outputs, _ = self.run(compiled, graph.leaves)
        return [input_leaf(d.shape, d.dtype, d.layout, d) for d in outputs]

    def cut(self, graph: Graph) -> Graph:
        """The graph with evaluated nodes as leaves and a layout on every leaf."""
        new: dict[Node, Node] = {}
        for node in _unevaluated(graph):
            if not node.is_leaf and node.value is not None:
                new[node] = node.value
            elif node.is_leaf:
                new[node] = self.placed(node)
            else:
                inputs = tuple([new[source] for source in node.inputs])
                new[node] = node if inputs == node.inputs else node.replace(inputs)
        return graph.mapped(new)

    def placed(self, node: Node) -> Node:
        """A leaf with a layout: numbers, and arrays that nobody placed, are replicated."""
        if node.layout is not None:
            return node
        return node.replace((), self.environment.whole(node.shape))


def _unevaluated(graph: Graph) -> list[Node]:
    """The nodes above and including the first evaluated ones, inputs first."""
    if not any(node.value is not None and not node.is_leaf for node in graph.nodes):
        return graph.nodes
    wanted: list[Node] = []
    stack, seen = list(graph.roots), set[Node]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        wanted.append(node)
        if node.is_leaf or node.value is None:
            stack.extend(node.inputs)
    order = {node: i for i, node in enumerate(topological(graph.roots))}
    return sorted(wanted, key=order.__getitem__)


def _lowered(graph: Graph, environment: Environment) -> Compiled:
    """The program of a graph for certain workers, not yet sent anywhere."""
    planned = pipeline.run(graph, environment)
    position = {leaf: i for i, leaf in enumerate(graph.leaves)}
    used = sorted(planned.graph.leaves, key=position.__getitem__)
    inputs = [leaf for leaf in used if leaf.name != "parameter"]
    parameters = [leaf for leaf in used if leaf.name == "parameter"]
    donated = {
        i: inputs.index(target)
        for i, target in enumerate(planned.graph.targets)
        if target is not None
    }
    program = lower(planned, inputs, parameters, environment, donated)
    return Compiled(
        -1,
        program,
        tuple(position[leaf] for leaf in inputs),
        tuple(position[leaf] for leaf in parameters),
    )


def team_environment(threads: int) -> Environment:
    """The planner's view of the threads of one worker: a barrier is cheap, memory is common."""
    link = Link(latency=1e-6, bandwidth=3e10, shared_memory=True, barrier=1e-6)
    return Environment(Mesh.line(threads), link, shares_memory=True)


def data_of(leaf: Node) -> Data:
    """The data behind an input or the current data of a variable."""
    value = leaf.value
    data: Data = value.data if isinstance(value, Cell) else value
    return data


def environment_of(pool: Pool) -> Environment:
    """The planner's view of a pool."""
    topology = pool.topology
    shared = topology.shares_memory and topology.device == "cpu"
    link = Link(
        latency=2e-6 if shared else 2e-5,
        bandwidth=2e10 if shared else 2e9,
        shared_memory=shared,
        barrier=2e-6 if shared else 2e-5,
    )
    return Environment(pool.mesh, link, shared, pool.deterministic)
