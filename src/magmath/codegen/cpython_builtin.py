"""Wrappers that make compiled functions CPython builtins.

Foreign-function interfaces check the type of every argument, which takes longer than a small
message between two processes. So each exported function gets a wrapper that takes Python objects
(METH_FASTCALL in the C API), converts them to numbers, and calls the function without the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from llvmlite import ir

from magmath.codegen.values import WORD, is_float, is_signed, llvm_type

_DOUBLE: Final = ir.DoubleType()
_NULL: Final = WORD(0)


def emit_builtin(
    module: ir.Module, name: str, function: Any, arguments: Sequence[str], result: str
) -> None:
    """Append to a module the wrapper of one of its functions: f(self, address of the arguments,
    their number), from which `codegen/object_loader.py` creates a builtin.

    `arguments`: the types of the numbers; "" for an address. `result`: the type of the result; ""
    for none, in which case the builtin returns 0. Integers wrap around. The builtin raises
    TypeError for arguments that are not numbers, and for a wrong number of arguments.
    """
    wrapper = ir.Function(module, ir.FunctionType(WORD, [WORD, WORD.as_pointer(), WORD]), name)
    _, objects, count = wrapper.args
    at = ir.IRBuilder(wrapper.append_basic_block())
    python = _PythonApi(at)
    with at.if_then(at.icmp_signed("!=", count, WORD(len(arguments))), likely=False):
        python.call("PyErr_BadArgument", ir.IntType(32))
        at.ret(_NULL)
    values = []
    for i, (dtype, parameter) in enumerate(zip(arguments, function.args, strict=True)):
        python_object = at.load(at.gep(objects, [WORD(i)]))
        values.append(python.to_number(python_object, dtype, parameter.type))
    has_raised = at.icmp_signed("!=", python.call("PyErr_Occurred", WORD), _NULL)
    with at.if_then(has_raised, likely=False):
        at.ret(_NULL)
    thread = python.call("PyEval_SaveThread", WORD)
    value = at.call(function, values)
    python.call("PyEval_RestoreThread", ir.VoidType(), thread)
    at.ret(python.from_number(value, result))


@final
class _PythonApi:
    """Emits calls of Python's C API."""

    def __init__(self, at: ir.IRBuilder) -> None:
        self._at = at

    def call(self, routine: str, returned: ir.Type, *arguments: Any) -> Any:
        """Emit a call of a routine, which is declared on its first call."""
        module = self._at.module
        kind = ir.FunctionType(returned, [value.type for value in arguments])
        function = module.globals.get(routine) or ir.Function(module, kind, routine)
        return self._at.call(function, arguments)

    def to_number(self, python_object: Any, dtype: str, kind: ir.Type) -> Any:
        """Emit the conversion of an object to a number of a type, or to an address for ""."""
        if dtype and is_float(dtype):
            value = self.call("PyFloat_AsDouble", _DOUBLE, python_object)
            return value if dtype == "float64" else self._at.fptrunc(value, kind)
        value = self.call("PyLong_AsUnsignedLongLongMask", WORD, python_object)
        narrow = self._at.trunc if dtype else self._at.inttoptr
        return value if kind == WORD else narrow(value, kind)

    def from_number(self, value: Any, dtype: str) -> Any:
        """Emit the conversion of a number to an object; of nothing, for "", to 0."""
        if not dtype:
            return self.call("PyLong_FromLongLong", WORD, _NULL)
        if is_float(dtype):
            wide = value if dtype == "float64" else self._at.fpext(value, _DOUBLE)
            return self.call("PyFloat_FromDouble", WORD, wide)
        extend = self._at.sext if is_signed(dtype) else self._at.zext
        wide = value if llvm_type(dtype) == WORD else extend(value, WORD)
        name = "PyLong_FromLongLong" if is_signed(dtype) else "PyLong_FromUnsignedLongLong"
        return self.call(name, WORD, wide)
