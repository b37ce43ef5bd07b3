"""The costs of a layer graph on a mesh: tables of seconds for options and for pairs of options.

The seconds of a step are a sum over layers (computation, exchanges within a layer, gradients) and
edges (redistribution of activations forward and of their gradients backward). Layers and edges with
equal signatures share one table, so that repeated blocks of a network are evaluated once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from math import ceil
from typing import Final, NamedTuple, final

import numpy as np

from magmath.core.integers import require_integer
from magmath.core.real_numbers import require_number
from magmath.core.shown_value import shown
from magmath.core.stage_times import count
from magmath.cost.collective_costs import AlgorithmCost, algorithm_costs, algorithm_names
from magmath.cost.machine import Machine
from magmath.errors import OptionError
from magmath.parallel.planner.layer_graph import (
    BATCH,
    CHANNEL,
    SPACE,
    Edge,
    Layer,
    LayerGraph,
    LayerParameter,
)
from magmath.parallel.planner.layer_options import (
    ALL_ROLES,
    INPUT,
    LAYER_ROLES,
    OUTPUT,
    PARTIAL,
    REPLICATED,
    RESULT_ROLES,
    WEIGHT_ROLES,
    Exchange,
    LayerState,
    Option,
    PlannerMesh,
    gradient_state,
    needed_state,
    operand_state,
    options_of,
    result_state,
    transfer,
)

LEAST_SPEED: Final = 1e-9
"""The least speed of the arithmetic, in that of the machine's description."""
SPLIT_DEPTH: Final = 512
"""Least number of summed elements for which a kernel divides the sum of a weight gradient."""
Table = np.ndarray


@final
@dataclass(frozen=True)
class CostModel:
    """The settings on which the predicted seconds of a step depend.

    slots      values that the optimizer stores for each parameter
    speed      measured speed of the arithmetic over that of the machine's description
    algorithm  the algorithm of the collectives that have it; for others, and with None, the fastest
    fused      True if the gradients of a layer are exchanged in one collective, False if those of
               each parameter are

    Raises OptionError for an unknown algorithm, negative slots and a speed that is not positive.
    """

    machine: Machine
    slots: int = 1
    speed: float = 1.0
    algorithm: str | None = None
    fused: bool = True

    def __post_init__(self) -> None:
        require_integer("plan: slots", self.slots, 0)
        require_number("plan: speed", self.speed, LEAST_SPEED)
        names = algorithm_names()
        if self.algorithm is not None and self.algorithm not in names:
            raise OptionError(
                f"plan: algorithm must be None or one of {', '.join(names)}, was given "
                f"{shown(self.algorithm)}"
            )


@final
@dataclass(frozen=True)
class LayerCost:
    """The costs of a layer under one option on one worker, in seconds and bytes.

    exchange   exchanges within the layer: halos, statistics, pending sums, gathered gradients
    gradient   the exchange of gradients, if nothing hides it
    update     the optimizer's update
    """

    forward: float
    backward: float
    exchange: float
    gradient: float
    update: float
    memory: float


@final
class LayerCollective(NamedTuple):
    """A collective of a layer, the bytes of the value that it exchanges, and the pass to which it
    belongs: "forward", "backward" or "gradient"."""

    exchange: Exchange
    nbytes: float
    phase: str


@final
class LayerTables(NamedTuple):
    """The costs of a layer for each of its options: seconds without the exchange of gradients, the
    seconds of that, and bytes."""

    seconds: Table
    gradient: Table
    memory: Table


