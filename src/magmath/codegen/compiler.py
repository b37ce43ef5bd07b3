"""A compiler from a small subset of Python with NumPy's names to machine code, by LLVM.

Generated programs are loops over arrays of known types and strides, so there is no type inference,
and the compiler is small and fast: it takes fractions of a second for programs for which general
compilers take half a minute. A source has functions with annotated arguments,

    from magmath.kernels.runtime_library import wait

    def scale(x: float32[24, 1], factor: float32):
        for i in range(30):
            for j in range(24):
                x[i, j] = x[i, j] * factor

    def run(steps: int64, a: float32[24, 1]) -> int64:
        for step in range(steps):
            scale(a, float32(2))
        return 0

where `float32[24, 1]` is memory whose element (i, j) is at i·24 + j. The language has assignments,
`for … in range(…)`, `while`, `if`, `return`; expressions as NumPy computes them on scalars, except
that `and`, `or` and `x if c else y` evaluate all their operands, and that integers divided by 0
give 0. `x: float32[1] = a` is the memory at an address, `stack(n)` is the address of n bytes on the
stack; numbers of half types are float32 in registers. `add_in_any_order(a, x)` and
`multiply_in_any_order(a, x)` accumulate numbers whose order is free. `load_acquire(a, i)` and
`store_release(a, i, x)` are atomic accesses to shared words, `fetch_add(a, i, x)` adds to a shared
word and returns its previous value, `fence()` is a full memory fence; `pause()` is the processor's
hint for spin loops; `call(f, x, …)` calls the function at an address with integers.
Imported names are external functions, called by symbol. The last function is the entry point,
unless functions are exported.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import final

import llvmlite.binding as llvm
from llvmlite import ir

from magmath.codegen import functions
from magmath.codegen.cpython_builtin import emit_builtin
from magmath.codegen.function_code import Callee, FunctionCode, annotated_type
from magmath.codegen.locked_parser import parse_source
from magmath.codegen.object_loader import (
    BUILTIN_PREFIX,
    ENTRY_SYMBOL,
    EXPORT_PREFIX,
    LAST_SYMBOL,
    target_machine,
)
from magmath.codegen.values import (
    ARITHMETIC,
    WORD,
    Builder,
    StridedMemory,
    Value,
    llvm_type,
    memory_type,
)
from magmath.codegen.vectors import IrFunction

ExternalSignatures = Mapping[str, tuple[str, Sequence[str], str]]
"""External functions by name: symbol, types of the arguments, type of the result."""


IrFunctions = Mapping[str, IrFunction]
"""Functions that are written in LLVM IR, by name."""

_C_LIBRARY: ExternalSignatures = {
    "sched_getcpu": ("sched_getcpu", (), "int32"),
    "usleep": ("usleep", ("uint32",), "int32"),
    "syscall": ("syscall", ("int64",) * 7, "int64"),
    "memcpy": ("memcpy", ("int64", "int64", "int64"), "int64"),
    "memmove": ("memmove", ("int64", "int64", "int64"), "int64"),
}
"""Functions of the C library with side effects."""


def compile_source(
    source: str,
    external: ExternalSignatures = MappingProxyType({}),
    *,
    exports: Sequence[str] = (),
    constants: Mapping[str, int] = MappingProxyType({}),
    ir_functions: IrFunctions = MappingProxyType({}),
    arithmetic: str = "fast",
) -> bytes:
    """Compile a source to object code for this processor.

    `exports`: the exported functions; by default the last one. `constants`: named numbers.
    `arithmetic`: the permitted floating-point optimizations (`codegen/values.py`). Raises
    SyntaxError if the source is not in the language.
    """
    module = _Module({**_C_LIBRARY, **external}, ir_functions, constants, ARITHMETIC[arithmetic])
    nodes = [node for node in parse_source(source).body if isinstance(node, ast.FunctionDef)]
    for node in nodes:
        module.define(node)
    if exports:
        module.export(exports)
    else:
        module.emit_entry(nodes[-1].name)
    return _compile_module(str(module.ir))


def imported_names(source: str) -> list[str]:
    """Return the names of the external functions that a source imports."""
    lines = [node for node in parse_source(source).body if isinstance(node, ast.ImportFrom)]
    return [alias.name for line in lines for alias in line.names]


def _compile_module(text: str) -> bytes:
    """Optimize a module in LLVM IR and emit object code."""
    machine = target_machine()
    module = llvm.parse_assembly(text)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = True
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    code: bytes = machine.emit_object(module)
    return code


@final
class _Module:
    """The module under construction, and the functions defined so far."""

    def __init__(
        self,
        external: ExternalSignatures,
        ir_functions: IrFunctions,
        constants: Mapping[str, int],
        flags: Sequence[str],
    ) -> None:
        self.flags = flags
        self.constants = constants
        self.ir = ir.Module("program")
        self.ir.triple = llvm.get_default_triple()
        self.ir.data_layout = str(target_machine().target_data)
        self.external, self.ir_functions = external, ir_functions
        self.functions: dict[str, Callee] = {}

    def define(self, node: ast.FunctionDef, flags: Sequence[str] = ()) -> None:
        """Compile one function; later functions can call it."""
        kinds = [annotated_type(argument.annotation) for argument in node.args.args]
        result = node.returns.id if isinstance(node.returns, ast.Name) else ""
        passed = [
            memory_type(k) if isinstance(k, StridedMemory) else llvm_type(k.dtype) for k in kinds
        ]
        returned = llvm_type(result) if result else ir.VoidType()
        function = ir.Function(self.ir, ir.FunctionType(returned, passed), node.name)
        function.linkage = "internal"
        function.attributes.add("nounwind")
        if any(isinstance(n, (ast.For, ast.While)) for n in ast.walk(node)):
            function.attributes.add("noinline")  # LLVM compiles one big function much more slowly
        names = [argument.arg for argument in node.args.args]
        at = Builder(function.append_basic_block("entry"), flags or self.flags)
        FunctionCode(self, at, dict(zip(names, kinds, strict=True)), result).write(node)
        self.functions[node.name] = Callee(function, kinds, result)

    def emit_entry(self, name: str) -> None:
        """Name the last function of the source, and add an entry point that takes a table of its
        arguments."""
        last = self.functions[name]
        last.function.linkage = "external"
        last.function.name = LAST_SYMBOL
        kind = ir.FunctionType(WORD, [WORD.as_pointer()])
        at = ir.IRBuilder(ir.Function(self.ir, kind, ENTRY_SYMBOL).append_basic_block())
        arguments = []
        for i, argument in enumerate(last.arguments):
            word = at.load(at.gep(at.function.args[0], [WORD(i)]))
            if isinstance(argument, StridedMemory):
                word = at.inttoptr(word, memory_type(argument))
            arguments.append(word)
        returned = at.call(last.function, arguments)
        at.ret(returned if last.result == "int64" else WORD(0))

    def export(self, names: Sequence[str]) -> None:
        """Export functions, for calls by address and from Python."""
        for name in names:
            callee = self.functions[name]
            callee.function.linkage = "external"
            callee.function.name = EXPORT_PREFIX + name
            types = ["" if isinstance(a, StridedMemory) else str(a.dtype) for a in callee.arguments]
            emit_builtin(self.ir, BUILTIN_PREFIX + name, callee.function, types, callee.result)

    def is_known(self, name: str) -> bool:
        """Return True if a function of this name exists."""
        return name in self.functions or name in self.ir_functions or name in self.external

    def callee(self, name: str) -> Callee:
        """Return a function: defined in this module, written in LLVM IR, or external (declared on
        the first call)."""
        if name not in self.functions and name in self.ir_functions:
            code, arguments = self.ir_functions[name]
            function = code.function(self.ir, [llvm_type(a) for a in arguments])
            self.functions[name] = Callee(function, [Value(None, a) for a in arguments], "")
        elif name not in self.functions:
            symbol, arguments, result = self.external[name]
            returned = llvm_type(result) if result else ir.VoidType()
            kind = ir.FunctionType(returned, [llvm_type(a) for a in arguments])
            function = ir.Function(self.ir, kind, symbol)
            function.attributes.add("nounwind")
            self.functions[name] = Callee(function, [Value(None, a) for a in arguments], result)
        return self.functions[name]

    def helper(self, name: str, dtype: str) -> Callee:
        """Return a library function of the compiler, compiled for numbers of one type."""
        typed_name = f"{name}_{dtype}"
        if typed_name not in self.functions:
            (node,) = parse_source(functions.SOURCES[name].format(name=typed_name, T=dtype)).body
            assert isinstance(node, ast.FunctionDef)
            self.define(node, ARITHMETIC["contracted"])
            attributes = self.functions[typed_name].function.attributes
            attributes.discard("noinline")
            attributes.add("alwaysinline")
        return self.functions[typed_name]
