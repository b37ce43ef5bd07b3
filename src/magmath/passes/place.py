"""Place: choose a layout for every node and insert the redistributions that this needs.

The candidates of a node follow from its index structure: on each mesh axis one letter is split, or
none. A letter of the result splits it; a letter that is summed over leaves a pending reduction. The
cuts are those that an operand has already, or even ones. Each candidate is priced: moving operands
into place (copies made before are free), the local arithmetic, and what its result must still go
through; the cheapest is taken, node by node. Whatever layouts users chose, the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from magmath.graph import Graph, Node
from magmath.graph.structure import LOGICAL_PARTS, Structure, logical_letter, structure_of
from magmath.layout import Blocks, Layout, Mesh, Split, even_cuts, plan, price
from magmath.layout.redistribution import SMALL
from magmath.ops.movement import redistribute
from magmath.passes.compute import compute_seconds, reduction_seconds
from magmath.passes.environment import Environment

RESOLUTION = 5e-7  # seconds; candidates closer than this count as equal, and the first is taken


def place(graph: Graph, environment: Environment) -> Graph:
    """The graph with a layout on every node; outputs with targets end in their target's layout."""
    placing = _Placing(environment, _wanted_layouts(graph))
    for node in graph.nodes:
        placing.place(node)
    outputs = tuple(
        placing.delivered(placing.new[node], target.layout)
        if target is not None and target.layout is not None
        else placing.resolved(placing.new[node])
        for node, target in zip(graph.outputs, _padded_targets(graph), strict=True)
    )
    emitted = tuple(
        placing.moved(placing.new[node], environment.whole(node.shape)) for node in graph.emitted
    )
    return Graph(outputs, graph.targets, emitted)


def _padded_targets(graph: Graph) -> tuple[Node | None, ...]:
    return graph.targets or (None,) * len(graph.outputs)


def _wanted_layouts(graph: Graph) -> dict[Node, Layout]:
    """The layouts that outputs must end in."""
    pairs = zip(graph.outputs, _padded_targets(graph), strict=True)
    return {node: t.layout for node, t in pairs if t is not None and t.layout is not None}


@dataclass(frozen=True)
class Candidate:
    """A way to compute a node: the layouts of its operands and of its result."""

    inputs: tuple[Layout, ...]
    output: Layout


@dataclass
class _Placing:
    """The state of one pass: what each node became, and the copies made so far."""

    environment: Environment
    wanted: Mapping[Node, Layout]
    new: dict[Node, Node] = field(default_factory=dict)
    copies: dict[tuple[Node, Layout], Node] = field(default_factory=dict)

    def place(self, node: Node) -> None:
        if node.is_leaf:
            self.new[node] = self._placed_leaf(node)
        elif node.name == "redistribute":
            assert node.layout is not None
            self.new[node] = self.moved(self.new[node.inputs[0]], node.layout)
        else:
            self.new[node] = self._placed(node)

    def _placed_leaf(self, node: Node) -> Node:
        if node.layout is not None:
            return node
        return node.replace((), self.environment.whole(node.shape))

    def _placed(self, node: Node) -> Node:
        operands = [self.new[source] for source in node.inputs]
        layouts = tuple(_layout(operand) for operand in operands)
        best = min(
            candidates(node, layouts, self.environment),
            key=lambda c: self._cost(node, operands, c),
        )
        moved = tuple(
            self.moved(operand, layout)
            for operand, layout in zip(operands, best.inputs, strict=True)
        )
        return node.replace(moved, best.output)

    def moved(self, node: Node, layout: Layout) -> Node:
        """`node` in `layout`, by a copy made before if there is one.

        Workers that share memory gather into one shared copy, and reduce in one step.
        """
        have = _layout(node)
        if _serves(have, layout):
            return node
        if layout.is_replicated and not (
            have.is_replicated or (have.is_partial and node.size <= SMALL)
        ):
            layout = self._gathered(node, layout)
        for stage in plan(have, layout).stages:
            if (node, stage.target) not in self.copies:
                self.copies[node, stage.target] = redistribute(node, stage.target)
            node = self.copies[node, stage.target]
        return node

    def delivered(self, node: Node, layout: Layout) -> Node:
        """`node` in exactly this layout: copied out of a shared copy where that is not shared."""
        moved = self.moved(node, layout)
        return moved if moved.layout == layout else redistribute(moved, layout)

    def _gathered(self, node: Node, layout: Layout) -> Layout:
        """Replicated, as one copy for all workers of a host where they share memory."""
        shared = self.environment.whole(node.shape, shared=True)
        return shared if layout.mesh == shared.mesh and node.shape != () else layout

    def resolved(self, node: Node) -> Node:
        """`node` without pending reductions."""
        layout = _layout(node)
        return self.moved(node, _reduced(layout)) if layout.is_partial else node

    # prices, in seconds -----------------------------------------------------------------------

    def _cost(self, node: Node, operands: list[Node], candidate: Candidate) -> int:
        moves = sum(
            self._price(operand, layout)
            for operand, layout in zip(operands, candidate.inputs, strict=True)
        )
        compute = compute_seconds(node, candidate.inputs, candidate.output, self.environment)
        seconds = moves + compute + self._afterwards(node, candidate)
        return round(seconds / RESOLUTION)

    def _price(self, operand: Node, layout: Layout) -> float:
        have = _layout(operand)
        if _serves(have, layout) or (operand, layout) in self.copies:
            return 0.0
        if layout.is_replicated:
            shared = self.environment.whole(operand.shape, shared=True)
            if (operand, shared) in self.copies:
                return 0.0
            if layout.mesh == shared.mesh:
                layout = shared
        return _price(have, layout, operand.dtype.itemsize, self.environment)

    def _afterwards(self, node: Node, candidate: Candidate) -> float:
        """What the result must still go through: its reduction, its way to where it is wanted."""
        output, itemsize = candidate.output, node.dtype.itemsize
        cost = 0.0
        if output.is_partial:
            reduced = _reduced(output)
            cost += _price(output, reduced, itemsize, self.environment)
            cost += reduction_seconds(node, reduced, self.environment)
            output = reduced
        if node in self.wanted:
            return cost + _price(output, self.wanted[node], itemsize, self.environment)
        if not output.is_replicated and all(x.is_replicated for x in candidate.inputs):
            whole = self.environment.whole(node.shape)
            cost += 0.5 * _price(output, whole, itemsize, self.environment)
        return cost


