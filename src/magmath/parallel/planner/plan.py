"""The network plan: how each layer is divided over a machine, and what a step costs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Final, final

from magmath.core.integers import require_integer
from magmath.core.real_numbers import require_number
from magmath.cost import Machine, calibration_remark, load_machine
from magmath.cost.machine_file import HERE
from magmath.errors import MemoryLimitError, OptionError
from magmath.nn.module import Module
from magmath.parallel.planner.costs import CostModel, CostTables
from magmath.parallel.planner.layer_graph import CHANNEL, LayerGraph
from magmath.parallel.planner.layer_grouping import layer_graph
from magmath.parallel.planner.layer_options import (
    OUTPUT,
    REPLICATED,
    Option,
    PlannerMesh,
    received_bytes,
)
from magmath.parallel.planner.layer_plan import LayerPlan
from magmath.parallel.planner.mesh_search import (
    FIXED_STRATEGIES,
    MeshCandidate,
    SearchResult,
    SimulatedPlanStep,
    search_meshes,
    simulated_step,
    uniform_candidate,
    uniform_division,
)
from magmath.parallel.planner.plan_output import plan_svg, plan_text, seconds_text, size_text
from magmath.parallel.planner.step_program import SimulatedInstruction, step_program
from magmath.parallel.simulator.events import Timeline
from magmath.parallel.simulator.slowdown import checked_slowdown
from magmath.parallel.simulator.timeline import check_file, save_timeline

MAX_SAVED_WORKERS: Final = 1024
"""The most workers that a file shows each on its own."""


@final
@dataclass(frozen=True)
class Plan:
    """The network plan: how a network is trained on some workers of a machine. Made by `plan`."""

    graph: LayerGraph
    machine: Machine
    search: SearchResult

    @property
    def candidate(self) -> MeshCandidate:
        """The chosen options, with the tables of their costs."""
        return self.search.best

    @property
    def mesh(self) -> PlannerMesh:
        """The mesh of workers."""
        return self.candidate.mesh

    @property
    def seconds(self) -> float:
        """The simulated seconds of a training step."""
        return self.search.step.seconds

    @property
    def memory(self) -> float:
        """The bytes that a worker needs."""
        return self.candidate.memory

    @property
    def gap(self) -> float | None:
        """The largest possible excess over the optimum of the cost tables on any mesh, as a share;
        0 on series-parallel networks that fit the memory, None for a fixed strategy."""
        return self.search.gap

    @property
    def samples_per_second(self) -> float:
        """The samples that all workers train in a second."""
        return self.graph.batch / self.seconds

    @property
    def options(self) -> dict[str, Option]:
        """The choice for each mesh axis, by the names of layers."""
        return {layer.name: layer.option for layer in self.layers}

    @cached_property
    def layers(self) -> tuple[LayerPlan, ...]:
        """The layers in the order of computation."""
        tables, options = self.candidate.tables, self.candidate.options
        instructions = step_program(tables, options, steps=1).instructions
        plans = []
        for number, (layer, option) in enumerate(zip(self.graph.layers, options, strict=True)):
            cost = tables.layer_cost(layer, option)
            moves = [x for x in instructions if x.layer == number and x.exchange is not None]
            gradient = _seconds(self.candidate, [x for x in moves if x.phase == "gradient"])
            plans.append(
                LayerPlan(
                    layer.name,
                    layer.kind,
                    option,
                    cost.forward + cost.backward + cost.update,
                    _seconds(self.candidate, moves) - gradient,
                    gradient,
                    sum(_received(move, self.mesh) for move in moves),
                    cost.memory,
                )
            )
        return tuple(plans)

    @property
    def received(self) -> float:
        """The bytes that a worker receives in a step."""
        return sum(layer.received for layer in self.layers)

    @property
    def heading(self) -> list[str]:
        """The plan as a whole, in a few lines."""
        compared = [
            f"{name} {'needs more memory' if step is None else seconds_text(step.seconds)}"
            for name, step in self.search.strategies.items()
        ]
        gap = "fixed strategy" if self.gap is None else f"optimality gap {self.gap:.1%}"
        idle = self.mesh.workers - self.graph.batch
        few = (
            f": fewer samples than workers, data parallelism leaves {idle} idle" if idle > 0 else ""
        )
        return [
            f"{self.machine.source}: {self.mesh.workers} workers, mesh {self.mesh}, batch "
            f"{self.graph.batch}{few}",
            f"{seconds_text(self.seconds)} a step, {self.samples_per_second:,.0f} samples/s, "
            f"{size_text(self.received)} received and {size_text(self.memory)} of memory a worker"
            f"{calibration_remark(self.machine.source)}",
            f"{gap}, {self.search.meshes} meshes, {self.search.simulated} plans simulated",
            f"for comparison: {', '.join(compared)}",
        ]

    def timeline(self, *, slowdown: Mapping[int, float] | None = None) -> Timeline:
        """Return the simulated timeline of some steps, with every worker.

        slowdown   worker → factor by which its computations take longer
        """
        return self.simulate(slowdown=slowdown, every_worker=True).timeline

    def simulate(
        self,
        *,
        slowdown: Mapping[int, float] | None = None,
        every_worker: bool = False,
        overlap: bool = True,
        sharded: bool = False,
    ) -> SimulatedPlanStep:
        """Simulate training steps event by event.

        slowdown      worker → factor by which its computations take longer
        every_worker  simulate each worker; otherwise one represents all, which takes the same time
                      if all are equal
        overlap       False: workers do not compute while they communicate
        sharded       each worker updates its chunk of the parameters, which are then replicated
                      while the next forward pass begins

        Raises OptionError for factors that are not positive or of other workers.
        """
        return simulated_step(
            self.candidate,
            every_worker=every_worker or bool(slowdown),
            overlap=overlap,
            sharded=sharded,
            slowdown=checked_slowdown(slowdown, self.mesh.workers),
        )

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON. Times in seconds, sizes in bytes."""
        return {
            "machine": self.machine.source,
            "workers": self.mesh.workers,
            "batch": self.graph.batch,
            "mesh": list(self.mesh.shape),
            "seconds": self.seconds,
            "samples_per_second": self.samples_per_second,
            "received_bytes": self.received,
            "memory_bytes": self.memory,
            "parameter_bytes": self.graph.parameter_bytes,
            "flops": self.graph.flops,
            "gap": self.gap,
            "strategies": {
                name: None if step is None else step.seconds
                for name, step in self.search.strategies.items()
            },
            "layers": [{**vars(x), "option": list(x.option)} for x in self.layers],
        }

    def save_svg(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of the plan: the layers, their divisions and their times.

        Raises OptionError if the name does not end with .svg, or the folder does not exist.
        """
        check_file("save_svg", path, [".svg"])
        text = plan_svg(self.layers, self.heading, len(self.mesh.shape))
        Path(path).write_text(text, encoding="utf-8")

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write the simulated timeline of some steps, as `parallel.save_timeline` does.

        It has all workers if these are at most 1,024, otherwise one, which represents all: they
        take the same time, and the file would have 5 kB or more for each of them.
        """
        every_worker = self.mesh.workers <= MAX_SAVED_WORKERS
        save_timeline(self.simulate(every_worker=every_worker).timeline, path)

    def __str__(self) -> str:
        return plan_text(self.layers, self.heading)


def _seconds(candidate: MeshCandidate, moves: Sequence[SimulatedInstruction]) -> float:
    seconds = candidate.tables.exchange_seconds
    return sum(seconds(x.exchange, x.nbytes) for x in moves if x.exchange is not None)


def _received(move: SimulatedInstruction, mesh: PlannerMesh) -> float:
    assert move.exchange is not None
    return received_bytes(move.exchange, move.nbytes, mesh)


def plan(
    module: Module,
    shape: Sequence[int],
    machine: str | os.PathLike[str] | Machine = "here",
    workers: int = 1,
    *,
    strategy: str = "auto",
    dtype: Any = None,
    precision: str | None = None,
    memory: float | None = None,
    slots: int = 1,
    speed: float = 1.0,
    algorithm: str | None = None,
    fused: bool = True,
) -> Plan:
    """Return the fastest plan for training a network on the workers of a machine.

    Nothing is trained, and no parameter gets values. Each layer divides the samples, its outputs,
    its inputs, the space or nothing over each axis of a mesh; the mesh is chosen too.

    shape     shape of the input, the batch of all workers included
    machine   "here", the name of a packaged description, the path of a TOML file, or a
              `cost.Machine`
    workers   number of workers; those of "here" are threads, at most one for each processor
    strategy  "auto", or a fixed one: "data" divides the samples in all layers, "model" the outputs,
              "hybrid" the samples in convolutions and the outputs in dense layers
    dtype     type of the input, such as "int64" for tokens; None is the default type
    precision "float32", "mixed-bfloat16" or "mixed-float16", in which the network computes (see
              `nn.precision`); None is the type of the parameters
    memory    bytes that a worker may use; by default those of the machine, for "here" the share
              of its memory that a worker of a pool of so many may use
    slots     values that the optimizer stores for each parameter, as 2 of Adam
    speed     measured speed of the arithmetic over that of the machine's description
    algorithm "ring", "hierarchical", "tree", "pairwise" or "bruck": that of the collectives that
              have it; for others, and by default, the fastest one
    fused     False: the gradient of each parameter is exchanged on its own, not all of a layer

    Raises DataError for an unknown or incomplete machine, OptionError for more workers than the
    machine has, an unknown algorithm or strategy, a fixed strategy that divides no layer over so
    many workers, a network that computes nothing from its input, and other values that no plan can
    have, ShapeError for an input without elements, and MemoryLimitError if no division of the
    network, or not that of a fixed strategy, fits the memory.
    """
    if not isinstance(module, Module):
        raise OptionError(f"plan: needs a module such as mm.nn.Dense(10), was given {module!r}")
    graph = layer_graph(module, shape, dtype, precision)
    return plan_graph(
        graph, machine, workers, strategy=strategy, memory=memory,
        slots=slots, speed=speed, algorithm=algorithm, fused=fused,
    )  # fmt: skip


def plan_graph(
    graph: LayerGraph,
    machine: str | os.PathLike[str] | Machine = "here",
    workers: int = 1,
    *,
    strategy: str = "auto",
    memory: float | None = None,
    **model: Any,
) -> Plan:
    """Return the plan of a layer graph; the arguments are those of `plan`, and further ones are the
    fields of `CostModel`."""
    workers = require_integer("plan: workers", workers, 1)
    described = machine if isinstance(machine, Machine) else load_machine(machine, workers)
    if workers > described.max_workers:
        raise OptionError(
            f"plan: {_capacity(machine, described)}, was asked for {workers}; plan fewer, or for a "
            f"machine whose outermost level has fan_out 0, for any number of units"
        )
    costs = CostModel(described, **model)
    if memory is not None and memory != inf:
        require_number("plan: memory", memory, 0)
    limit = described.memory if memory is None else float(memory)
    if strategy == "auto":
        return Plan(graph, described, search_meshes(graph, costs, workers, limit))
    if strategy not in FIXED_STRATEGIES:
        raise OptionError(
            f"plan: strategy {strategy!r} is not known; there are auto, "
            f"{', '.join(FIXED_STRATEGIES)}"
        )
    tables = CostTables(graph, PlannerMesh((workers,)), costs)
    fixed = uniform_candidate(tables, FIXED_STRATEGIES[strategy])
    _check_division(fixed, strategy)
    if fixed.memory > limit:
        raise MemoryLimitError(
            f"plan: with the strategy {strategy!r}, a worker of {workers} needs "
            f"{fixed.memory / 1e9:.3g} GB, more than {limit / 1e9:.3g} GB; use more workers, a "
            f"smaller batch, another strategy, or memory=… with more bytes"
        )
    step = simulated_step(fixed)
    return Plan(graph, described, SearchResult(fixed, step, {strategy: step}, None, 1, 1))


def _capacity(machine: str | os.PathLike[str] | Machine, described: Machine) -> str:
    """Return how many workers a machine has, as text."""
    if machine == HERE:
        return f"this machine has {described.max_workers} workers, one for each processor"
    return f"{described.source} has {described.max_workers} workers"


def _check_division(candidate: MeshCandidate, strategy: str) -> None:
    """Raise OptionError if a fixed strategy leaves all layers with parameters undivided."""
    layers, workers = candidate.tables.graph.layers, candidate.mesh.workers
    pairs = [
        (layer, option)
        for layer, option in zip(layers, candidate.options, strict=True)
        if layer.has_product
    ]
    if workers == 1 or not pairs or any(set(option) != {REPLICATED} for _, option in pairs):
        return
    kinds = [(layer, uniform_division(layer, FIXED_STRATEGIES[strategy])) for layer, _ in pairs]
    most = max(
        layer.extents.get(CHANNEL if division == OUTPUT else division, 0)
        for layer, division in kinds
    )
    names = ["outputs" if division == OUTPUT else "samples" for _, division in kinds]
    divided = " or ".join(dict.fromkeys(names))
    raise OptionError(
        f"plan: with the strategy {strategy!r}, {workers} workers divide {divided}, but no layer "
        f"has more than {most}; use fewer workers, or another strategy"
    )


def measured_speed(
    graph: LayerGraph, machine: str | Machine, samples_per_second: float, **model: Any
) -> float:
    """Return the speed (see `CostModel`) at which one worker trains this many samples a second.

    Raises OptionError if no speed of the arithmetic between 0.001 and 1000 gives this number.
    """

    def trained(speed: float) -> float:
        made = plan_graph(graph, machine, strategy="data", memory=inf, speed=speed, **model)
        return made.samples_per_second

    low, high = 1e-3, 1e3
    least, most = trained(low), trained(high)
    if not least <= samples_per_second <= most:
        raise OptionError(
            f"measured_speed: one worker of {machine} trains at least {least:.4g} samples/s with "
            f"arithmetic of speed {low:g}, and at most {most:.4g}, by the bandwidth of its memory; "
            f"{samples_per_second:.4g} were given"
        )
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        if trained(middle) < samples_per_second:
            low = middle
        else:
            high = middle
    return high
