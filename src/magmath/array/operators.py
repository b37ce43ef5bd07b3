"""Python's operators, which `Array` inherits: each names the operation that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magmath.array.array import Array, Operand


class Operators:
    """Operators in terms of four methods; updates in place in terms of the plain operators."""

    __slots__ = ()

    def _unary(self, operation: str) -> Array:
        raise NotImplementedError

    def _binary(self, operation: str, other: Any) -> Array:
        raise NotImplementedError

    def _reflected(self, operation: str, other: Any) -> Array:
        raise NotImplementedError

    def _updated(self, result: Array) -> Array:
        raise NotImplementedError

    def __neg__(self) -> Array:
        return self._unary("negative")

    def __abs__(self) -> Array:
        return self._unary("abs")

    def __invert__(self) -> Array:
        return self._unary("bitwise_invert")

    def __add__(self, other: Operand) -> Array:
        return self._binary("add", other)

    def __radd__(self, other: Operand) -> Array:
        return self._reflected("add", other)

    def __iadd__(self, other: Operand) -> Array:
        return self._updated(self + other)

    def __sub__(self, other: Operand) -> Array:
        return self._binary("subtract", other)

    def __rsub__(self, other: Operand) -> Array:
        return self._reflected("subtract", other)

    def __isub__(self, other: Operand) -> Array:
        return self._updated(self - other)

    def __mul__(self, other: Operand) -> Array:
        return self._binary("multiply", other)

    def __rmul__(self, other: Operand) -> Array:
        return self._reflected("multiply", other)

    def __imul__(self, other: Operand) -> Array:
        return self._updated(self * other)

    def __truediv__(self, other: Operand) -> Array:
        return self._binary("divide", other)

    def __rtruediv__(self, other: Operand) -> Array:
        return self._reflected("divide", other)

    def __itruediv__(self, other: Operand) -> Array:
        return self._updated(self / other)

    def __floordiv__(self, other: Operand) -> Array:
        return self._binary("floor_divide", other)

    def __rfloordiv__(self, other: Operand) -> Array:
        return self._reflected("floor_divide", other)

    def __ifloordiv__(self, other: Operand) -> Array:
        return self._updated(self // other)

    def __mod__(self, other: Operand) -> Array:
        return self._binary("remainder", other)

    def __rmod__(self, other: Operand) -> Array:
        return self._reflected("remainder", other)

    def __imod__(self, other: Operand) -> Array:
        return self._updated(self % other)

    def __divmod__(self, other: Operand) -> tuple[Array, Array]:
        return self // other, self % other

    def __rdivmod__(self, other: Operand) -> tuple[Array, Array]:
        return other // self, other % self

    def __pow__(self, other: Operand) -> Array:
        return self._binary("power", other)

    def __rpow__(self, other: Operand) -> Array:
        return self._reflected("power", other)

    def __ipow__(self, other: Operand) -> Array:
        return self._updated(self**other)

    def __matmul__(self, other: Any) -> Array:
        raise NotImplementedError

    def __imatmul__(self, other: Any) -> Array:
        return self._updated(self @ other)

    def __and__(self, other: Operand) -> Array:
        return self._binary("bitwise_and", other)

    def __rand__(self, other: Operand) -> Array:
        return self._reflected("bitwise_and", other)

    def __iand__(self, other: Operand) -> Array:
        return self._updated(self & other)

    def __or__(self, other: Operand) -> Array:
        return self._binary("bitwise_or", other)

    def __ror__(self, other: Operand) -> Array:
        return self._reflected("bitwise_or", other)

    def __ior__(self, other: Operand) -> Array:
        return self._updated(self | other)

    def __xor__(self, other: Operand) -> Array:
        return self._binary("bitwise_xor", other)

    def __rxor__(self, other: Operand) -> Array:
        return self._reflected("bitwise_xor", other)

    def __ixor__(self, other: Operand) -> Array:
        return self._updated(self ^ other)

    def __lshift__(self, other: Operand) -> Array:
        return self._binary("bitwise_left_shift", other)

    def __rlshift__(self, other: Operand) -> Array:
        return self._reflected("bitwise_left_shift", other)

    def __ilshift__(self, other: Operand) -> Array:
        return self._updated(self << other)

    def __rshift__(self, other: Operand) -> Array:
        return self._binary("bitwise_right_shift", other)

    def __rrshift__(self, other: Operand) -> Array:
        return self._reflected("bitwise_right_shift", other)

    def __irshift__(self, other: Operand) -> Array:
        return self._updated(self >> other)

    def __lt__(self, other: Operand) -> Array:
        return self._binary("less", other)

    def __le__(self, other: Operand) -> Array:
        return self._binary("less_equal", other)

    def __gt__(self, other: Operand) -> Array:
        return self._binary("greater", other)

    def __ge__(self, other: Operand) -> Array:
        return self._binary("greater_equal", other)

    def __eq__(self, other: Any) -> Array:  # type: ignore[override]
        return self._binary("equal", other)

    def __ne__(self, other: Any) -> Array:  # type: ignore[override]
        return self._binary("not_equal", other)

    __hash__ = object.__hash__
