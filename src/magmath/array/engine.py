"""The engine: from graphs to running programs on one pool, with programs cached by structure.

A graph is cut out, its evaluated parts replaced by leaves, and looked up by its key. On a miss the
passes run and the program is sent to the workers once; from then on a run names the program, the
handles of its inputs and the values of its parameters.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, final
from weakref import ref

import msgspec

from magmath.array.copies import Copies
from magmath.array.data import Data, data_of, leaf_of, untold
from magmath.array.reuse import (
    held_on_the_way,
    held_results,
    holds_alone,
    is_private,
    is_referred_to,
    reused,
)
from magmath.array.rng_state import RngState
from magmath.core.dtypes import DType
from magmath.errors import MagmathError
from magmath.graph import Graph, Node, Provenance, Shape, recipe_of, topological, users_of
from magmath.graph.node import NO_ATTRIBUTES
from magmath.layout import Layout, Mesh
from magmath.layout.cost import Link
from magmath.ops.leaves import CONSTANT, PARAMETER, VARIABLE
from magmath.ops.movement import REDISTRIBUTE, redistribute
from magmath.passes import pipeline
from magmath.passes.environment import Environment
from magmath.passes.expand import expand
from magmath.passes.place import place
from magmath.passes.simplify import simplify
from magmath.passes.transfer import crosses
from magmath.program.instructions import Program
from magmath.program.lower import lower

if TYPE_CHECKING:
    from magmath.runtime.messages import Number
    from magmath.runtime.pending import Run
    from magmath.runtime.pool import Pool

KEPT_PROGRAMS = 512
KEPT_BYTES = 64 << 10  # of an array whose copies in other layouts are kept
KEPT_VALUES = 16  # of what was computed on the way, and is held by somebody
MOST_KEEPING = 1000  # nodes of an expression that is looked through for that
AT_ONCE_BYTES = 32 << 10  # of the largest array, where fusing begins to win over planning
Progress = Callable[[int, list[float]], None]
NOTHING: Mapping[Node, list[Node]] = {}
OPEN = nullcontext()


class Target(Protocol):
    """A variable, as the engine sees it."""

    def release(self) -> list[Node]:
        """A list that is the only reference to the leaf with the value, but for the variable's own
        and those of other users."""

    def set_value(self, data: Data) -> None:
        """Have another value from now on."""


@dataclass(frozen=True)
class Compiled:
    """A program on the workers, and which leaves of its graph it takes, by position."""

    identifier: int
    program: Program
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]

    @cached_property
    def results(self) -> list[tuple[Shape, DType, Layout]]:
        """What the outputs are; of equal layouts those that arrays usually have, found at once to
        be equal."""
        slots = [self.program.slots[output] for output in self.program.outputs]
        usual = [Layout.whole(x.shape, x.layout.mesh, shared=x.layout.shared) for x in slots]
        return [
            (x.shape, x.dtype, y if y == x.layout else x.layout)
            for x, y in zip(slots, usual, strict=True)
        ]


@final
class Repeat:
    """What it takes to repeat a run that Ctrl-C may abandon between two instructions: its results
    are computed when they are asked for again."""

    __slots__ = ("_compiled", "_given", "_numbers", "_outputs")

    def __init__(
        self,
        compiled: Compiled,
        given: Sequence[Data],
        numbers: Sequence[Number],
        outputs: Sequence[Data],
    ) -> None:
        self._compiled, self._given, self._numbers = compiled, given, numbers
        self._outputs = [ref(data) for data in outputs]

    def __call__(self, engine: Engine) -> None:
        """Run it again; the arrays that it should have made are those that this makes."""
        made, _ = engine.start(self._compiled, self._given, self._numbers)
        for output, data in zip(self._outputs, made, strict=True):
            former = output()
            if former is not None:
                former.exchange(data)


class Engine:
    """Programs of one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.environment = environment_of(pool)
        self.at_once_bytes = AT_ONCE_BYTES
        self.rng_state = RngState(pool.seed)
        self._programs: OrderedDict[Hashable, Compiled] = OrderedDict()
        self._kept: deque[ref[Node]] = deque()
        self._last: Run | None = None
        self.recorder: Callable[[Run], object] | None = None  # profiles, while it is set
        self.copies = Copies(pool.workers, pool.memory_limit)
        self._moves: OrderedDict[Hashable, tuple[tuple[int, Layout], ...]] = OrderedDict()

    def compile(self, graph: Graph) -> Compiled:
        """The program of a graph of leaves that all have layouts; made on a miss."""
        key = graph.key
        compiled = self._programs.get(key)
        if compiled is not None:
            self._programs.move_to_end(key)
            return compiled
        compiled = self._programs[key] = self._build(graph)
        if len(self._programs) > KEPT_PROGRAMS:
            self._forget_oldest()
        return compiled

    def _forget_oldest(self) -> None:
        """Drop the program that has not been asked for the longest, of those that nobody holds:
        compiled functions and optimizers run theirs without asking."""
        for _ in range(len(self._programs)):
            key, oldest = self._programs.popitem(last=False)
            identifier, held = oldest.identifier, ref(oldest)
            del oldest
            found = held()
            if found is None:
                self.pool.forget(identifier)
                return
            self._programs[key] = found
            del found

    def _build(self, graph: Graph) -> Compiled:
        lowered = _lowered(graph, self.environment)
        team = self._team(graph, lowered)
        program = msgspec.structs.replace(lowered.program, team=team)
        return replace(lowered, identifier=self.pool.define(program), program=program)

    def _team(self, graph: Graph, single: Compiled) -> Program | None:
        """The same for the threads of a single worker, where a loop will run it."""
        topology = self.pool.topology
        updates = bool(graph.targets) and all(t and t.name == "variable" for t in graph.targets)
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
        beside: bool = False,
    ) -> tuple[list[Data], Run]:
        """Run a program on the data of `leaves`; the outputs' data, and the run itself.

        Variables among the targets must be given their new data by the caller. Raises MagmathError
        for data of another pool.
        """
        given = [data_of(leaves[i]) for i in compiled.inputs]
        numbers = [leaves[i].value for i in compiled.parameters]
        return self.start(compiled, given, numbers, steps=steps, progress=progress, beside=beside)

    def start(
        self,
        compiled: Compiled,
        given: Sequence[Data],
        numbers: Sequence[Number],
        *,
        steps: int = 1,
        progress: Progress | None = None,
        beside: bool = False,
    ) -> tuple[list[Data], Run]:
        """The same, given the arrays and the numbers that the program takes, in their order."""
        if self.pool.memory_limit is not None:
            self.copies.make_room(self.pool.held_bytes)
        timed = self.recorder is not None
        run = self.pool.run(
            compiled.identifier,
            self.handles(given),
            numbers,
            steps=steps,
            progress=progress,
            timed=timed,
            beside=beside,
        )
        self._last = run
        if self.recorder is not None:
            run.values()
            self.recorder(run)
        outputs = []
        for handle, (shape, dtype, layout) in zip(run.outputs, compiled.results, strict=True):
            outputs.append(Data(self.pool, handle, shape, dtype, layout, run))
        if run.may_be_abandoned and self.pool.memory_limit is None:
            run.repeat = Repeat(compiled, tuple(given), tuple(numbers), outputs)
        if self.pool.interrupts.count:
            self.pool.interrupt_point()
        return outputs, run

    def restore(self, given: Sequence[Data]) -> None:
        """Compute arrays again that a run which was interrupted should have made."""
        for data in given:
            run = data.origin
            if run is not None and run.repeat is not None and self.pool.was_abandoned(data.handle):
                repeat: Repeat = run.repeat
                repeat(self)

    def wait(self) -> None:
        """Wait until everything that was started is done; raises what went wrong in it."""
        if self._last is not None:
            self._last.values()

    def handles(self, given: Sequence[Data]) -> list[int]:
        """The numbers of arrays. Raises MagmathError for data of another pool."""
        if self.pool.any_failed:
            self.restore(given)
        return [
            data.handle if data.pool is self.pool else self._checked(data).handle for data in given
        ]

    def _checked(self, data: Data) -> Data:
        if data.pool is not self.pool:
            raise MagmathError(
                f"an array of shape {data.shape} lies in another pool, which has ended or is not "
                f"the current one; make it again in this pool (mm.init starts with no arrays)"
            )
        return data

    def evaluate(self, nodes: Sequence[Node]) -> list[Node]:
        """Input leaves holding the values of `nodes`.

        Raises TracingError where they depend on arguments of a function that is being traced.
        """
        known = {node: self.redistributed(node) for node in nodes if _is_copy(node)}
        wanted = tuple(dict.fromkeys([node for node in nodes if node not in known]))
        known |= self._computed(wanted) if wanted else {}
        _note_results(known)
        return [known[node] for node in nodes]

    def assign(self, pairs: Sequence[tuple[Target, Node]]) -> None:
        """Compute new values for variables.

        A new value takes the memory of the former one, unless something else refers to that. What
        data can make fail is waited for: then the variables keep their values.
        """
        nodes = dict.fromkeys([node for _, node in pairs])
        wanted = tuple([node for node in nodes if _pending(node)])
        order = topological(wanted, cut=True)
        certain = not any(map(can_fail, order))
        overwritten = {node: v.release() for v, node in pairs} if certain else {}
        known = {node: node.known for node in nodes}
        with self.pool.uninterrupted():
            if wanted:
                made = self._computed(wanted, overwritten)
                if not certain:
                    self.wait()
                _note_results(made)
                known |= made
            for v, node in pairs:
                v.set_value(data_of(known[node]))

    def _computed(
        self, wanted: tuple[Node, ...], overwritten: Mapping[Node, list[Node]] = NOTHING
    ) -> dict[Node, Node]:
        """Input leaves with the values of nodes; `overwritten` has for the new values of variables
        the leaves of the former ones."""
        order, results = topological(wanted, cut=True), wanted
        asked, held = len(wanted), held_on_the_way(order, wanted)
        expression = order
        if any(node.operation.expand and node.value is None for node in order):
            simpler = expand(self.cut(Graph(wanted)))
            order, results = simpler.nodes, simpler.outputs
        elif len(order) <= MOST_KEEPING and self.pool.memory_limit is None:
            wanted = results = (*wanted, *held_results(order, held))
        given = self._small(order, results)
        targets: tuple[Node | None, ...] = ()
        if given is None and results is wanted:
            wanted, targets = reused(order, wanted)
            targets = _with_former_values(order, wanted, targets, overwritten)
        with self.pool.uninterrupted() if any(targets) else OPEN:
            if given is not None:
                outputs = self._compute(order, results, given)
            else:
                graph = self.with_copies(self.cut(Graph(wanted, targets)), make=True)
                outputs, _ = self.run(self.compile(graph), graph.leaves)
            known = dict(zip(wanted, map(leaf_of, outputs), strict=True))
            if any(targets):  # whose expressions cannot be computed again
                for node, leaf in known.items():
                    node.value = leaf
        _note_provenance(known, expression, held)
        for node in wanted[asked:]:
            node.value = known[node]
            if not node.operation.updates:  # which cannot be computed again
                self._keep(node)
        return known

    def _keep(self, node: Node) -> None:
        """Note that a value is there for whoever holds the node; let go of the oldest such one, if
        it is no array's by now."""
        self._kept.append(ref(node))
        oldest = self._kept.popleft()() if len(self._kept) > KEPT_VALUES else None
        if oldest is not None and holds_alone(oldest):
            oldest.value = None

    def forget_failed(self) -> None:
        """Let go of what was kept of failed runs: it was not asked for, and is computed again."""
        if self.pool.any_failed:
            for node in [node for kept in self._kept if (node := kept()) is not None]:
                if node.value is not None and self.pool.has_failed(data_of(node.value).handle):
                    node.value = None

    def with_copies(self, graph: Graph, *, make: bool) -> Graph:
        """The graph with copies in other layouts in place of arrays that it would only move there:
        those that are kept, and with `make` new ones, to be kept for the next use."""
        if self.environment.workers == 1:
            return graph
        new: dict[Node, Node] = {}
        for position, layout in self._moves_of(graph):
            leaf = graph.leaves[position]
            if leaf in graph.targets:
                continue
            if make:
                new[leaf] = self.redistributed(redistribute(leaf, layout))
            elif (copy := self.copies.find(data_of(leaf), layout)) is not None:
                new[leaf] = leaf_of(copy)
        return graph.substituted(new) if new else graph

    def _moves_of(self, graph: Graph) -> tuple[tuple[int, Layout], ...]:
        """The arrays, by their position among the leaves, that a graph has no other use for than to
        move them between workers, and the layouts into which it does."""
        large = any(leaf.name == "input" and _nbytes(leaf) >= KEPT_BYTES for leaf in graph.leaves)
        if not large:
            return ()
        key = graph.key
        if key not in self._moves:
            self._moves[key] = tuple(_moves(graph, self.environment))
            if len(self._moves) > KEPT_PROGRAMS:
                self._moves.popitem(last=False)
        return self._moves[key]

    def redistributed(self, node: Node, *, beside: bool = False) -> Node:
        """The leaf of a copy of an array in another layout: one that is kept, or a new one, which
        the workers may make `beside` what they do next."""
        source, layout = data_of(node.inputs[0]), node.layout
        assert layout is not None
        copy = self.copies.find(source, layout)
        if copy is None:
            graph = self.cut(Graph((node,)))
            (copy,), _ = self.run(self.compile(graph), graph.leaves, beside=beside)
            if self.environment.workers > 1:
                self.copies.keep(source, layout, copy, self.pool.held_bytes)
        leaf = leaf_of(copy)
        _note_provenance({node: leaf}, [*node.inputs, node], ())
        return leaf

    def settles(self, own: Sequence[Node]) -> bool:
        """True if a written array, the first of `own`, is better computed at once: only `own`
        would be lost to gradients. What waits for an earlier write waits on."""
        if any(x.operation.updates and x.value is None for x in own[0].inputs[:1]):
            return False
        return is_private(topological(own[:1], cut=True), own)

    def _small(self, order: Sequence[Node], wanted: Sequence[Node]) -> dict[Node, int] | None:
        """The numbers of the arrays behind leaves and known nodes, if the nodes are computed as
        they come, and not by a program, which pays for everything else.

        That is so on the worker of this process, where all arrays are small and lie whole. Raises
        TracingError where an argument of a function that is being traced is among them.
        """
        pool, most = self.pool, self.at_once_bytes
        small = pool.direct and not self.environment.deterministic and self.recorder is None
        small &= not any(node.operation.leaf or node.operation is CONSTANT for node in wanted)
        given: dict[Node, int] = {}
        for node in order:
            operation, form = node.operation, node.form
            if operation is PARAMETER and node.value is not None:
                continue
            if operation is VARIABLE:
                raise untold()
            if node.value is not None or operation.leaf:
                data = data_of(node)
                small = small and data.layout.is_alone and data.nbytes <= most
                given[node] = data.handle if data.pool is pool else self._checked(data).handle
            elif operation is REDISTRIBUTE or (form.nbytes if form else _nbytes(node)) > most:
                small = False
        return given if small else None

    def _compute(
        self, order: Sequence[Node], wanted: Sequence[Node], given: dict[Node, int]
    ) -> list[Data]:
        made = self.pool.compute(order, wanted, given)
        found = [
            Data(self.pool, handle, node.shape, node.dtype, layout)
            for node, (handle, layout) in zip(wanted, made, strict=True)
        ]
        if self.pool.interrupts.count:
            self.pool.interrupt_point()
        return found

    def cut(self, graph: Graph) -> Graph:
        """The graph with leaves in place of the nodes whose values are known."""
        new: dict[Node, Node] = {}
        for node in topological(graph.roots, cut=True):
            if node.is_leaf:
                new[node] = node
            elif node.value is not None:
                new[node] = node.value
            else:
                inputs = tuple([new[source] for source in node.inputs])
                new[node] = node if inputs == node.inputs else node.replace(inputs)
        return graph.mapped(new)


