"""Wrappers that make compiled functions CPython builtins.

Foreign-function interfaces check the type of every argument, which takes longer than a small
message between two processes. So each exported function gets a wrapper that takes Python objects
(METH_FASTCALL in the C API), converts them to numbers, and calls the function without the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
    made = ir.Function(module, ir.FunctionType(WORD, [WORD, WORD.as_pointer(), WORD]), name)
    at = ir.IRBuilder(made.append_basic_block())

    def python(routine: str, returned: ir.Type, *given: Any) -> Any:
        kind = ir.FunctionType(returned, [value.type for value in given])
        found = module.globals.get(routine) or ir.Function(module, kind, routine)
        return at.call(found, given)

    fits = at.icmp_signed("==", made.args[2], WORD(len(arguments)))
    with at.if_then(at.not_(fits), likely=False):
        python("PyErr_BadArgument", ir.IntType(32))
        at.ret(_NULL)
    values = []
    for i, (dtype, parameter) in enumerate(zip(arguments, function.args, strict=True)):
        given = at.load(at.gep(made.args[1], [WORD(i)]))
        if dtype and is_float(dtype):
            value = python("PyFloat_AsDouble", _DOUBLE, given)
            values.append(at.fptrunc(value, parameter.type) if dtype != "float64" else value)
        else:
            value = python("PyLong_AsUnsignedLongLongMask", WORD, given)
            narrow = at.trunc if dtype else at.inttoptr
            values.append(value if parameter.type == WORD else narrow(value, parameter.type))
    raised = at.icmp_signed("!=", python("PyErr_Occurred", WORD), _NULL)
    with at.if_then(raised, likely=False):
        at.ret(_NULL)
    thread = python("PyEval_SaveThread", WORD)
    found = at.call(function, values)
    python("PyEval_RestoreThread", ir.VoidType(), thread)
    if not result:
        at.ret(python("PyLong_FromLongLong", WORD, _NULL))
    elif is_float(result):
        wide = found if result == "float64" else at.fpext(found, _DOUBLE)
        at.ret(python("PyFloat_FromDouble", WORD, wide))
    else:
        extended = at.sext if is_signed(result) else at.zext
        wide = found if llvm_type(result) == WORD else extended(found, WORD)
        kind = "PyLong_FromLongLong" if is_signed(result) else "PyLong_FromUnsignedLongLong"
        at.ret(python(kind, WORD, wide))