@final
@dataclass
class CostTables:
    """The tables of one graph, mesh and model."""

    graph: LayerGraph
    mesh: PlannerMesh
    model: CostModel
    _layers: dict[Hashable, LayerTables] = field(default_factory=dict)
    _edges: dict[Hashable, Table] = field(default_factory=dict)
    _algorithms: dict[Hashable, Sequence[AlgorithmCost]] = field(default_factory=dict)

    @cached_property
    def options(self) -> list[list[Option]]:
        """The options of each layer."""
        known: dict[Hashable, list[Option]] = {}
        return [
            known.setdefault(layer.signature, options_of(layer, self.mesh))
            for layer in self.graph.layers
        ]

    def layer_tables(self, number: int) -> LayerTables:
        """Return the costs of a layer for each of its options."""
        layer = self.graph.layers[number]
        if layer.signature not in self._layers:
            count("evaluated layers", 1)
            costs = [self.layer_cost(layer, option) for option in self.options[number]]
            self._layers[layer.signature] = LayerTables(
                np.array([c.forward + c.backward + c.exchange + c.update for c in costs]),
                np.array([c.gradient for c in costs]),
                np.array([c.memory for c in costs]),
            )
        return self._layers[layer.signature]

    def edge_seconds(self, source: int, target: int, edge: Edge) -> Table:
        """Return the seconds of an edge for each option of its source and of its target."""
        above, below = self.graph.layers[source], self.graph.layers[target]
        key = (above.signature, below.signature, edge.nbytes, edge.roles, edge.has_gradient)
        if key not in self._edges:
            count("evaluated edges", 1)
            self._edges[key] = self._edge_table(source, target, edge)
        return self._edges[key]

    def _edge_table(self, source: int, target: int, edge: Edge) -> Table:
        """Return the seconds of moving a value forward, and its gradient backward if it has one."""
        is_product = self.graph.layers[target].has_product
        results = [result_state(o, edge.roles) for o in self.options[source]]
        reads = [operand_state(o, edge.roles, is_product=is_product) for o in self.options[target]]
        table = self._transfers(results, reads, edge.nbytes)
        if edge.has_gradient:
            leaves = [
                gradient_state(o, edge.roles, is_product=is_product) for o in self.options[target]
            ]
            table = table + self._transfers(leaves, results, edge.nbytes).T
        return table

    def _transfers(self, have: list[LayerState], want: list[LayerState], nbytes: int) -> Table:
        """Return the seconds of changing each state of a value into each other one."""
        exchanges, counts = _transfer_counts(self.mesh, tuple(have), tuple(want))
        seconds = np.array([self.exchange_seconds(exchange, nbytes) for exchange in exchanges])
        table: Table = (counts @ seconds).reshape(len(have), len(want))
        return table

    def exchange_seconds(self, exchange: Exchange, nbytes: float) -> float:
        """Return the seconds of a collective of a value of `nbytes` bytes."""
        size = exchange.share * nbytes
        return min([cost.seconds(size) for cost in self._algorithm_costs(exchange)])

    def _algorithm_costs(self, exchange: Exchange) -> Sequence[AlgorithmCost]:
        """Return the costs of the algorithms of a collective."""
        key = exchange.kind, exchange.axes
        if key not in self._algorithms:
            model, group = self.model, self.mesh.group(exchange.axes)
            levels = model.machine.levels
            self._algorithms[key] = algorithm_costs(levels, exchange.kind, group, model.algorithm)
        return self._algorithms[key]

    # one layer ------------------------------------------------------------------------------------

    def layer_cost(self, layer: Layer, option: Option) -> LayerCost:
        """Return the costs of a layer under an option."""
        forward, backward = self._compute_seconds(layer, option)
        trained = [p for p in layer.parameters if p.is_trained]
        stored = sum(p.nbytes * self._parameter_share(layer, p, option) for p in trained)
        traffic = (3 + 2 * self.model.slots) * stored
        return LayerCost(
            forward=forward,
            backward=backward,
            exchange=self._seconds(exchanges(layer, option, self.mesh)),
            gradient=self._seconds(self.gradient_exchanges(layer, option)),
            update=traffic / self._bandwidth() + self._calls(len(trained)),
            memory=self._memory_bytes(layer, option),
        )

    def _seconds(self, collectives: Sequence[LayerCollective]) -> float:
        return sum(self.exchange_seconds(x.exchange, x.nbytes) for x in collectives)

    def _parameter_share(self, layer: Layer, parameter: LayerParameter, option: Option) -> float:
        """Return the share of a parameter of a layer on the busiest worker."""
        return _share(
            self.mesh,
            layer,
            needed_state(option, WEIGHT_ROLES if parameter.is_weight else frozenset((CHANNEL,))),
        )

    def gradient_exchanges(self, layer: Layer, option: Option) -> list[LayerCollective]:
        """Return the collectives that sum the gradients of a layer's parameters."""
        sizes = [
            p.gradient * self._parameter_share(layer, p, option)
            for p in layer.parameters
            if p.is_trained
        ]
        axes = tuple(
            a for a, choice in enumerate(option)
            if choice in (BATCH, SPACE) and self.mesh.shape[a] > 1
        )  # fmt: skip
        if not axes:
            return []
        allreduce = Exchange("allreduce", axes, 1.0)
        messages = [sum(sizes)] if self.model.fused else sizes
        return [LayerCollective(allreduce, nbytes, "gradient") for nbytes in messages if nbytes]

    def _compute_seconds(self, layer: Layer, option: Option) -> tuple[float, float]:
        """Return the seconds of arithmetic and memory traffic, forward and backward."""
        if layer.kind in ("input", "loss"):
            return 0.0, 0.0
        machine = self.model.machine
        parts = {choice: self.mesh.count(option, choice) for choice in set(option)}
        traffic = _local_bytes(layer, option, self.mesh) / self._bandwidth()
        other_flops = layer.other_flops * _share(self.mesh, layer, result_state(option))
        other_seconds = other_flops / (machine.arithmetic * self.model.speed)
        if not layer.has_product:
            forward = max(traffic, other_seconds) + self._calls(1)
            return forward, forward if layer.trainable else 0.0
        rows = ceil(layer.rows / parts.get(OUTPUT, 1))
        depth = ceil(layer.depth / parts.get(INPUT, 1))
        columns = self._columns(layer, parts)
        flops = 2.0 * rows * columns * depth
        rate = machine.gemm_flops(layer.dtype, 1) * self.model.speed

        def product_seconds(m: float, n: float, summed: float = 0.0) -> float:
            groups = layer.groups
            efficiency = machine.tile_efficiency(m / groups, n, max(1.0, summed / SPLIT_DEPTH))
            return max(flops / (rate * efficiency), traffic) + self._calls(groups)

        taps = max(1, layer.depth * layer.groups // layer.extents.get("input", layer.depth))
        forward = product_seconds(rows, columns)
        joined = other_seconds + self._calls(1)
        backward = joined if layer.trainable else 0.0
        if layer.trains_weights:
            backward += product_seconds(rows, depth, columns)
        if layer.has_input_gradient:
            backward += product_seconds(max(1, depth * layer.groups // taps), columns)
        return forward + joined, backward

    def _columns(self, layer: Layer, parts: Mapping[str, int]) -> float:
        """Return the positions on the busiest worker."""
        batch, space = layer.extents.get(BATCH, 1), layer.extents.get(SPACE, 1)
        other_columns = layer.columns / (batch * space)
        return ceil(batch / parts.get(BATCH, 1)) * ceil(space / parts.get(SPACE, 1)) * other_columns

    def _calls(self, number: int) -> float:
        return self.model.machine.call_seconds * number

    def _bandwidth(self) -> float:
        """Return the bytes of local memory per second of each worker."""
        machine = self.model.machine
        inner = machine.levels[0].fan_out or self.mesh.workers
        return machine.worker_bandwidth(min(inner, self.mesh.workers), 1)

    def _memory_bytes(self, layer: Layer, option: Option) -> float:
        """Return the bytes of parameters, gradients, optimizer states, and kept activations."""
        parameters = sum(
            p.nbytes
            * self._parameter_share(layer, p, option)
            * (2 + self.model.slots if p.is_trained else 1)
            for p in layer.parameters
        )
        kept = layer.kept * _share(self.mesh, layer, result_state(option))
        gathers = layer.has_product and self.mesh.count(option, OUTPUT) > 1
        return parameters + kept + (_operand_bytes(layer, option, self.mesh) if gathers else 0.0)


def _local_bytes(layer: Layer, option: Option, mesh: PlannerMesh) -> float:
    """Return the bytes that the busiest worker reads and writes in one pass of a layer.

    Every worker reads all weights unless their outputs or inputs are divided, and the whole operand
    of a product of which it computes some outputs. Of divided inputs it computes whole sums.
    """
    weights = layer.weights * _share(mesh, layer, needed_state(option, WEIGHT_ROLES))
    result = layer.result * _share(mesh, layer, needed_state(option, ALL_ROLES))
    others = layer.other_bytes * _share(mesh, layer, result_state(option))
    return _operand_bytes(layer, option, mesh) + weights + result + others


def _operand_bytes(layer: Layer, option: Option, mesh: PlannerMesh) -> float:
    """Return the bytes of the values that the busiest worker reads from other layers."""
    shares = [
        _operand_share(mesh, layer, option, edge.roles, is_product=layer.has_product)
        for edge in layer.inputs
    ]
    return sum(edge.nbytes * share for edge, share in zip(layer.inputs, shares, strict=True))


def _operand_share(
    mesh: PlannerMesh, layer: Layer, option: Option, roles: frozenset[str], *, is_product: bool
) -> float:
    """Return the share of a value with these roles that the busiest worker reads."""
    state = operand_state(option, roles, is_product=is_product)
    if is_product:  # the channels of the operand are the inputs
        state = tuple(["input" if role == CHANNEL else role for role in state])
    return _share(mesh, layer, state)


def _share(mesh: PlannerMesh, layer: Layer, state: LayerState) -> float:
    """Return the share of a value in a state that the worker with the largest part has."""
    share = 1.0
    for role in LAYER_ROLES.intersection(state):
        n = mesh.count(state, role)
        if n > 1:
            extent = layer.extents[role]
            share *= ceil(extent / n) / extent
    return share


@lru_cache(maxsize=4096)
def _transfer_counts(
    mesh: PlannerMesh, have: tuple[LayerState, ...], want: tuple[LayerState, ...]
) -> tuple[tuple[Exchange, ...], Table]:
    """Return the different collectives that change states `have` into states `want`, and how often
    each pair of states, in a row, needs each collective.

    They do not depend on the number of bytes, so the edges of a network share them.
    """
    needed = [transfer(mesh, x, y) if x != y else () for x, y in product(have, want)]
    different = tuple(
        dict.fromkeys(exchange for exchanges_of_pair in needed for exchange in exchanges_of_pair)
    )
    columns = {exchange: i for i, exchange in enumerate(different)}
    counts = np.zeros((len(needed), len(different)))
    for row, exchanges_of_pair in enumerate(needed):
        for exchange in exchanges_of_pair:
            counts[row, columns[exchange]] += 1.0
    return different, counts


def exchanges(layer: Layer, option: Option, mesh: PlannerMesh) -> list[LayerCollective]:
    """Return the collectives within a layer, those of its forward and of its backward pass."""
    collectives = []
    result = result_state(option)
    if INPUT in option:
        pending = _replaced(option, result, PARTIAL)
        whole = _replaced(option, result, REPLICATED)
        size = float(layer.result)
        collectives += [
            *[LayerCollective(x, size, "forward") for x in transfer(mesh, pending, result)],
            *[LayerCollective(x, size, "backward") for x in transfer(mesh, result, whole)],
        ]
    for inner in layer.dependencies:
        axes = tuple(
            axis
            for axis, choice in enumerate(option)
            if RESULT_ROLES.get(choice) == inner.role and mesh.shape[axis] > 1
        )
        if axes:
            share = _operand_share(mesh, layer, option, inner.roles, is_product=inner.of_product)
            rows = 1 if inner.rows is None else inner.rows.received(mesh.group(axes).size)
            exchange, size = Exchange(inner.kind, axes, 1.0), inner.nbytes * share * rows
            has_gradient = layer.has_input_gradient if inner.of_product else layer.trainable
            phases = ("forward", "backward") if has_gradient else ("forward",)
            collectives += [LayerCollective(exchange, size, phase) for phase in phases if rows]
    return [x for x in collectives if x.phase == "forward" or layer.trainable]


def _replaced(option: Option, state: LayerState, by: str) -> LayerState:
    return tuple(by if o == INPUT else role for o, role in zip(option, state, strict=True))