def _pending(node: Node) -> bool:
    """True for a node whose value has to be computed."""
    return node.value is None or node.operation is PARAMETER


def _note_results(known: Mapping[Node, Node]) -> None:
    """Tell those that refer weakly to nodes where their values are."""
    for node, leaf in known.items():
        if node.result is not None:
            node.result.found(leaf)


def can_fail(node: Node) -> bool:
    """True for an operation that fails for some values of its operands: singular matrices, indices
    out of range."""
    operation = node.operation
    if operation.elementwise or node.value is not None:
        return False
    indices = any(x.dtype.is_integer and x.operation is not PARAMETER for x in node.inputs)
    return operation.lapack or operation.expand is not None or indices


def _with_former_values(
    order: Sequence[Node],
    wanted: Sequence[Node],
    targets: Sequence[Node | None],
    overwritten: Mapping[Node, list[Node]],
) -> tuple[Node | None, ...]:
    """The leaves whose memory results take: also those of variables' former values to which nothing
    else refers."""
    if not overwritten:
        return tuple(targets)
    found = list(targets) or [None] * len(wanted)
    for node, former in overwritten.items():
        if node in wanted and former[0] not in found and not is_referred_to(former, order):
            found[wanted.index(node)] = former[0]
    return tuple(found)


def provenance_of(node: Node) -> Provenance:
    """How the value of a pending node is computed."""
    order = topological((node,), cut=True)
    known = {node: Node(PARAMETER, (), NO_ATTRIBUTES, node.shape, node.dtype)}
    _note_provenance(known, order, held_on_the_way(order, (node,)))
    found = known[node].provenance
    return found if found is not None else Provenance.unknown((), node.line)


