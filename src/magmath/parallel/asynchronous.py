"""Asynchronous gradient descent: workers update common parameters without waiting for one another.

A worker computes a gradient from its copy of the parameters, while others update them. The delay of
an update is the number of other updates between the copy and it, and it has a bound. `Asynchronous`
trains in this way, or replays a given schedule of delays as a pure function, for study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import ref

from magmath.api.creation import variable
from magmath.api.manipulation import broadcast_to
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable, assign
from magmath.arrays.variables.variable_map import VariableMap
from magmath.core.dtypes import float64, int64
from magmath.core.integers import require_integer
from magmath.engine import session
from magmath.engine.evaluation.loop_rows import row_of, with_row
from magmath.engine.programs.step_split import AsynchronousDivision
from magmath.errors import OptionError
from magmath.graph import Node
from magmath.layout import Layout
from magmath.nn.module import Module
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant, input_leaf
from magmath.parallel.gradient_averaging import GradientAveraging
from magmath.parallel.strategy import DELAYS, Training
from magmath.passes.environment import Environment


@final
@dataclass
class _FormerValues:
    """The last values of a parameter: an array (staleness + 1, …), a ring of rows by the number of
    updates.

    `offsets`: by how much the version numbers of `values` and of the count of updates are ahead of
    the parameter's. If they are others, the parameter was assigned elsewhere, or was frozen during
    some updates.
    """

    values: Variable
    offsets: tuple[int, int] | None = None


@final
class Asynchronous(GradientAveraging):
    """Update common parameters by gradients of older values.

    Update t is w ← w - η g(w') on a batch of its own, or the rule of another optimizer, with the
    parameters w' after update t - d - 1. The delay d is at most `staleness`.

    staleness   the largest delay, at least 0
    servers     the number of groups of parameters that are updated and copied one after the other;
                by default one for each worker. With a loss scale, parameters with a common step
                count, as those of Adam, are one group
    schedule    delays of consecutive updates, from 0 to `staleness`, which repeat. Each worker
                computes its share of every batch, so the result does not depend on the number of
                workers. By default, workers run asynchronously: each takes the next batch, copies
                the parameters, computes the gradient of the whole batch, and updates the servers. A
                worker waits only if its update would raise another worker's delay above
                `staleness`. With `staleness` < workers - 1 some worker always waits

    Without a schedule, results depend on the timing of the workers, which must be CPU workers, and
    `fit` needs arrays: the batches of a loader come one by one. Running statistics have no delay.
    Workers of several hosts send copies and gradients as messages: each server belongs to one of
    them, and a second thread of that worker answers.
    The history has the delay of each update (`History.delays`). Sources: Dean et al. (2012),
    Large scale distributed deep networks (Downpour); Ho et al. (2013), More effective distributed
    ML via a stale synchronous parallel parameter server; Langford, Smola and Zinkevich (2009), Slow
    learners are fast, for the equation.
    """

    def __init__(
        self,
        staleness: int = 4,
        *,
        servers: int | None = None,
        schedule: Iterable[int] | None = None,
    ) -> None:
        super().__init__()
        self.staleness = require_integer("Asynchronous: staleness", staleness, 0)
        self.servers = (
            None if servers is None else require_integer("Asynchronous: servers", servers, 1)
        )
        self.schedule = None if schedule is None else _delays(schedule, self.staleness)
        self.is_asynchronous = schedule is None
        self._former: VariableMap[_FormerValues] = VariableMap()
        self._module: ref[Module] | None = None  # whose updates are counted
        self._counts: tuple[Variable, Variable] | None = None  # of updates; the schedule
        self._copies: Mapping[Node, Node] = {}
        self._delay: Node | None = None

    def __repr__(self) -> str:
        settings = [f"staleness={self.staleness}"]
        settings += [] if self.servers is None else [f"servers={self.servers}"]
        settings += [] if self.schedule is None else [f"schedule={self.schedule}"]
        return f"Asynchronous({', '.join(settings)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those of a module and its trace, for pickle and copy."""
        cleared: dict[str, Any] = {"_module": None, "_counts": None, "_copies": {}, "_delay": None}
        return {**vars(self), **cleared}

    # variables and layouts --------------------------------------------------------------------

    def prepare(self, training: Training, environment: Environment) -> None:
        """Make the former values of the parameters, at first their current values."""
        if self.schedule is None:
            _check_pool(environment)
            return
        pool = session.engine().pool
        if self._counts is None or self._counts[0].stored.pool is not pool:
            schedule = variable("delays", self.schedule, dtype=int64)
            self._counts = variable("updates", 0, dtype=int64), schedule
        is_other_module = (self._module and self._module()) is not training.module
        self._module = ref(training.module)
        if not is_other_module and all(map(self._is_current, training.parameters)):
            return
        for v in training.parameters:  # all: they have one count of updates
            former, shape = self._former.find(v), (self.staleness + 1, *v.shape)
            current = broadcast_to(Array(v.node), shape)
            if former is not None and _can_store_former_values(former.values, v):
                former.values.assign(current)
            else:
                values = variable(f"{v.name}.former_values", current, dtype=v.dtype)
                self._former[v] = _FormerValues(values)
        self._counts[0].assign(0)
        self.accept(training)

    def _is_current(self, v: Variable) -> bool:
        """Return True if the former values of a parameter are up to date: not after an
        assignment, nor after updates of other parameters alone."""
        former = self._former.find(v)
        if former is None or not _can_store_former_values(former.values, v):
            return False
        return self._offsets(former.values, v) == former.offsets

    def _offsets(self, values: Variable, v: Variable) -> tuple[int, int]:
        """Return `_FormerValues.offsets` for the former values of a parameter as they are now."""
        assert self._counts is not None
        return values.number - v.number, self._counts[0].number - v.number

    def accept(self, training: Training) -> None:
        for v in training.parameters:
            if (former := self._former.find(v)) is not None:
                former.offsets = self._offsets(former.values, v)

    def state(self, training: Training) -> Mapping[str, Variable]:
        if self._counts is None:
            return {}
        paths = {id(v): path for path, v in training.module.named_parameters()}
        former_values = {
            f"{paths[id(v)]}/former_values": self._former[v].values for v in training.parameters
        }
        return former_values | {"updates": self._counts[0]}

    def own_layouts(
        self, training: Training, environment: Environment
    ) -> Mapping[Variable, Layout]:
        states = self.state(training).values()
        return {v: environment.replicated(v.shape, shared=v.ndim > 0) for v in states}

    # the step ---------------------------------------------------------------------------------

    def copies(self, training: Training) -> Mapping[Node, Node]:
        if self._counts is None:
            replicated = session.engine().environment.replicated
            nodes = [v.node for v in (*training.parameters, *_loss_scale(training))]
            self._copies = {
                x: input_leaf(x.shape, x.dtype, replicated(x.shape), None) for x in nodes
            }
            return self._copies
        completed_updates, schedule = [v.node for v in self._counts]
        schedule_index = e.call("remainder", completed_updates, constant(schedule.shape[0], int64))
        self._delay = e.call("minimum", row_of(schedule, schedule_index), completed_updates)
        row = self._row(e.subtract(completed_updates, self._delay))
        return {v.node: row_of(self._former[v].values.node, row) for v in training.parameters}

    def _row(self, updates: Node) -> Node:
        """Return the row of the values after a number of updates."""
        return e.call("remainder", updates, constant(self.staleness + 1, int64))

    def exchange(self, training: Training, gradients: Sequence[Array]) -> Sequence[Array]:
        return gradients

    def update_own_variables(self, training: Training) -> None:
        if self._counts is None:
            return
        updates = self._counts[0]
        number = e.add(updates.node, constant(1, int64))
        row = self._row(number)
        pairs = [(updates, number)]
        for v in training.parameters:
            former, value = self._former[v].values, v.node
            # A parameter that the loss does not use is assigned its value: the version numbers of
            # all parameters count updates, so that other assignments are seen (`_is_current`).
            pairs += [(former, with_row(former.node, row, value)), (v, value)]
        assign(pairs)

    def reported(self) -> Mapping[str, Array]:
        reported = {} if self._delay is None else {DELAYS: self._delay}
        return {name: Array(e.astype(node, float64)) for name, node in reported.items()}

    def asynchronous_division(
        self, training: Training, counter: Variable
    ) -> AsynchronousDivision | None:
        if self.schedule is not None:
            return None
        counts = [entry.count for entry in training.variable_states()]
        updates = {count.leaf for count in counts if count is not None}
        if training.loss_scale is not None:  # a step that is skipped is an update and not counted
            updates.clear()
        groups: dict[Node, dict[Node, None]] = {}  # by the last leaf, a count that several may have
        for entry in training.variable_states():
            leaves = [v.leaf for v in entry.variables() if v.leaf not in updates]
            groups.setdefault(leaves[-1], {}).update(dict.fromkeys(leaves))
        count = self.servers or session.engine().environment.workers
        servers = _balanced(list(map(list, groups.values())), min(count, len(groups)))
        return AsynchronousDivision(self._copies, servers, {counter.leaf}, updates, self.staleness)


def _loss_scale(training: Training) -> Iterable[Variable]:
    """Return the state of the loss scale, if there is one: a gradient needs its scale."""
    return () if training.loss_scale is None else training.loss_scale.state().values()


def _balanced(groups: Sequence[Sequence[Node]], count: int) -> list[list[Node]]:
    """Divide groups of arrays into `count` parts of about equal bytes, the largest group first."""
    parts: list[list[Node]] = [[] for _ in range(count)]
    part_sizes = [0] * count
    sizes = [sum(x.nbytes for x in group) for group in groups]
    for size, i in sorted(zip(sizes, range(len(groups)), strict=True), reverse=True):
        least = part_sizes.index(min(part_sizes))
        parts[least] += groups[i]
        part_sizes[least] += size
    return parts


def _delays(schedule: Iterable[int], staleness: int) -> list[int]:
    """Return a schedule as a list. Raises OptionError for a delay above the bound, or none."""
    delays = [require_integer("Asynchronous: a delay of schedule", delay, 0) for delay in schedule]
    if not delays or max(delays) > staleness:
        raise OptionError(
            f"Asynchronous: schedule needs delays from 0 to staleness={staleness}, was given "
            f"{delays}; give a larger staleness"
        )
    return delays


def _can_store_former_values(values: Variable, v: Variable) -> bool:
    """Return True if a variable of former values can have those of a parameter in the current
    pool."""
    return values.stored.pool is session.engine().pool and values.dtype is v.dtype


def _check_pool(environment: Environment) -> None:
    """Raise OptionError for a pool in which workers cannot update common arrays."""
    if environment.deterministic:
        raise OptionError(
            "Asynchronous: the result depends on the timing of the workers, but the pool is "
            "deterministic; give schedule=, the delays of the updates, or start another pool"
        )
    device = session.engine().pool.topology.device
    if environment.workers > 1 and device != "cpu":
        raise OptionError(
            f"Asynchronous: {environment.workers} workers on {device} cannot update common "
            f"parameters; give schedule=, the delays of the updates, or start a pool of CPU workers"
        )
