"""The methods of NumPy's arrays, each a function of the namespace with the array as its first
argument.

The functions are in modules above `Array`, so the table names them. A name is looked up when it is
first used; from then on the method is the function itself, at no cost over a call of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from magmath.arrays.protocols.namespace import array_namespace
from magmath.core.shapes import Axis

_SAME = (
    "all any argmax argmin argpartition argsort astype choose clip conj conjugate "
    "cumprod cumsum diagonal dot max mean min nonzero prod put ravel repeat round searchsorted "
    "squeeze std sum swapaxes take trace var"
)
METHODS = {name: name for name in _SAME.split()}
"""The methods, each with the function of the namespace that implements it."""


@final
class _Method:
    """A method that its first use replaces by a function of the namespace."""

    def __init__(self, name: str, function: str) -> None:
        self._name, self._function = name, function

    def __get__(self, instance: object, owner: type) -> Any:
        setattr(ArrayMethods, self._name, getattr(array_namespace(), self._function))
        return getattr(owner if instance is None else instance, self._name)


A = TypeVar("A")


class ArrayMethods(Generic[A]):
    """The methods, for a class of arrays A."""

    __slots__ = ()

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> A:
        """Return the same elements in another shape: x.reshape(2, 3) or x.reshape((2, 3))."""
        extents = shape[0] if len(shape) == 1 else shape
        result: A = array_namespace().reshape(self, extents, order, copy=copy)
        return result

    def flatten(self, order: str = "C") -> A:
        """Return a copy of the elements as an array of one dimension."""
        result: A = array_namespace().reshape(self, (-1,), order, copy=True)
        return result

    def transpose(self, *axes: Any) -> A:
        """Return the array with its axes in another order, by default reversed."""
        order = axes[0] if len(axes) == 1 else axes or None
        if isinstance(order, int):
            order = (order,)
        result: A = array_namespace().transpose(self, order)
        return result

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> A:
        """Return the elements along an axis where a condition is true; see `mm.compress`."""
        result: A = array_namespace().compress(condition, self, axis, out)
        return result

    def fill(self, value: Any) -> None:
        """Set every element to one value, in place."""
        array_namespace().copyto(self, value)

    def sort(
        self,
        axis: int = -1,
        kind: str | None = None,
        order: None = None,
        *,
        stable: bool | None = None,
    ) -> None:
        """Sort along an axis, in place."""
        namespace = array_namespace()
        namespace.copyto(self, namespace.sort(self, axis, kind, order))

    def partition(
        self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None
    ) -> None:
        """Partition along an axis, in place; see `mm.partition`."""
        namespace = array_namespace()
        namespace.copyto(self, namespace.partition(self, kth, axis, kind, order))

    if TYPE_CHECKING:  # of the functions that the table names

        def all(
            self, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
        ) -> A: ...
        def any(
            self, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
        ) -> A: ...
        def argmax(
            self, axis: int | None = None, out: Any = None, *, keepdims: bool = False
        ) -> A: ...
        def argmin(
            self, axis: int | None = None, out: Any = None, *, keepdims: bool = False
        ) -> A: ...
        def argpartition(
            self, kth: Any, axis: int | None = -1, kind: str = "introselect", order: None = None
        ) -> A: ...
        def argsort(
            self,
            axis: int | None = -1,
            kind: str | None = None,
            order: None = None,
            *,
            descending: bool = False,
            stable: bool | None = True,
        ) -> A: ...
        def astype(self, dtype: Any, *, copy: bool = True, device: object = None) -> A: ...
        def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> A: ...
        def clip(
            self,
            min: Any = None,
            max: Any = None,
            out: Any = None,
            *,
            a_min: Any = None,
            a_max: Any = None,
        ) -> A: ...
        def conj(self, out: Any = None, *, where: Any = True, dtype: Any = None) -> A: ...
        def conjugate(self, out: Any = None, *, where: Any = True, dtype: Any = None) -> A: ...
        def cumprod(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> A: ...
        def cumsum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> A: ...
        def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> A: ...
        def dot(self, b: Any, out: Any = None) -> A: ...
        def max(
            self,
            axis: Axis = None,
            out: Any = None,
            keepdims: bool = False,
            initial: Any = None,
            where: Any = None,
        ) -> A: ...
        def mean(
            self,
            axis: Axis = None,
            dtype: Any = None,
            out: Any = None,
            keepdims: bool = False,
            *,
            where: Any = None,
        ) -> A: ...
        def min(
            self,
            axis: Axis = None,
            out: Any = None,
            keepdims: bool = False,
            initial: Any = None,
            where: Any = None,
        ) -> A: ...
        def nonzero(self) -> tuple[A, ...]: ...
        def prod(
            self,
            axis: Axis = None,
            dtype: Any = None,
            out: Any = None,
            keepdims: bool = False,
            initial: Any = None,
            where: Any = None,
        ) -> A: ...
        def put(self, ind: Any, v: Any, mode: str = "raise") -> None: ...
        def ravel(self, order: str = "C") -> A: ...
        def repeat(self, repeats: Any, axis: int | None = None) -> A: ...
        def round(self, decimals: int = 0, out: Any = None) -> A: ...
        def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> A: ...
        def squeeze(self, axis: Axis = None) -> A: ...
        def std(
            self,
            axis: Axis = None,
            dtype: Any = None,
            out: Any = None,
            ddof: float = 0,
            keepdims: bool = False,
            *,
            where: Any = None,
            mean: Any = None,
            correction: float | None = None,
        ) -> A: ...
        def sum(
            self,
            axis: Axis = None,
            dtype: Any = None,
            out: Any = None,
            keepdims: bool = False,
            initial: Any = None,
            where: Any = None,
        ) -> A: ...
        def swapaxes(self, axis1: int, axis2: int) -> A: ...
        def take(
            self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
        ) -> A: ...
        def trace(
            self,
            offset: int = 0,
            axis1: int = 0,
            axis2: int = 1,
            dtype: Any = None,
            out: Any = None,
        ) -> A: ...
        def var(
            self,
            axis: Axis = None,
            dtype: Any = None,
            out: Any = None,
            ddof: float = 0,
            keepdims: bool = False,
            *,
            where: Any = None,
            mean: Any = None,
            correction: float | None = None,
        ) -> A: ...


for _name, _function in METHODS.items():
    setattr(ArrayMethods, _name, _Method(_name, _function))
