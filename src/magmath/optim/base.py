"""The optimizer: a rule that computes the next values of a parameter and its state from a gradient.

A rule is written on nodes, so an update is part of the graph: it is fused into the gradient's
product, split over workers, and stored in place. The same rule is used by `update` in a user's
loop, by `minimize`, and by the training step of a network. The state belongs to the optimizer and
the variable, independently of the expression of the loss.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import ref

from magmath.arrays.array import Array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.variables.variable import Variable, assign
from magmath.arrays.variables.variable_list import check_trainable, checked_variables
from magmath.autodiff import is_independent
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.dtypes import compute_dtype, float64
from magmath.core.foreign_keywords import check_assigned_name
from magmath.core.foreign_names import hint
from magmath.core.foreign_network_names import OPTIMIZER_ATTRIBUTES
from magmath.core.integers import require_integer
from magmath.core.keyword_hints import KeywordHints, keyword_hints
from magmath.core.real_numbers import require_number
from magmath.engine import session
from magmath.engine.lifetimes.kept_expressions import is_keeping_expressions
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.engine.user_line import warn_user
from magmath.errors import DTypeError, OptionError, ShapeError, StateError, TracingError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.optim.checked_gradients import checked_gradients
from magmath.optim.clip import check_limits, clipped
from magmath.optim.complex_parts import of_parts, parts_of, parts_of_gradient
from magmath.optim.groups import Groups, GroupSettings
from magmath.optim.loss_scale import LossScale, is_finite
from magmath.optim.minimizing import Minimizer, check_finite_losses, rate_dtype
from magmath.optim.rates import (
    LearningRate,
    check_learning_rate,
    load_schedule_states,
    rate_at,
    schedule_states,
)
from magmath.optim.saved_state import decoded_state, encoded_state
from magmath.optim.states import MASTER, ParameterNodes, RequiredStates, States, unrounded
from magmath.optim.step_count import StepCount, UnfinishedRun
from magmath.optim.update_rates import rates_of_update
from magmath.transform.compiled import compile

if TYPE_CHECKING:
    from magmath.diagnostics.explanation import Explanation

State = dict[str, Node]
_FACTORS: Mapping[str, float] = {
    "beta1": 1.0,
    "beta2": 1.0,
    "momentum": inf,
    "decay": inf,
    "learning_rate_decay": inf,
    "epsilon": inf,
    "weight_decay": inf,
    "trust_coefficient": inf,
}
"""Settings that are at least 0, with the numbers that they must be less than."""
MAX_UPDATES = 8
"""Sets of variables for which an optimizer keeps the compiled update, and with it the variables."""


@dataclass(eq=False, repr=False)
class Optimizer(metaclass=KeywordHints):
    """The base class of optimizers: an update rule with a learning rate and common settings.

    learning_rate a number, a schedule (`mm.optim.schedules`), or a function of the step (in `fit`:
                  of the epoch, whose count continues from one call to the next)
    weight_decay  adds weight_decay · w to the gradient of each w, the gradient of an L2 penalty
    clip_value    limits each element of the gradients to ±clip_value
    clip_norm     scales all gradients of a step by one factor, so that their common 2-norm, over
                  all variables and workers, is at most clip_norm
    groups        other settings for some variables, by a pattern of their names or, in `fit`, of
                  their paths, such as `{"*.bias": {"weight_decay": 0.0}}`; the first pattern that
                  matches is used

    The rate is a scalar of the program, so changing it does not recompile, except functions that
    read an attribute `learning_rate` themselves. The other settings cannot change, nor can
    `groups`, of which a copy is used. Rules compute in float32 at least: a variable of a half type
    has a float32 master copy, to which updates are applied. The real and imaginary parts of complex
    variables are updated, and limited by clip_value, like real variables, as in PyTorch. Source:
    Micikevicius et al. (2018), Mixed precision training, section 3.1; for clip_norm Pascanu et al.
    (2013).
    """

    learning_rate: LearningRate = 0.01
    _: KW_ONLY
    weight_decay: float = 0.0
    clip_value: float | None = None
    clip_norm: float | None = None
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    decays_in_rule: ClassVar[bool] = False
    """True for rules that apply `weight_decay` themselves."""

    def __post_init__(self) -> None:
        check_limits(self.clip_value, self.clip_norm)
        for setting, below in _FACTORS.items():
            if hasattr(self, setting):
                require_number(
                    f"{type(self).__name__}: {setting}", getattr(self, setting), 0, below
                )
        self._start()

    def _start(self) -> None:
        """Begin without states, groups of variables, and compiled updates."""
        self.step_count = StepCount()
        self._has_warned = False
        self._groups: Groups[Optimizer] = Groups(self)
        self.groups = GroupSettings(self.groups)
        self.variable_states = States(self._required_states, bool(self.groups))
        """The states of the variables that were updated."""
        self._minimizer = Minimizer(self)
        self._updates: RecentlyUsed[tuple[int, ...], Callable[..., None]]
        self._updates = RecentlyUsed(MAX_UPDATES)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "learning_rate":
            self._check_assigned_rate(value)
        elif name in self.__dataclass_fields__ and "_minimizer" in self.__dict__:
            raise StateError(
                f"{type(self).__name__}: only learning_rate may be assigned, {name} is part of "
                f"compiled steps; make another optimizer: "
                f"dataclasses.replace(optimizer, {name}={value!r})"
            )
        check_assigned_name(self, name)
        former = self.__dict__.get("learning_rate")
        super().__setattr__(name, value)
        if "_minimizer" in self.__dict__ and callable(self.learning_rate) != callable(former):
            invalidate_captures(self.step_count)  # of steps whose numbers runs do not know

    def _check_assigned_rate(self, value: Any) -> None:
        """Raise an error for anything but a learning rate, and within a traced function, whose
        program would not repeat the assignment."""
        if "_minimizer" in self.__dict__ and tracing.current() is not None:
            raise TracingError(
                f"{type(self).__name__}: learning_rate is assigned in a compiled function, which "
                f"happens only while it is traced; assign it before the call, or make it a "
                f"schedule, a function of the step"
            )
        check_learning_rate(value)

    def __getattr__(self, name: str) -> NoReturn:
        missing = f"{type(self).__name__} has no attribute {name!r}"
        raise AttributeError(missing + hint(OPTIMIZER_ATTRIBUTES, name))

    def __repr__(self) -> str:
        """Return the learning rate, the settings of the rule, and what else is not the default."""
        common = {f.name for f in fields(Optimizer)} - {"learning_rate"}
        settings = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        shown = [
            f"{name}={value!r}"
            for name, value, default in settings
            if name not in common or (value != default and value != {})
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, for pickle and copy.

        The states belong to the variables, which the copy does not have: `state_dict` returns them.
        """
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._start()

    # rules ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """The names of the rule's state arrays, of the parameter's shape and initially zero."""

    @property
    def has_step_count(self) -> bool:
        """True if the rule needs the step number (from 1)."""
        return False

    @abstractmethod
    def rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        """Return the next values of the parameter and its states.

        They have one type, float32 at least; `rate` is a 0-d node of that type. `count`, the step
        number if the rule `has_step_count`, otherwise None, combines with them as a Python number
        does: powers with it as the exponent are not exact enough in float32.
        """

    def next_values(
        self, parameters: Sequence[ParameterNodes], gradients: Sequence[Node], rates: Sequence[Node]
    ) -> list[tuple[Node, Node]]:
        """Return pairs of each node of parameters and states and the node of its next value.

        `rates` are the learning rates, in the order of the method `rates`.
        """
        counted: dict[Node, Node] = {}
        pairs: dict[Node, Node] = {}
        gradients = [
            parts_of_gradient(gradient, x.value)
            for x, gradient in zip(parameters, gradients, strict=True)
        ]
        gradients = clipped(gradients, self.clip_value, self.clip_norm)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if parameter.count is not None and parameter.count not in counted:
                counted[parameter.count] = parameter.count + 1
            count = None if parameter.count is None else counted[parameter.count]
            member = self._groups.members[parameter.group]
            rate = rates[self._groups.rate_index[parameter.group]]
            following = member._next_nodes(parameter, gradient, rate, count)
            pairs |= zip(parameter.nodes(), following.nodes(), strict=True)
        return list(pairs.items())

    def _next_nodes(
        self, parameter: ParameterNodes, gradient: Node, rate: Node, count: Node | None
    ) -> ParameterNodes:
        """Return the nodes of a parameter and its states after a step.

        `gradient` has the parts of a complex gradient (`optim/complex_parts.py`).
        """
        state = {name: parts_of(x) for name, x in parameter.states.items()}
        value, master = parts_of(parameter.value), state.pop(MASTER, None)
        dtype = compute_dtype(value.dtype)
        if master is not None:
            value = unrounded(value, master)
        number = None if count is None else e.WeakScalar(e.astype(count, float64))
        descent, rate = e.astype(gradient, dtype), e.astype(rate, dtype)
        if self.weight_decay and not self.decays_in_rule:
            descent = descent + self.weight_decay * value
        value, state = self._results_of_rule(value, descent, state, rate, number)
        if master is not None:
            state[MASTER] = value
        states = {name: of_parts(state[name], like) for name, like in parameter.states.items()}
        value = e.astype(of_parts(value, parameter.value), parameter.value.dtype)
        return ParameterNodes(value, states, count, parameter.group)

    def _results_of_rule(
        self, value: Node, gradient: Node, state: State, rate: Node, count: Any
    ) -> tuple[Node, State]:
        """Return what the rule returns. Raises OptionError unless it returns all states and no
        others, ShapeError for a value or a state of another shape."""
        shapes = {name: x.shape for name, x in state.items()}  # the rule may change `state`
        following, states = self.rule(value, gradient, state, rate, count)
        operation = f"{type(self).__name__}.rule"
        if states.keys() != shapes.keys():
            raise OptionError(
                f"{operation}: must return the next value and a dictionary of the next states, "
                f"{', '.join(shapes) or 'without entries'}; has returned the states "
                f"{', '.join(states) or '(none)'}"
            )
        pairs = [("value", following, value.shape)]
        pairs += [(name, states[name], shape) for name, shape in shapes.items()]
        for name, x, shape in pairs:
            if x.shape != shape:
                raise ShapeError(
                    f"{operation}: must return the next {name} in the shape {shape}, has returned "
                    f"{x.shape}; give states and values the shape of the parameter"
                )
        return following, states

    def _required_states(self, v: Variable) -> RequiredStates:
        group = self._groups.index(v)
        member = self._groups.members[group]
        return RequiredStates(member.states, member.has_step_count, group)

    def add_paths(self, parameters: Sequence[tuple[str, Variable]]) -> None:
        """Use these paths of parameters, besides their names, to find their groups."""
        self._groups.add_paths(parameters)

    def check_groups(self, parameters: Sequence[tuple[str, Variable]]) -> None:
        """Raise OptionError for a group without one of these parameters, given with their paths."""
        self._groups.check(parameters)

    # learning rates ---------------------------------------------------------------------------

    def rates(self, step: int, epoch: int | None = None) -> list[float]:
        """Return the learning rate at a step, and those of groups with their own rates.

        `epoch` is the epoch number in `fit`, where schedules and functions count epochs unless they
        are schedules per step.
        """
        return [rate_at(rate, step, epoch) for rate in self.learning_rates]

    @property
    def learning_rates(self) -> list[LearningRate]:
        """The learning rate, and those of groups with their own rates."""
        return self._groups.learning_rates

    def advance(self, steps: int, unfinished: UnfinishedRun | None = None) -> None:
        """Count steps that used `next_values`, and those of a run that goes on after Ctrl-C."""
        self.step_count.started += steps
        if unfinished is not None:
            self.step_count.add_unfinished(unfinished)

    @property
    def steps(self) -> int:
        """The number of steps that the optimizer has taken, those that changed nothing included.

        Those in branches of `cond` and in loops that were taken count, so it may wait for runs, as
        for one that goes on after Ctrl-C.
        Raises TracingError in a compiled function, whose program would repeat the number.
        """
        trace = tracing.current()
        if trace is not None and trace.is_of_program:
            raise TracingError(
                f"{type(self).__name__}: steps is read in a compiled function, which happens only "
                f"while it is traced; give the number as an argument, or let learning_rate be a "
                f"function of the step"
            )
        return self.step_count.value

    # steps ------------------------------------------------------------------------------------

    def update(
        self, gradients: Mapping[Variable, Array], loss_scale: LossScale | None = None
    ) -> None:
        """Take a step: assign each variable its next value, computed from its gradient.

        A variable on which the loss does not depend at all keeps its value and its states, as in
        PyTorch: the zeros that `grad` returns for it tell. A gradient that is computed as zero
        counts: momentum, moments and weight decay change the variable.

        The gradients are evaluated together, and a compiled function of them computes the step;
        within a compiled function the step is part of its program. With a loss scale the step is
        skipped unless all gradients, which are unscaled (`LossScale.value_and_grad`), are finite,
        and the scale is adjusted. Raises ShapeError if a gradient has another shape than its
        variable, DTypeError for a variable of integers, OptionError without any gradient,
        StateError for a variable that is frozen.
        """
        gradients = checked_gradients(gradients)
        used = {v: g for v, g in gradients.items() if not is_independent(g.node)}
        if not used:
            self._warn_unused(gradients)
        if used and tracing.current() is None and not is_keeping_expressions():
            values = [*used.values()]
            engine = session.engine()
            with engine.in_modes(engine.modes.of_training()):
                evaluate(*values)
            self._compiled_update(tuple(used), loss_scale)(*values)
        else:
            self._assign_next_values(gradients, loss_scale)

    def _warn_unused(self, variables: Mapping[Variable, Array]) -> None:
        """Warn, the first time, of a step that changes none of the variables that it is given."""
        if not self._has_warned:
            self._has_warned = True
            warn_user(
                f"update: the loss depends on none of the {len(variables)} variables, such as "
                f"{next(iter(variables)).name!r}, so the step changes nothing; compute the loss "
                f"from these variables (of this module): values that were read (x.numpy(), "
                f"float(x)), snapshots, comparisons and mm.stop_gradient(x) are constants"
            )

    def restore_steps(self, count: int) -> None:
        """Continue after this number of steps."""
        self.step_count.restore(count)

    def _compiled_update(
        self, variables: tuple[Variable, ...], loss_scale: LossScale | None
    ) -> Callable[..., None]:
        """Return the compiled step of these variables, a function of their gradients."""
        key = (id(loss_scale), *map(id, variables))
        update = self._updates.find(key)
        if update is None:
            owner = ref(self)  # which owns the function

            def step(*gradients: Array) -> None:
                optimizer = owner()
                assert optimizer is not None
                pairs = dict(zip(variables, gradients, strict=True))
                optimizer._assign_next_values(pairs, loss_scale)

            update = compile(step)
            self._updates.store(key, update)
        return update

    def _assign_next_values(
        self, gradients: Mapping[Variable, Array], loss_scale: LossScale | None
    ) -> None:
        variables, nodes = list(gradients), [gradient.node for gradient in gradients.values()]
        self.assign_next_values(variables, nodes, self.rates_of_update(variables), loss_scale)

    def assign_next_values(
        self,
        variables: Sequence[Variable],
        gradients: Sequence[Node],
        rates: Sequence[Node],
        loss_scale: LossScale | None = None,
        others: Mapping[Variable, Node] = MappingProxyType({}),
    ) -> None:
        """Assign variables and states their next values, except those on which the loss does not
        depend.

        With a loss scale, the step is skipped unless all gradients are finite. Then the variables
        `others`, which were assigned before, have their former values, the given nodes, again.
        """
        by_variable = zip(variables, gradients, strict=True)
        used = [(v, gradient) for v, gradient in by_variable if not is_independent(gradient)]
        if not used:
            return
        trace = tracing.current()
        if trace is not None:
            trace.mark_training()
        entries = self.variable_states.of([v for v, _ in used])
        gradients = [gradient for _, gradient in used]
        owners = [v for entry in entries for v in entry.variables()]
        read = {v.node: v for v in owners}
        parameters = [entry.nodes(lambda v: v.node) for entry in entries]
        pairs = self.next_values(parameters, gradients, rates)
        if loss_scale is not None:
            finite = is_finite(gradients)
            pairs = loss_scale.guarded(pairs, finite)
            read |= loss_scale.variables_by_node()
            assign([(v, e.where(finite, v.node, former)) for v, former in others.items()])
        assign([(read[node], value) for node, value in pairs])

    def rates_of_update(self, variables: Sequence[Variable]) -> list[Node]:
        """Return the learning rates of the next update as nodes, in the order of `rates`."""
        return rates_of_update(self, rate_dtype(variables))

    @keyword_hints
    def minimize(
        self,
        expression: Array,
        variables: Sequence[Variable],
        steps: int = 1,
        *,
        check_finite: bool = True,
    ) -> float:
        """Take `steps` steps that reduce a 0-d expression; return its value before the last one.

        The expression is used as a function of its variables and random numbers: steps start from
        the current values of the variables and draw new random numbers. They run on the workers, in
        one message. The optimizer continues from its state, whether the expression is the same
        object or a new one.

        Raises ShapeError if the expression is not 0-d, DTypeError for a variable of integers,
        NonFiniteLoss if the expression becomes nan or infinite (not with `check_finite=False`).
        """
        if not checked_variables("minimize", variables):
            raise OptionError(
                "minimize: needs at least one variable, was given an empty list; if all parameters "
                "are frozen, call module.unfreeze()"
            )
        check_trainable("minimize", variables)
        _check_expression(expression)
        steps = require_integer("minimize: steps", steps, 1)
        if tracing.current() is not None:
            raise TracingError(
                "minimize: returns a number, which does not exist while a compiled function is "
                "traced; take the step with optimizer.update({v: mm.grad(loss, v), …}) in it"
            )
        if any(map(callable, self.learning_rates)):
            first = self.steps
            rates, steps_per_rate = [self.rates(first + i) for i in range(steps)], 1
        else:
            rates, steps_per_rate = [self.rates(0)], steps
        values = self._minimizer.run(expression, variables, rates, steps_per_rate)
        if check_finite:
            check_finite_losses(values)
        return values[-1]

    def explain(self) -> Explanation:
        """Explain the program of the last `minimize`. Raises StateError before the first call."""
        from magmath.diagnostics.explain import explain_program
        from magmath.engine import session

        last = self._minimizer.last
        if last is None:
            raise StateError("explain: call minimize first; there is no step yet")
        return explain_program(last.compiled.program, session.engine().environment)

    # state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Array]:
        """Return the states, by the names of the variables: "w.velocity", "w.count", "steps".

        The values are snapshots, 0-d for counts. Of several variables with the name "w", such as
        parameters of two networks, the second one to be updated has "w#2.velocity", and so on.
        """
        return encoded_state(
            self.variable_states.state_dict(), schedule_states(self.learning_rates), self.steps
        )

    def load_state_dict(self, state: Any) -> None:
        """Load states that `state_dict` returned; the values may be arrays of any library.

        Variables that the optimizer has updated get their values now, and compiled steps stay
        valid. The state of another variable is used when the optimizer first updates a variable of
        that name; of several variables with one name, in the order of their first updates.
        Variables without a loaded state start from zero states. Raises OptionError for the states
        of another optimizer and for incomplete ones, ShapeError for those of a variable of another
        shape, and then changes nothing; the update does for a variable that is updated later.
        """
        values, schedules, steps = decoded_state(state)
        self.variable_states.check_state_dict(values)
        load_schedule_states(self.learning_rates, schedules)
        self.restore_steps(steps)
        self.variable_states.load_state_dict(values)


def _check_expression(expression: Any) -> None:
    """Raise an error unless an expression to be minimized is a real 0-d array."""
    if not isinstance(expression, Array):
        remedy = "; give the result of its call, minimize(f(), …)" if callable(expression) else ""
        raise TypeError(
            f"minimize: needs a 0-d array, was given {type(expression).__name__}{remedy}"
        )
    if expression.shape != ():
        raise ShapeError(
            f"minimize: needs a 0-d expression, was given shape {expression.shape}; reduce it with "
            f"mm.mean or mm.sum"
        )
    if not expression.dtype.is_floating:
        raise DTypeError(f"minimize: needs real floating point, was given {expression.dtype}")
