"""Python's operators for `Array`: each calls the operation that it stands for."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Operators(Generic[Result]):
    """Operators in terms of three methods, and in-place updates in terms of a fourth one."""

    __slots__ = ()

    def _unary(self, operation: str) -> Result:
        raise NotImplementedError

    def _binary(self, operation: str, other: Any) -> Result:
        raise NotImplementedError

    def _reflected(self, operation: str, other: Any) -> Result:
        raise NotImplementedError

    def _update(self, operation: str, other: Any) -> Result:
        raise NotImplementedError

    def __neg__(self) -> Result:
        return self._unary("negative")

    def __abs__(self) -> Result:
        return self._unary("abs")

    def __invert__(self) -> Result:
        return self._unary("bitwise_invert")

    def __add__(self, other: Any) -> Result:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Result:
        return self._reflected("add", other)

    def __iadd__(self, other: Any) -> Result:
        return self._update("add", other)

    def __sub__(self, other: Any) -> Result:
        return self._binary("subtract", other)

    def __rsub__(self, other: Any) -> Result:
        return self._reflected("subtract", other)

    def __isub__(self, other: Any) -> Result:
        return self._update("subtract", other)

    def __mul__(self, other: Any) -> Result:
        return self._binary("multiply", other)

    def __rmul__(self, other: Any) -> Result:
        return self._reflected("multiply", other)

    def __imul__(self, other: Any) -> Result:
        return self._update("multiply", other)

    def __truediv__(self, other: Any) -> Result:
        return self._binary("divide", other)

    def __rtruediv__(self, other: Any) -> Result:
        return self._reflected("divide", other)

    def __itruediv__(self, other: Any) -> Result:
        return self._update("divide", other)

    def __floordiv__(self, other: Any) -> Result:
        return self._binary("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Result:
        return self._reflected("floor_divide", other)

    def __ifloordiv__(self, other: Any) -> Result:
        return self._update("floor_divide", other)

    def __mod__(self, other: Any) -> Result:
        return self._binary("remainder", other)

    def __rmod__(self, other: Any) -> Result:
        return self._reflected("remainder", other)

    def __imod__(self, other: Any) -> Result:
        return self._update("remainder", other)

    def __divmod__(self, other: Any) -> tuple[Result, Result]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Result, Result]:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: Any = None) -> Result:
        if modulus is not None:
            raise TypeError("pow: takes no modulus; write x**y % z, whose powers may overflow")
        return self._binary("power", other)

    def __rpow__(self, other: Any) -> Result:
        return self._reflected("power", other)

    def __ipow__(self, other: Any) -> Result:  # type: ignore[misc]
        return self._update("power", other)

    def __matmul__(self, other: Any) -> Result:
        raise NotImplementedError

    def __imatmul__(self, other: Any) -> Result:
        raise NotImplementedError

    def __and__(self, other: Any) -> Result:
        return self._binary("bitwise_and", other)

    def __rand__(self, other: Any) -> Result:
        return self._reflected("bitwise_and", other)

    def __iand__(self, other: Any) -> Result:
        return self._update("bitwise_and", other)

    def __or__(self, other: Any) -> Result:
        return self._binary("bitwise_or", other)

    def __ror__(self, other: Any) -> Result:
        return self._reflected("bitwise_or", other)

    def __ior__(self, other: Any) -> Result:
        return self._update("bitwise_or", other)

    def __xor__(self, other: Any) -> Result:
        return self._binary("bitwise_xor", other)

    def __rxor__(self, other: Any) -> Result:
        return self._reflected("bitwise_xor", other)

    def __ixor__(self, other: Any) -> Result:
        return self._update("bitwise_xor", other)

    def __lshift__(self, other: Any) -> Result:
        return self._binary("bitwise_left_shift", other)

    def __rlshift__(self, other: Any) -> Result:
        return self._reflected("bitwise_left_shift", other)

    def __ilshift__(self, other: Any) -> Result:
        return self._update("bitwise_left_shift", other)

    def __rshift__(self, other: Any) -> Result:
        return self._binary("bitwise_right_shift", other)

    def __rrshift__(self, other: Any) -> Result:
        return self._reflected("bitwise_right_shift", other)

    def __irshift__(self, other: Any) -> Result:
        return self._update("bitwise_right_shift", other)

    def __lt__(self, other: Any) -> Result:
        return self._binary("less", other)

    def __le__(self, other: Any) -> Result:
        return self._binary("less_equal", other)

    def __gt__(self, other: Any) -> Result:
        return self._binary("greater", other)

    def __ge__(self, other: Any) -> Result:
        return self._binary("greater_equal", other)

    def __eq__(self, other: Any) -> Result:  # type: ignore[override]
        return self._binary("equal", other)

    def __ne__(self, other: Any) -> Result:  # type: ignore[override]
        return self._binary("not_equal", other)

    __hash__ = object.__hash__
