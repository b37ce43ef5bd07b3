"""Variables: named arrays that can be assigned.

An expression of a variable means the value at the line that wrote it. Assignment gives the variable
another value; expressions that read the former value keep it, and its memory is reused only when it
has no references. In a traced function a variable stands for its value at the time of the call, and
assignment becomes part of the function's program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from magmath.arrays.array import Array, as_array, copy_of, redistributed
from magmath.arrays.exports.pickling import restored_leaf, values_of
from magmath.arrays.indexing.masked_elements import with_item
from magmath.arrays.inputs.conversion import bind_layout, default_layout, leaf_of_values
from magmath.arrays.inputs.number_list import LISTS, has_elements_of, is_number
from magmath.arrays.inputs.operands import node_of, operand_and_kind
from magmath.arrays.lazy_array import LazyArray, evaluate
from magmath.arrays.storage.failed_updates import undo_failed_updates
from magmath.core.dtypes import DType, is_same_kind
from magmath.core.foreign_names import VARIABLE_ATTRIBUTES, hint, missing_attribute
from magmath.core.promotion import common_dtype
from magmath.engine import session
from magmath.engine.fallible_operations import has_pending_fallible
from magmath.engine.lifetimes.live_references import is_referenced
from magmath.engine.lifetimes.pending_readers import readers_of_former_values
from magmath.engine.remote_array import RemoteArray, leaf_of, no_value_error, remote_array_of
from magmath.engine.run_numbers import rollback_on_failure
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures, invalidate_layouts
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, apply, topological
from magmath.graph.evaluation_state import set_variable_layout
from magmath.layout import Layout, Rule
from magmath.ops import elementwise as e
from magmath.ops.leaves import variable_leaf, version

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle


def _replaced(name: str) -> property:
    """Return the property of a name of PyTorch's parameters: reading or assigning it raises
    AttributeError, which says what to write."""

    def refuse(variable: Variable, value: object = None) -> None:
        raise missing_attribute(
            f"{type(variable).__name__!r} object", name, hint(VARIABLE_ATTRIBUTES, name)
        )

    return property(refuse, refuse)


class Variable(Array):
    """A named array that can be assigned, and that optimizers update.

    Attributes: `name`, and those of an array. Assignment changes neither shape, element type nor
    layout, except that one copy for all workers of a host may take the place of one for each.
    """

    __slots__ = ("_value", "_version", "leaf", "name", "number", "stored")
    is_variable = True
    trainable = True
    """False for a parameter of a module that is frozen."""
    data = _replaced("data")
    requires_grad = _replaced("requires_grad")

    def __init__(self, name: str, data: RemoteArray) -> None:
        if not isinstance(data, RemoteArray):
            raise TypeError(
                f"Variable: is made with mm.variable(name, value), or mm.nn.Parameter(value) in a "
                f"module, was given {type(data).__name__}; write mm.variable('w', value)"
            )
        self.name = name
        self.leaf = variable_leaf(data.shape, data.dtype, data.layout, ref(self))
        self.number = 0
        """Version number of the current value."""
        self.pending_update = None
        self.view_of = self._kept = None
        self.set_value(data)
        if (trace := tracing.current()) is not None:
            trace.add_variable(self)

    @property
    def settings(self) -> dict[str, Any]:
        """The attributes of its class, other than name and value, that copies inherit."""
        return {}

    @classmethod
    def restored(cls, name: str, data: RemoteArray, settings: Mapping[str, Any]) -> Variable:
        """Return a variable of this class with the given value and settings."""
        variable = cls.__new__(cls)
        Variable.__init__(variable, name, data)
        for setting, value in settings.items():
            setattr(variable, setting, value)
        return variable

    def set_value(self, data: RemoteArray) -> None:
        """Store a new value of the same shape, type and layout.

        The layout may differ in one way: where workers share memory, one copy for all of them can
        take the place of one for each. Then compiled functions that read the variable are traced
        again, since their programs would read the memory of each worker.
        """
        if data.layout != self.leaf.layout:
            self._set_read_layout(data.layout)
        self.number += 1
        self._hold(data)

    def _hold(self, data: RemoteArray) -> None:
        self.stored = data
        """The value on the workers."""
        self._value: Node = leaf_of(data)
        self._version: Node | None = None

    @property
    def _node(self) -> Node:  # type: ignore[override]
        """The node that an expression reads if it is written now."""
        trace = tracing.current()
        if trace is not None:
            return trace.value_of(self)
        return self.current_version

    @property
    def current_version(self) -> Node:
        """The node of its value outside of traces."""
        if self._version is None:
            self._version = version(self.leaf, self._value, self.number, self._value)
        return self._version

    @property
    def _leaf(self) -> Node | None:  # type: ignore[override]
        return self._value if tracing.current() is None else None

    @property
    def layout(self) -> Layout:
        """The distribution of the value over the workers."""
        layout = self.leaf.layout
        assert layout is not None
        return layout

    def evaluated_leaf(self) -> Node:
        """Return the leaf with the value. Raises TracingError while a function is traced."""
        if tracing.current() is not None:
            raise no_value_error()
        return self._value

    @property
    def is_computed(self) -> bool:
        """True except while a function is traced."""
        return tracing.current() is None

    def assign(self, value: Any) -> None:
        """Assign a new value of the same shape, converted to the variable's type.

        Earlier expressions keep the value that they read. After the pool of the variable has ended,
        the value is stored in the current pool, in the default layout. Raises TypeError for a value
        other than arrays, numbers and nested lists, ShapeError for another shape, RangeError for a
        number that the variable's integer type cannot hold, DTypeError for values of a more general
        kind, such as floats for integers, and arrays of integers with more bits.
        """
        if has_elements_of(value, LazyArray):
            value = as_array("assign", value)
        shape = _shape_of(self.name, value)
        if shape != self.shape:
            raise ShapeError(
                f"assign: variable {self.name} has shape {self.shape}, was given a value of shape "
                f"{shape}; reshape or broadcast the value"
            )
        is_typed = isinstance(value, LazyArray) and not value.is_weak
        assign([(self, value.node if is_typed else self._value_to_assign(value))])

    def _value_to_assign(self, value: Any) -> Node:
        """Return the node of a value that may have no type of its own: of numbers and lists of them
        in the type of the variable."""
        if not (isinstance(value, (LazyArray, *LISTS)) or is_number(value)):
            return leaf_of_values(value)
        operand, kind = operand_and_kind("assign", value)
        if isinstance(kind, DType):
            node: Node = operand
            return node
        dtype = self.leaf.dtype
        _check_convertible(self, common_dtype(dtype, kind))
        return node_of("assign", operand, dtype)

    def snapshot(self) -> Array:
        """Return the current value as an array that later assignments do not change.

        The array counts as a constant for gradients.
        """
        if tracing.current() is not None:
            return Array(apply(e.OPERATIONS["stop_gradient"], self.node))
        return Array(self._value)

    def move(self, layout: Layout | Rule) -> None:
        """Redistribute the variable to another layout, or to that of a rule for its shape.

        Compiled functions that read the variable are traced again. Raises LayoutError for a layout
        of another shape or another pool's mesh.
        """
        layout = bind_layout("move", layout, self.shape)
        current = self.layout
        once = current.shared and layout == Layout.replicated_on(self.shape, current.mesh)
        if layout == current or once:  # one copy for all workers of a host serves as one for each
            return
        moved = redistributed(Array(self.node), layout)
        data = remote_array_of(moved.evaluated_leaf())
        self._set_read_layout(data.layout)  # copies for each worker are stored once
        self._hold(data)

    def _set_read_layout(self, layout: Layout) -> None:
        """Set the layout in which later expressions and traces read the variable."""
        invalidate_layouts(self.leaf)
        set_variable_layout(self.leaf, layout)

    def _move_to_current_pool(self, node: Node) -> None:
        """Store a value in the current pool, in its default layout, after the pool of the variable
        has ended."""
        layout = default_layout(node.shape, node.nbytes)
        self.set_value(remote_array_of(redistributed(Array(node), layout).evaluated_leaf()))

    def convert(self, dtype: DType) -> None:
        """Convert the variable to another element type.

        Compiled functions that read the variable are traced again. Expressions that were written
        before keep the former values, and do not depend on the variable any more.
        """
        if dtype is self.leaf.dtype:
            return
        data = remote_array_of(
            redistributed(Array(e.astype(self.node, dtype)), self.layout).evaluated_leaf()
        )
        invalidate_captures(self.leaf)
        self.leaf = variable_leaf(data.shape, dtype, data.layout, ref(self))
        self.set_value(data)

    def __setitem__(self, key: Any, value: Any) -> None:
        assign([(self, with_item(self, key, value))])

    def replace_value(self, node: Node) -> Array:
        if node.shape != self.shape:
            raise ShapeError(
                f"update in place: variable {self.name!r} has shape {self.shape}, "
                f"its new value would have {node.shape}; assign a value of the "
                "variable's shape, or make a new array: y = v + x"
            )
        assign([(self, node)])
        return self

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        return _restored, (type(self), self.name, self.settings, *values_of(self))

    def __deepcopy__(self, memo: dict[int, object]) -> Variable:
        """Return another variable with the same name and value."""
        data = remote_array_of(copy_of(self, self.layout).evaluated_leaf())
        return type(self).restored(self.name, data, self.settings)

    def release(self) -> list[Node]:
        """Return a list with the value's leaf, which only the list, the variable and user code
        reference."""
        self._version = None
        return [self._value]

    @property
    def has_other_references(self) -> bool:
        """True if the value has references other than the variable."""
        return is_referenced(self.release())


def is_plain_array(value: Any) -> bool:
    """Return True for an array that is no variable."""
    return isinstance(value, Array) and not isinstance(value, Variable)


def assign(pairs: Sequence[tuple[Variable, Node]]) -> None:
    """Assign new values to variables, all computed from the former values."""
    trace = tracing.current()
    converted = [(v, _converted(v, node)) for v, node in pairs]
    if trace is not None:  # the program stores the values in the layouts of the variables
        for v, node in converted:
            trace.assign(v, node)
        return
    pool = session.engine().pool
    placed = []
    for v, node in converted:
        if v.stored.pool is pool:
            placed.append((v, redistributed(Array(node), v.leaf.layout).node))
        else:
            v._move_to_current_pool(node)
    with rollback_on_failure():
        _release_former_values([v for v, _ in placed])
        try:
            session.engine().evaluator.assign(placed)
        except Exception as error:
            undo_failed_updates(topological([node for _, node in placed], pending=True), error)
            raise


def _shape_of(name: str, value: Any) -> tuple[int, ...]:
    """Return the shape of a value to be assigned to the variable of this name."""
    if hasattr(value, "shape"):
        return tuple(value.shape)
    if not (is_number(value) or isinstance(value, LISTS)):
        raise TypeError(
            f"assign: variable {name} needs an array, a number or nested lists of numbers, was "
            f"given {value!r}"
        )
    try:
        return np.shape(value)
    except ValueError:
        raise ShapeError(
            f"assign: the nested lists given to variable {name} have different lengths; make them "
            f"equal in each dimension"
        ) from None


def is_convertible(source: DType, target: DType) -> bool:
    """Return True if values of type `source` may be assigned to a variable of type `target`.

    Integers must not overflow, and fractions and imaginary parts must not be lost.
    """
    wider = source.is_integer and target.is_integer and source.itemsize > target.itemsize
    return is_same_kind(source, target) and not wider


def conversion_remedy(source: DType, target: DType) -> str:
    """Return how to convert values of the type `source`, which loses information, for messages."""
    if source.kind == "complex" and target.kind != "complex":
        return "take its real part, mm.real(x), or mm.abs(x)"
    return f"convert it with mm.astype(x, mm.{target.name})"


def _converted(variable: Variable, node: Node) -> Node:
    """Return a new value in the variable's element type.

    Raises DTypeError if integers could overflow, or fractions or imaginary parts could be lost.
    """
    _check_convertible(variable, node.dtype)
    return e.astype(node, variable.leaf.dtype)


def _check_convertible(variable: Variable, value_dtype: DType) -> None:
    variable_dtype = variable.leaf.dtype
    if not is_convertible(value_dtype, variable_dtype):
        raise DTypeError(
            f"assign: variable {variable.name} is {variable_dtype}, its new value would be "
            f"{value_dtype} and lose information; {conversion_remedy(value_dtype, variable_dtype)}"
        )


def _release_former_values(variables: Sequence[Variable]) -> None:
    """Release former values of variables that expressions keep.

    Pending expressions are computed first, unless they can fail, read results of failed runs or
    belong to another pool.
    """
    readers = readers_of_former_values([(v.leaf, v._value) for v in variables])
    evaluate(*[x for x in readers if not x.is_computed and _is_surely_computed(x.node)])
    for reader in readers:
        reader.forget_values()


def _is_surely_computed(node: Node) -> bool:
    """Return True if a pending expression cannot fail, and the current pool stores its operands."""
    pool = session.engine().pool
    order = topological((node,), pending=True)
    leaves = [x.leaf_or_self for x in order]
    data = [remote_array_of(x) for x in leaves if x.name == "input"]
    is_present = all(x.pool is pool and not x.has_failed for x in data)
    return is_present and not has_pending_fallible(order)


def overwrite(
    variables: Sequence[Variable],
    start: Callable[[], tuple[list[RemoteArray], RunHandle]],
    *,
    can_fail: bool,
) -> tuple[list[RemoteArray], RunHandle]:
    """Start a program that updates variables in place; return its other outputs and the run.

    The last outputs of the program are the new values of the variables, in the memory of the
    current ones. If a current value has other references, the program overwrites a copy.

    can_fail  the program fails for some data: it overwrites copies of all variables, and this
              function waits for its end. If it raises, the variables have their former values
    """
    with rollback_on_failure():
        session.engine().runs.wait_for_fallible_run()
        _release_former_values(variables)
        if not can_fail:
            return _overwrite([v for v in variables if v.has_other_references], variables, start)
        with restored_on_failure(variables):
            outputs, run = _overwrite(variables, variables, start)
            run.wait()
        return outputs, run


@contextmanager
def restored_on_failure(variables: Sequence[Variable]) -> Iterator[None]:
    """Give variables their former values, which must not be overwritten, if this block fails."""
    former = [(v, v.stored, v._value, v._version, v.number) for v in variables]
    try:
        yield
    except Exception:
        for v, data, value, read, number in former:
            v.stored, v._value, v._version, v.number = data, value, read, number
        raise


def _overwrite(
    copied: Sequence[Variable],
    variables: Sequence[Variable],
    start: Callable[[], tuple[list[RemoteArray], RunHandle]],
) -> tuple[list[RemoteArray], RunHandle]:
    """Start a program that updates variables in place, some of them in copies of their values;
    return its other outputs and the run."""
    engine = session.engine()
    if copied:
        copies = [redistributed(Array(_copied(v.node)), v.layout).node for v in copied]
        for v, leaf in zip(copied, engine.evaluate(copies), strict=True):
            v._hold(_in_layout(remote_array_of(leaf), v.layout))
    with engine.pool.defer_interrupts():
        outputs, run = start()
        first = len(outputs) - len(variables)
        for v, value in zip(variables, outputs[first:], strict=True):
            v.set_value(value)
    return outputs[:first], run


def _copied(node: Node) -> Node:
    return apply(e.ASTYPE, node, dtype=node.dtype)


def _in_layout(data: RemoteArray, layout: Layout) -> RemoteArray:
    """Return an array in exactly this layout, for a program that is planned for it: an expression
    may have one copy for all workers of a host in place of one for each."""
    if data.layout == layout:
        return data
    number = data.pool.put(data.fetch(), layout)
    return RemoteArray(data.pool, number, data.shape, data.dtype, layout)


def _restored(
    kind: type[Variable], name: str, settings: Mapping[str, Any], *values: Any
) -> Variable:
    return kind.restored(name, remote_array_of(restored_leaf(*values)), settings)
