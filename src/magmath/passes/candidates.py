"""Candidates: the possible divisions of a node over the workers.

They follow from its index notation: on each mesh axis one letter is split, or none. A letter of the
result splits the result; a letter that is summed over leaves a pending reduction. The cuts are
those of an operand, those of the layout hint of the result, or even ones. For a matrix product
`mk,kn->mn` these are the known algorithms: splits of m and n give SUMMA with stationary C, splits
of m and k (k and n) keep A (B) in place, a split of m alone needs B on every worker, and splits of
m, n and k give the 2.5D algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, product
from typing import final

from magmath.core.dtypes import bool_
from magmath.graph import Node
from magmath.graph.collective_nodes import is_collective
from magmath.graph.index_notation import LOGICAL_PARTS, IndexNotation
from magmath.layout import CutPieces, Layout, Mesh, Split, even_cuts
from magmath.passes.environment import Environment

AxisSplit = tuple[str, Split] | None
"""The letter that is split on a mesh axis, and its split; None: no letter is."""


@final
@dataclass(frozen=True)
class LayoutCandidate:
    """A possible division of a node: the layouts of its operands and of its result."""

    inputs: tuple[Layout, ...]
    output: Layout


def layout_candidates(
    node: Node,
    operands: tuple[Layout, ...],
    environment: Environment,
    hint: Layout | None = None,
) -> Iterator[LayoutCandidate]:
    """Yield every candidate that the index notation of a node allows, preferred ones first."""
    if node.operation.only_layouts is not None and environment.workers > 1:
        yield LayoutCandidate(*node.operation.only_layouts(node, environment.mesh.flattened()))
        return
    if environment.workers == 1:
        yield _whole(node, environment.mesh)
        return
    notation = node.index_notation
    given_layouts = operands if hint is None else (*operands, hint)
    for mesh in _meshes(node, given_layouts, environment):
        yield from _on_mesh(node, notation, given_layouts, mesh, environment)
    if node.operation.is_additive and _are_pending_sums(operands):
        yield LayoutCandidate(operands, operands[0])
    if is_contraction(notation) and not environment.deterministic:
        yield from _on_grids(node, notation, environment)
    collective = node.operation.collective
    if collective is not None and (
        collective.is_worker_independent or not environment.deterministic
    ):
        layouts = collective.layouts(node, environment.mesh.flattened())
        if layouts is not None:
            yield LayoutCandidate(*layouts)


def _whole(node: Node, mesh: Mesh) -> LayoutCandidate:
    """Return the only candidate on a single worker, which has whole arrays."""
    inputs = tuple([_undivided_layout(x.shape, mesh) for x in node.inputs])
    return LayoutCandidate(inputs, _undivided_layout(node.shape, mesh))


def _undivided_layout(shape: tuple[int, ...], mesh: Mesh) -> Layout:
    return _interned_layout(shape, mesh, (None,) * len(shape), (None,) * mesh.ndim)


def _on_mesh(
    node: Node,
    notation: IndexNotation,
    given_layouts: tuple[Layout, ...],
    mesh: Mesh,
    environment: Environment,
) -> Iterator[LayoutCandidate]:
    """Yield the candidates on a mesh, of which each axis divides another letter, or none."""
    axis_splits = [
        list(_axis_splits(node, notation, given_layouts, mesh, axis, environment))
        for axis in range(mesh.ndim)
    ]
    for splits in product(*axis_splits):
        letters = [split[0] for split in splits if split is not None]
        candidate = None
        if len(set(letters)) == len(letters):
            candidate = _candidate(node, notation, mesh, splits)
        if candidate is not None:
            yield candidate


def is_contraction(notation: IndexNotation) -> bool:
    """Return True for a sum over letters that several operands have.

    Such a node gains more from splits of two or three letters than from a split of one, because
    every worker then needs less of each operand.
    """
    letters = "".join(notation.inputs).replace(".", "").lower()
    return any(letters.count(c) > 1 and c not in notation.result_letters for c in letters)


def _are_pending_sums(operands: Sequence[Layout]) -> bool:
    """Return True for equal layouts of summands, which may be added before they are reduced."""
    first = operands[0]
    return len(set(operands)) == 1 and {*first.partial} - {None} == {"sum"}


def _on_grids(
    node: Node, notation: IndexNotation, environment: Environment
) -> Iterator[LayoutCandidate]:
    """Yield candidates on all workers as a grid of two or three dimensions, each of which divides a
    letter evenly.

    Of the grids for the same letters, the function yields the one on which a worker touches the
    fewest elements (Irony, Toledo and Tiskin, 2004).
    """
    letters = _letters(node, notation, environment)
    for dimensions in (2, 3):
        grids = _factorized(environment.workers, dimensions)
        for chosen in combinations(letters, dimensions):
            divided = [
                _candidate(
                    node,
                    notation,
                    _interned_mesh(grid, environment.mesh.workers),
                    tuple(
                        (letter, Split.even(axis, letters[letter], count))
                        for axis, (letter, count) in enumerate(zip(chosen, grid, strict=True))
                    ),
                )
                for grid in grids
                if all(letters[c] >= count for c, count in zip(chosen, grid, strict=True))
            ]
            fitting = [candidate for candidate in divided if candidate is not None]
            if fitting:
                yield min(fitting, key=_touched_elements)


def algorithm(node: Node, candidate: LayoutCandidate) -> str:
    """Return the name of the algorithm of a candidate for a contraction of two operands, or for a
    LAPACK operation."""
    if node.operation.uses_lapack:
        return _lapack_algorithm(node, candidate)
    notation = node.index_notation
    split = set()
    for letters, layout in zip(
        (*notation.inputs, notation.output), (*candidate.inputs, candidate.output), strict=True
    ):
        split |= {c for c, s in zip(letters, layout.splits, strict=True) if s is not None}
    a, b = notation.inputs[:2]
    groups = {(c in a, c in b, c in notation.output) for c in split}
    return _ALGORITHMS.get(frozenset(groups), "mixed")


def _lapack_algorithm(node: Node, candidate: LayoutCandidate) -> str:
    if is_collective(node, candidate.inputs, candidate.output):
        return "collective"
    if candidate.output.mesh.size == 1:
        return "one worker"
    return "replicated" if candidate.output.is_replicated else "batch"


_ROWS, _COLUMNS, _SUMMED, _BATCH = (
    (True, False, True),
    (False, True, True),
    (True, True, False),
    (True, True, True),
)
_ALGORITHMS = {
    frozenset[tuple[bool, bool, bool]](): "replicated",
    frozenset({_ROWS}): "B replicated",
    frozenset({_COLUMNS}): "A replicated",
    frozenset({_SUMMED}): "partial sums",
    frozenset({_BATCH}): "batch",
    frozenset({_ROWS, _COLUMNS}): "C stationary",
    frozenset({_ROWS, _SUMMED}): "A stationary",
    frozenset({_COLUMNS, _SUMMED}): "B stationary",
    frozenset({_ROWS, _COLUMNS, _SUMMED}): "2.5D",
}


def _touched_elements(candidate: LayoutCandidate) -> int:
    """Return the number of elements of operands and result on the busiest worker."""
    return sum(layout.max_local_size for layout in (*candidate.inputs, candidate.output))


@cache
def _factorized(count: int, dimensions: int) -> list[tuple[int, ...]]:
    """Return the grids that `count` workers can form, with this many dimensions of extent 2 or
    more."""
    if dimensions == 1:
        return [(count,)] if count > 1 else []
    return [
        (first, *rest)
        for first in range(2, count // 2 + 1)
        if count % first == 0
        for rest in _factorized(count // first, dimensions - 1)
    ]


@lru_cache(maxsize=256)
def _interned_mesh(shape: tuple[int, ...], workers: tuple[int, ...]) -> Mesh:
    """Intern meshes so that their cached properties are shared."""
    return Mesh(shape, None, workers)


def _meshes(node: Node, given_layouts: tuple[Layout, ...], environment: Environment) -> list[Mesh]:
    """Return the meshes on which a node may be computed: that of all workers first."""
    meshes = [environment.mesh]
    if environment.deterministic:
        return meshes
    if node.operation.uses_lapack and environment.workers > 1 and environment.shares_memory:
        meshes.append(environment.first_worker)
    for layout in given_layouts:
        if layout.boxes is None and layout.mesh not in meshes:
            meshes.append(layout.mesh)
    return meshes


def _axis_splits(
    node: Node,
    notation: IndexNotation,
    given_layouts: tuple[Layout, ...],
    mesh: Mesh,
    axis: int,
    environment: Environment,
) -> Iterator[AxisSplit]:
    """Yield the splits on one mesh axis: each letter with each reasonable set of cuts, then no
    split."""
    if mesh.shape[axis] > 1:
        letters = _letters(node, notation, environment)
        for letter, extent in letters.items():
            for split in _splits(letter, extent, notation, given_layouts, mesh, axis, environment):
                yield letter, split
    yield None


def _letters(node: Node, notation: IndexNotation, environment: Environment) -> dict[str, int]:
    """Return the letters that may be split with their extents, those of the result first."""
    extents = notation.extents([x.shape for x in node.inputs], node.shape)
    if environment.deterministic:
        letter = notation.logical_letter(node.shape)
        return {} if letter is None else {letter: extents[letter]}
    reduces = node.operation.reduction is not None
    outer = notation.result_letters
    inner = [c for c in extents if c.islower() and c not in outer] if reduces else []
    return {c: extents[c] for c in (*outer, *inner) if extents[c] > 1}


def _splits(
    letter: str,
    extent: int,
    notation: IndexNotation,
    given_layouts: tuple[Layout, ...],
    mesh: Mesh,
    axis: int,
    environment: Environment,
) -> list[Split]:
    """Return the splits of a letter on one mesh axis: those of the operands and of the layout hint,
    then an even one."""
    if environment.deterministic:
        return [logical_split(axis, extent, mesh.shape[axis])]
    present = [
        split
        for letters, layout in zip((*notation.inputs, notation.output), given_layouts, strict=False)
        if layout.boxes is None and layout.mesh == mesh
        for other, split in zip(letters, layout.splits, strict=True)
        if other == letter
    ]
    splits = [split for split in present if split is not None and split.mesh_axis == axis]
    # The first of equal costs is chosen: `a[1:] -= b[:-1]` stays where the rows of a are.
    return list(dict.fromkeys([*splits, Split.even(axis, extent, mesh.shape[axis])]))


@lru_cache(maxsize=4096)
def logical_split(axis: int, extent: int, workers: int) -> Split:
    """Return a split that cuts only between logical parts, so that the parts are the same for every
    number of workers."""
    parts = even_cuts(extent, LOGICAL_PARTS)
    shares = even_cuts(LOGICAL_PARTS, workers)
    return Split(axis, CutPieces(tuple(parts[share] for share in shares), tuple(range(workers))))


def _candidate(
    node: Node, notation: IndexNotation, mesh: Mesh, axis_splits: tuple[AxisSplit, ...]
) -> LayoutCandidate | None:
    """Return the candidate of these splits; None if a dimension cannot follow its letter."""
    splits = dict([axis_split for axis_split in axis_splits if axis_split is not None])
    followed = [letter for letter in splits if notation.is_followed(letter)]
    splits_of: list[Mapping[str, Split]] = []  # of each operand, and of the result
    for i, letters in enumerate((*notation.inputs, notation.output)):
        operand = None if i == len(node.inputs) else i
        here = [letter for letter in followed if letter.upper() in letters]
        following = _following(node, here, splits, operand)
        if following is None:
            return None
        splits_of.append({**splits, **following})
    inputs = tuple(
        _layout_with(source.shape, letters, mesh, operand_splits)
        for letters, source, operand_splits in zip(
            notation.inputs, node.inputs, splits_of[:-1], strict=True
        )
    )
    reduction = _pending_reduction(node)
    partial = tuple(
        reduction if axis_split and axis_split[0] not in notation.result_letters else None
        for axis_split in axis_splits
    )
    output = _layout_with(node.shape, notation.output, mesh, splits_of[-1], partial)
    return LayoutCandidate(inputs, output)


def _pending_reduction(node: Node) -> str | None:
    """Return the reduction that completes partial results.

    An operation that selects elements adds what the workers have of each: one the element, the
    others 0. For truth values this is `any`.
    """
    reduction = node.operation.reduction
    return "any" if reduction == "sum" and node.dtype is bool_ else reduction


def _following(
    node: Node, letters: Sequence[str], splits: Mapping[str, Split], operand: int | None
) -> dict[str, Split] | None:
    """Return the splits of the dimensions of an operand, or of the result (None), that follow these
    letters; None if one cannot follow."""
    by_letter = {}
    for letter in letters:
        assert node.operation.derived_split is not None
        following = node.operation.derived_split(node, letter, splits[letter], operand)
        if following is None:
            return None
        by_letter[letter.upper()] = following
    return by_letter


def _layout_with(
    shape: tuple[int, ...],
    letters: str,
    mesh: Mesh,
    splits: Mapping[str, Split],
    partial: tuple[str | None, ...] = (),
) -> Layout:
    return _interned_layout(shape, mesh, tuple([splits.get(c) for c in letters]), partial)


@lru_cache(maxsize=16384)
def _interned_layout(
    shape: tuple[int, ...],
    mesh: Mesh,
    splits: tuple[Split | None, ...],
    partial: tuple[str | None, ...],
) -> Layout:
    """Intern layouts so that their cached properties are shared."""
    return Layout(shape, mesh, splits, partial).interned()