def _layout(node: Node) -> Layout:
    assert node.layout is not None, f"{node} has no layout"
    return node.layout


def _serves(have: Layout, want: Layout) -> bool:
    """True if an array in layout `have` can be read as if it were in `want`."""
    if have == want:
        return True
    return (
        have.shared
        and not want.shared
        and have.is_replicated
        and (want.is_replicated and want.mesh == have.mesh)
    )


@lru_cache(maxsize=65536)
def _price(have: Layout, want: Layout, itemsize: int, environment: Environment) -> float:
    if have == want:
        return 0.0
    return price(plan(have, want), itemsize, environment.link)


def _reduced(layout: Layout) -> Layout:
    """Where a pending reduction goes by default: split along the first dimension long enough."""
    result = layout.without_partial()
    for axis, reduction in enumerate(layout.partial):
        if reduction is None:
            continue
        count = layout.mesh.shape[axis]
        for d, extent in enumerate(layout.shape):
            if result.splits[d] is None and extent >= count:
                result = result.replace_split(d, Split.even(axis, extent, count))
                break
    return result


# candidates ---------------------------------------------------------------------------------------


def candidates(
    node: Node, operands: tuple[Layout, ...], environment: Environment
) -> Iterator[Candidate]:
    """Every way to compute a node that its index structure allows, preferred ones first."""
    structure = structure_of(node)
    for mesh in _meshes(operands, environment):
        choices = [
            list(_choices(node, structure, operands, mesh, axis, environment))
            for axis in range(mesh.ndim)
        ]
        for choice in product(*choices):
            letters = [c[0] for c in choice if c is not None]
            if len(set(letters)) == len(letters):
                yield _candidate(node, structure, mesh, choice)


Choice = tuple[str, Split] | None


def _meshes(operands: tuple[Layout, ...], environment: Environment) -> list[Mesh]:
    meshes = [environment.mesh]
    if environment.deterministic:
        return meshes
    for layout in operands:
        if layout.boxes is None and layout.mesh not in meshes:
            meshes.append(layout.mesh)
    return meshes


def _choices(
    node: Node,
    structure: Structure,
    operands: tuple[Layout, ...],
    mesh: Mesh,
    axis: int,
    environment: Environment,
) -> Iterator[Choice]:
    """On one mesh axis: each letter with each reasonable way to cut it, or no split at all."""
    if mesh.shape[axis] > 1:
        letters = _letters(node, structure, environment)
        for letter, extent in letters.items():
            for split in _splits(letter, extent, structure, operands, mesh, axis, environment):
                yield letter, split
    yield None


def _letters(node: Node, structure: Structure, environment: Environment) -> dict[str, int]:
    """The letters that may be split, the result's first."""
    extents = structure.extents(node)
    if environment.deterministic:
        letter = logical_letter(structure, node)
        return {} if letter is None else {letter: extents[letter]}
    reduces = node.operation.reduction is not None
    inner = [c for c in extents if c not in structure.output] if reduces else []
    outer = [c for c in structure.output if c != "."]
    return {c: extents[c] for c in (*outer, *inner) if extents[c] > 1}


def _splits(
    letter: str,
    extent: int,
    structure: Structure,
    operands: tuple[Layout, ...],
    mesh: Mesh,
    axis: int,
    environment: Environment,
) -> list[Split]:
    if environment.deterministic:
        return [logical_split(axis, extent, mesh.shape[axis])]
    found = [Split.even(axis, extent, mesh.shape[axis])]
    for letters, layout in zip(structure.inputs, operands, strict=True):
        if layout.boxes is None and layout.mesh == mesh:
            for d, c in enumerate(letters):
                split = layout.splits[d]
                if c == letter and split is not None and split.axis == axis and split not in found:
                    found.append(split)
    return found


@lru_cache(maxsize=4096)
def logical_split(axis: int, extent: int, workers: int) -> Split:
    """A split that cuts between logical parts, so that every worker count has the same parts."""
    parts = even_cuts(extent, LOGICAL_PARTS)
    shares = even_cuts(LOGICAL_PARTS, workers)
    return Split(axis, Blocks(tuple(parts[share] for share in shares), tuple(range(workers))))


def _candidate(
    node: Node, structure: Structure, mesh: Mesh, choice: tuple[Choice, ...]
) -> Candidate:
    splits = {c[0]: c[1] for c in choice if c is not None}
    inputs = tuple(
        _bound(source.shape, letters, mesh, splits)
        for letters, source in zip(structure.inputs, node.inputs, strict=True)
    )
    partial = tuple(
        node.operation.reduction if c is not None and c[0] not in structure.output else None
        for c in choice
    )
    return Candidate(inputs, _bound(node.shape, structure.output, mesh, splits, partial))


def _bound(
    shape: tuple[int, ...],
    letters: str,
    mesh: Mesh,
    splits: Mapping[str, Split],
    partial: tuple[str | None, ...] = (),
) -> Layout:
    return Layout(shape, mesh, tuple(splits.get(c) for c in letters), partial)
