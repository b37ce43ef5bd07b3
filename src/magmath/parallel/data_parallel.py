"""Data parallelism: every worker computes the gradient of its share of each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from magmath.api.creation import variable, zeros
from magmath.api.manipulation import reshape
from magmath.api.reductions import sum
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_map import VariableMap
from magmath.core.dtypes import DTYPES, DType
from magmath.engine import session
from magmath.errors import OptionError
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.ops.summands import ALGORITHMS, sum_parts
from magmath.parallel.gradient_averaging import GradientAveraging, whole_copies
from magmath.parallel.gradient_messages import (
    OneBit,
    divided_batch,
    flat,
    part_count,
    parts_of,
    sent_whole,
    sum_on,
)
from magmath.parallel.layer_layouts import state_layout
from magmath.parallel.strategy import Training
from magmath.passes.environment import Environment

EXCHANGES = {
    "allreduce": "data",
    "ring": "data",
    "tree": "data",
    "sharded": "sharded",
    "parameter-server": "server",
}
"""The option of all layers for each exchange."""
ONE_BIT = "1-bit"
MESSAGES = ("float32", "float16", "bfloat16", ONE_BIT)


@final
class DataParallel(GradientAveraging):
    """Average the gradients of the workers, each computed from its share of the batch.

    exchange     "allreduce": the planner reduces each gradient as it finds cheapest, in shared
                 memory without a copy. "ring" and "tree": by these algorithms of messages.
                 "sharded": each worker reduces and updates its own chunk, with its share of the
                 optimizer's states, and the next forward pass replicates the chunks.
                 "parameter-server": worker 0 gathers the gradients, averages them, updates its
                 parameters, and broadcasts them
    accumulate   the number of consecutive parts into which a batch is divided; their gradients are
                 added before the exchange
    messages     element type in which wider gradients are sent: "float32", "float16", "bfloat16",
                 or "1-bit": the signs with two values for each worker and parameter. What one bit
                 does not express is added to the next gradient (error feedback); not with the
                 exchange "ring", "tree" or "parameter-server". None, the default, is the type of
                 the gradients

    The update is w ← w - η Σ g_i / N, with samples, not workers, as the weights of the mean.
    Sources: SHM-Learn-Dist, Eq. 2.1, and section 6 for the parameter server; dMath, section 2.1,
    for the sharded update; Seide et al. (2014) for one bit.
    """

    def __init__(
        self, exchange: str = "allreduce", *, accumulate: int = 1, messages: str | None = None
    ) -> None:
        super().__init__(accumulate)
        for name, value, known in (
            ("exchange", exchange, tuple(EXCHANGES)),
            ("messages", messages, (None, *MESSAGES)),
        ):
            if value not in known:
                raise OptionError(
                    f"DataParallel: {name}={value!r} is not known; there are "
                    f"{', '.join(map(str, known))}"
                )
        if messages == ONE_BIT and exchange not in ("allreduce", "sharded"):
            raise OptionError(
                f"DataParallel: the exchange {exchange!r} adds gradients on several workers in "
                f"turn or on one, which one bit cannot express; choose the exchange 'allreduce' "
                f"or 'sharded' for messages='1-bit'"
            )
        self.messages, self.exchange_name = messages, exchange
        self.unrolls_loops = messages == ONE_BIT
        self._residuals: VariableMap[Variable] = VariableMap()

    def __repr__(self) -> str:
        settings = [repr(self.exchange_name)]
        settings += [f"accumulate={self.accumulate}"] if self.accumulate > 1 else []
        settings += [f"messages={self.messages!r}"] if self.messages is not None else []
        return f"DataParallel({', '.join(settings)})"

    @property
    def _is_planned(self) -> bool:
        """True if the planner chooses how gradients are computed and reduced."""
        plain = self.messages is None and self.accumulate == 1
        return plain and self.exchange_name in ("allreduce", "sharded")

    def distributed_samples(self, x: Array) -> Array:
        return x if self._is_planned else divided_batch(x, session.engine().environment)

    def summand(self, parameter: Variable, gradient: Array) -> Array:
        """Return the summands (workers, …) of a gradient, one for each worker, which move only when
        those of all parts of the batch are added."""
        return gradient if self._is_planned else parts_of(gradient, session.engine().environment)

    # layouts and variables --------------------------------------------------------------------

    def copies(self, training: Training) -> Mapping[Node, Node]:
        return whole_copies(training)

    def options(
        self, training: Training, environment: Environment, step_graph: Callable[[], Graph]
    ) -> tuple[Mapping[str, str], Mapping[str, float]]:
        return dict.fromkeys(training.layers, EXCHANGES[self.exchange_name]), {}

    def prepare(self, training: Training, environment: Environment) -> None:
        """Make the residuals of one-bit messages: what each worker has not sent yet, at first 0."""
        if self.messages != ONE_BIT:
            return
        count, pool = part_count(environment), session.engine().pool
        for v in training.parameters:
            known = self._residuals.find(v)
            fits = known is not None and (known.shape[1], known.dtype) == (v.size, v.dtype)
            if known is None or known.stored.pool is not pool or not fits:
                value = zeros((count, v.size), dtype=v.dtype)
                self._residuals[v] = variable(f"{v.name}.residual", value, dtype=v.dtype)

    def state(self, training: Training) -> Mapping[str, Variable]:
        paths = {id(v): path for path, v in training.module.named_parameters()}
        return {
            f"{paths[id(v)]}/residual": self._residuals[v]
            for v in training.parameters
            if v in self._residuals
        }

    def fitted_state(
        self, training: Training, saved: Mapping[str, Any], prefix: str
    ) -> Mapping[str, Any]:
        """Return the saved residuals for the current number of workers.

        Their sum over the workers is what has not been sent: rows of workers that are no more are
        added to others, and new workers begin with 0.
        """
        current = {prefix + name: v for name, v in self.state(training).items()}
        fitted = dict(saved)
        for name, value in saved.items():
            v = current.get(name)
            if v is not None and value.ndim == 2 and value.shape[1] == v.shape[1]:
                rows = value.new_zeros(v.shape)
                for i in range(v.shape[0]):
                    rows[i] = value[i :: v.shape[0]].sum(0)
                fitted[name] = rows
        return fitted

    def own_layouts(
        self, training: Training, environment: Environment
    ) -> Mapping[Variable, Layout]:
        layouts = {}
        for v in self.state(training).values():
            count = v.shape[0]
            whole = environment.replicated(v.shape)
            layouts[v] = Layout.even(v.shape, environment.mesh, 0) if count > 1 else whole
        return layouts

    # exchange ---------------------------------------------------------------------------------

    def exchange(self, training: Training, gradients: Sequence[Array]) -> Sequence[Array]:
        environment = session.engine().environment
        if self._is_planned:
            return gradients
        scale = training.loss_scale if self.messages == "float16" else None
        if scale is not None:  # against underflow in the messages too
            gradients = [scale.scaled(parts) for parts in gradients]
        pairs = zip(training.parameters, gradients, strict=True)
        sums = [self._exchanged(v, parts, environment) for v, parts in pairs]
        return sums if scale is None else scale.unscaled(sums)

    def _exchanged(self, v: Variable, parts: Array, environment: Environment) -> Array:
        """Return the sum of the parts of a gradient, exchanged as the settings say."""
        if self.messages == ONE_BIT:
            return self._by_bits(v, parts)
        dtype = _message_type(self.messages, parts.dtype)
        if dtype is parts.dtype and self.exchange_name in ("allreduce", "sharded"):
            return sum(parts, axis=0)  # pending again: one exchange for all parts of the batch
        if (
            self.exchange_name in ALGORITHMS
            and environment.workers > 1
            and not environment.deterministic
        ):
            return Array(sum_parts(parts.node, self.exchange_name, dtype))
        if self.exchange_name == "parameter-server":
            return sum_on(parts, Layout.replicated_on(v.shape, environment.first_worker), dtype)
        shards = sum_on(parts, state_layout("sharded", v.shape, environment), dtype)
        return shards if self.exchange_name == "sharded" else sent_whole(shards, environment, dtype)

    def _by_bits(self, v: Variable, parts: Array) -> Array:
        """Return the sum of the parts that the workers send in one bit, and keep the rest."""
        residual = self._residuals[v]
        total = flat(parts) + Array(residual.node)
        bits = OneBit.of(total)
        residual.assign(total - bits.values(v.size))
        return reshape(bits.total(v.size), v.shape)


def _message_type(name: str | None, gradient: DType) -> DType:
    """Return the type of messages: that of the gradients, or a narrower one."""
    dtype = gradient if name is None else DTYPES[name]
    return dtype if dtype.itemsize < gradient.itemsize else gradient