def _note_provenance(
    known: Mapping[Node, Node], order: Sequence[Node], held: Container[Node]
) -> None:
    """Note at leaves how their values were computed: `known` nodes of an expression, in which the
    nodes that are `held` are referred to by others too."""
    with_gradients = [node for node in known if node.dtype.kind in ("float", "complex")]
    if not with_gradients:
        return
    recipe, operands, position = recipe_of(order, held)
    for node in with_gradients:
        leaf = known[node]
        if node.operation is PARAMETER:  # the number that an expression had as its value
            leaf.provenance = node.provenance
        else:
            leaf.provenance = Provenance(recipe, position[node], operands, node.line)


def _is_copy(node: Node) -> bool:
    """True for an array that is there, in another layout."""
    if node.operation is not REDISTRIBUTE or node.value is not None:
        return False
    source = node.inputs[0]
    return source.name == "input" or (not source.is_leaf and source.value is not None)


def _nbytes(node: Node) -> int:
    return node.size * node.dtype.itemsize


def _moves(graph: Graph, environment: Environment) -> Iterator[tuple[int, Layout]]:
    placed = place(simplify(graph), environment)
    users = users_of(placed.nodes)
    for position, leaf in enumerate(graph.leaves):
        using = users.get(leaf, [])
        if leaf.name != "input" or _nbytes(leaf) < KEPT_BYTES or leaf in placed.outputs:
            continue
        if len(using) == 1 and using[0].name == "redistribute":
            have, want = leaf.layout, using[0].layout
            if have and want and not want.overlaps and crosses(have, want):
                yield position, want


def _lowered(graph: Graph, environment: Environment) -> Compiled:
    """The program of a graph for certain workers, not yet sent anywhere."""
    numbers = {x: x.replace((), environment.whole(())) for x in graph.leaves if x.layout is None}
    graph = graph.substituted(numbers) if numbers else graph
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
    return Environment(
        pool.mesh, link, shared, pool.deterministic, memory=pool.memory_limit,
        bound=pool.memory_bound,
    )  # fmt: skip
