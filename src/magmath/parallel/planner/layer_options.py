"""The options of a layer on a mesh, and the states of the values between layers.

An option says what each mesh axis divides: the samples, the outputs (such as output channels), the
inputs (such as input channels), the space, or nothing. A pair of axes is one option, so the
axes of a mesh are never chosen independently: a search axis by axis ends with all axes dividing the
samples. A *state* says what each axis divides of a value; "partial" is a pending sum. The options
of strategies (`parallel/layer_layouts.py`) are others: one name for a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod
from typing import Final, NamedTuple, final

import numpy as np

from magmath.cost.collective_costs import Group
from magmath.parallel.planner.layer_graph import BATCH, CHANNEL, SPACE, Layer

OUTPUT: Final = "output"
INPUT: Final = "input"
REPLICATED: Final = "replicated"
PARTIAL: Final = "partial"
DIVISIONS: Final = (BATCH, OUTPUT, INPUT, SPACE, REPLICATED)
Option = tuple[str, ...]
"""The division on each mesh axis."""
LayerState = tuple[str, ...]
"""For each mesh axis: a role that it divides, "replicated" or "partial"."""

NEEDED_ROLES: Final = {BATCH: BATCH, OUTPUT: CHANNEL, INPUT: "input", SPACE: SPACE}
"""The role of the dimension that a division needs; "input" is the summed one."""
RESULT_ROLES: Final = {BATCH: BATCH, OUTPUT: CHANNEL, INPUT: CHANNEL, SPACE: SPACE}
"""The role of the dimension of the result that a division leaves divided."""
_OPERAND: Final = {BATCH: BATCH, OUTPUT: REPLICATED, INPUT: CHANNEL, SPACE: SPACE}


@final
@dataclass(frozen=True)
class PlannerMesh:
    """A mesh of workers: the first axis is the outer one, so members of the last axis are
    neighbours in the network."""

    shape: tuple[int, ...]

    @cached_property
    def workers(self) -> int:
        """The number of workers."""
        return prod(self.shape)

    def group(self, axes: Sequence[int]) -> Group:
        """Return the group of workers that differ in these axes, of one or all axes."""
        if len(axes) == len(self.shape):
            return Group(self.workers, 1, self.workers)
        (axis,) = axes
        return Group(self.shape[axis], prod(self.shape[axis + 1 :]), self.workers)

    def count(self, state: LayerState, role: str) -> int:
        """Return the number of parts into which a state divides a role."""
        return _count(self.shape, state, role)

    def __str__(self) -> str:
        return " × ".join(map(str, self.shape))


@lru_cache(maxsize=1 << 14)
def _count(shape: tuple[int, ...], state: LayerState, role: str) -> int:
    return prod([n for n, axis_role in zip(shape, state, strict=True) if axis_role == role])


def meshes(workers: int) -> list[PlannerMesh]:
    """Return the meshes of one and two axes for a number of workers."""
    pairs = [(n, workers // n) for n in range(2, workers) if workers % n == 0]
    return [PlannerMesh((workers,)), *[PlannerMesh(pair) for pair in pairs]]


def options_of(layer: Layer, mesh: PlannerMesh) -> list[Option]:
    """Return the options of a layer that leave each worker at least one element."""
    divisions = DIVISIONS if layer.has_product else (BATCH, OUTPUT, SPACE, REPLICATED)
    return [o for o in product(divisions, repeat=len(mesh.shape)) if _can_split(o, layer, mesh)]


def _can_split(option: Option, layer: Layer, mesh: PlannerMesh) -> bool:
    for division, role in NEEDED_ROLES.items():
        parts = mesh.count(option, division)
        if parts > 1 and parts > layer.extents.get(role, 0):
            return False
    scattered = prod([n for n, o in zip(mesh.shape, option, strict=True) if o in (OUTPUT, INPUT)])
    return not (INPUT in option and scattered > layer.extents.get(CHANNEL, 0))


def _state(option: Option, table: dict[str, str], roles: frozenset[str]) -> LayerState:
    divided = [table.get(division, REPLICATED) for division in option]
    return tuple([role if role in roles else REPLICATED for role in divided])


ALL_ROLES: Final = frozenset((BATCH, CHANNEL, SPACE))
WEIGHT_ROLES: Final = frozenset((CHANNEL, "input"))
LAYER_ROLES: Final = ALL_ROLES | WEIGHT_ROLES


@lru_cache(maxsize=4096)
def result_state(option: Option, roles: frozenset[str] = ALL_ROLES) -> LayerState:
    """Return the state of a result whose dimensions have these roles. The pending sums of "input"
    are scattered over the channels."""
    return _state(option, RESULT_ROLES, roles)


@lru_cache(maxsize=4096)
def needed_state(option: Option, roles: frozenset[str]) -> LayerState:
    """Return the state of weights, or of a result before pending sums are scattered, whose
    dimensions have these roles."""
    return _state(option, NEEDED_ROLES, roles)


@lru_cache(maxsize=4096)
def operand_state(option: Option, roles: frozenset[str], *, is_product: bool) -> LayerState:
    """Return the state in which a layer reads a value. A product with divided outputs reads all
    channels; other layers read what they compute."""
    return _state(option, _OPERAND if is_product else RESULT_ROLES, roles)


def gradient_state(option: Option, roles: frozenset[str], *, is_product: bool) -> LayerState:
    """Return the state in which a layer leaves the gradient of a value that it has read: a sum is
    pending over the axes that divide the outputs of a product."""
    read = operand_state(option, roles, is_product=is_product)
    if not is_product:
        return read
    return tuple(PARTIAL if o == OUTPUT else role for o, role in zip(option, read, strict=True))


# transfers ---------------------------------------------------------------------------------------


@final
class Exchange(NamedTuple):
    """A collective of a transfer: its kind, the axes of its groups, and the bytes that count for
    it, for each byte of the whole value (see `cost.collective_costs.algorithms`)."""

    kind: str
    axes: tuple[int, ...]
    share: float


def received_bytes(exchange: Exchange, nbytes: float, mesh: PlannerMesh) -> float:
    """Return the bytes that a worker receives in a collective of a value of `nbytes` bytes."""
    size, count = exchange.share * nbytes, mesh.group(exchange.axes).size
    times = {"allreduce": 2.0, "allgather": 1.0, "reduce_scatter": 1.0}.get(exchange.kind)
    return size if times is None else times * size * (count - 1) / count


@lru_cache(maxsize=1 << 16)
def transfer(mesh: PlannerMesh, have: LayerState, want: LayerState) -> tuple[Exchange, ...]:
    """Return the collectives that change the state of a value.

    Pending sums are combined first, axis by axis. Then one collective fetches what workers lack:
    an allgather if that completes the parts of groups of workers, otherwise an all-to-all; a worker
    that needs no more than it has fetches nothing.
    """
    collectives, state = [], have
    for axis, role in enumerate(have):
        if role == PARTIAL:
            # A scattered sum divides what the worker has, so this axis must be the inner one.
            scatters = want[axis] in ALL_ROLES and want[axis] not in state[axis + 1 :]
            target = want[axis] if scatters else REPLICATED
            kind = "reduce_scatter" if scatters else "allreduce"
            collectives.append(Exchange(kind, (axis,), _share(mesh, state)))
            state = (*state[:axis], target, *state[axis + 1 :])
    axes = tuple(a for a, (x, y) in enumerate(zip(state, want, strict=True)) if x != y)
    lacking = _lacking(mesh, state, want)
    if axes and lacking > 0:
        share, count = _share(mesh, want), mesh.group(axes).size
        gathers = abs(lacking - share * (count - 1) / count) < 1e-12
        gathers = gathers and all(want[a] == REPLICATED for a in axes)
        kind = "allgather" if gathers else "all_to_all"
        collectives.append(Exchange(kind, axes, share if gathers else lacking))
    return tuple(exchange for exchange in collectives if mesh.group(exchange.axes).size > 1)


def _share(mesh: PlannerMesh, state: LayerState) -> float:
    """Return the share of a value that a worker holds."""
    parts = [n for n, role in zip(mesh.shape, state, strict=True) if role in ALL_ROLES]
    return 1.0 / prod(parts)


def _lacking(mesh: PlannerMesh, have: LayerState, want: LayerState) -> float:
    """Return the largest share of a value that a worker needs and does not have, for even parts."""
    coordinates = np.indices(mesh.shape).reshape(len(mesh.shape), -1)
    needed, common = np.ones(mesh.workers), np.ones(mesh.workers)
    for role in ALL_ROLES:
        low, high = _interval(mesh, have, role, coordinates)
        first, last = _interval(mesh, want, role, coordinates)
        needed *= last - first
        common *= np.clip(np.minimum(high, last) - np.maximum(low, first), 0.0, None)
    lacking = float(np.max(needed - common))
    return lacking if lacking > 1e-12 else 0.0


def _interval(
    mesh: PlannerMesh, state: LayerState, role: str, coordinates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds, in 0 … 1, of each worker's part of a dimension."""
    number, parts = np.zeros(mesh.workers), 1
    for axis, axis_role in enumerate(state):
        if axis_role == role:
            number = number * mesh.shape[axis] + coordinates[axis]
            parts *= mesh.shape[axis]
    return number / parts, (number + 1) / parts
