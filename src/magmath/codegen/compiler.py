"""A compiler from a small subset of Python with NumPy's names to machine code, by LLVM.

Generated programs are loops over arrays of known types and strides, so there is no type inference,
and the compiler is small and fast: it takes fractions of a second for programs for which general
compilers take half a minute. A source has functions with annotated arguments,

    from magmath.codegen.runtime_library import wait

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
stack; numbers of half types are float32 in registers. `load_acquire(a, i)` and `store_release(a, i,
x)` are atomic accesses to shared words, `fetch_add(a, i, x)` adds to a shared word and returns its
previous value, `fence()` is a full memory fence; `pause()` is the processor's hint for spin loops;
`call(f, x, …)` calls the function at an address with integers.
Imported names are external functions, called by symbol. The last function is the entry point,
unless functions are exported.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from magmath.codegen import functions
from magmath.codegen.cpython_builtin import emit_builtin
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
    Literal,
    StridedMemory,
    Value,
    convert,
    llvm_type,
    memory_type,
    register_type,
)
from magmath.codegen.vectors import Vectors

ExternalSignatures = Mapping[str, tuple[str, Sequence[str], str]]
"""External functions by name: symbol, types of the arguments, type of the result."""


IrFunctions = Mapping[str, tuple[Vectors, Sequence[str]]]
"""Functions that are written in LLVM IR and return nothing, by name: their code, and the types of
their arguments."""

_C_LIBRARY: ExternalSignatures = {
    "sched_yield": ("sched_yield", (), "int32"),
    "usleep": ("usleep", ("uint32",), "int32"),
    "syscall": ("syscall", ("int64",) * 7, "int64"),
    "memcpy": ("memcpy", ("int64", "int64", "int64"), "int64"),
    "memmove": ("memmove", ("int64", "int64", "int64"), "int64"),
}
"""Functions of the C library with side effects."""


def compile_source(
    source: str,
    outside: ExternalSignatures = MappingProxyType({}),
    *,
    exports: Sequence[str] = (),
    constants: Mapping[str, int] = MappingProxyType({}),
    inside: IrFunctions = MappingProxyType({}),
    arithmetic: str = "fast",
) -> bytes:
    """Compile a source to object code for this processor.

    `exports`: the exported functions; by default the last one. `constants`: named numbers.
    `arithmetic`: the permitted floating-point optimisations (`codegen/values.py`). Raises
    SyntaxError if the source is not in the language.
    """
    module = _Module({**_C_LIBRARY, **outside}, inside, constants, ARITHMETIC[arithmetic])
    for node in parse_source(source).body:
        if isinstance(node, ast.FunctionDef):
            module.define(node)
    if exports:
        module.export(exports)
    else:
        module.emit_entry()
    return _compile_module(str(module.ir))


def imported_names(source: str) -> list[str]:
    """Return the names of the external functions that a source imports."""
    lines = [node for node in parse_source(source).body if isinstance(node, ast.ImportFrom)]
    return [alias.name for line in lines for alias in line.names]


def _compile_module(text: str) -> bytes:
    """Optimise a module in LLVM IR and emit object code."""
    machine = target_machine()
    module = llvm.parse_assembly(text)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = True
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    code: bytes = machine.emit_object(module)
    return code


@dataclass(frozen=True)
class _Callee:
    """A callable function: its LLVM function, its parameters, and the type of its result."""

    function: Any
    arguments: list[Value | StridedMemory]
    result: str


class _Module:
    """The module under construction, and the functions defined so far."""

    def __init__(
        self,
        outside: ExternalSignatures,
        inside: IrFunctions,
        constants: Mapping[str, int],
        flags: Sequence[str],
    ) -> None:
        self.flags = flags
        self.constants = constants
        self.ir = ir.Module("program")
        self.ir.triple = llvm.get_default_triple()
        self.ir.data_layout = str(target_machine().target_data)
        self.outside, self.inside = outside, inside
        self.functions: dict[str, _Callee] = {}
        self.last = ""

    def define(self, node: ast.FunctionDef, flags: Sequence[str] = ()) -> None:
        """Compile one function; later functions can call it."""
        kinds = [_annotation(argument.annotation) for argument in node.args.args]
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
        _Function(self, at, dict(zip(names, kinds, strict=True)), result).write(node)
        self.functions[node.name] = _Callee(function, kinds, result)
        self.last = node.name

    def emit_entry(self) -> None:
        """Name the last function, and add an entry point that takes a table of its arguments."""
        last = self.functions[self.last]
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
        return name in self.functions or name in self.inside or name in self.outside

    def callee(self, name: str) -> _Callee:
        """Return a function: defined in this module, written in LLVM IR, or external (declared on
        the first call)."""
        if name not in self.functions and name in self.inside:
            code, arguments = self.inside[name]
            function = code.function(self.ir, [llvm_type(a) for a in arguments])
            self.functions[name] = _Callee(function, [Value(None, a) for a in arguments], "")
        elif name not in self.functions:
            symbol, arguments, result = self.outside[name]
            returned = llvm_type(result) if result else ir.VoidType()
            kind = ir.FunctionType(returned, [llvm_type(a) for a in arguments])
            function = ir.Function(self.ir, kind, symbol)
            function.attributes.add("nounwind")
            self.functions[name] = _Callee(function, [Value(None, a) for a in arguments], result)
        return self.functions[name]

    def helper(self, name: str, dtype: str) -> _Callee:
        """Return a library function of the compiler, compiled for numbers of one type."""
        own = f"{name}_{dtype}"
        if own not in self.functions:
            (node,) = parse_source(functions.SOURCES[name].format(name=own, T=dtype)).body
            last = self.last
            assert isinstance(node, ast.FunctionDef)
            self.define(node, ARITHMETIC["exact"])
            self.last = last
            attributes = self.functions[own].function.attributes
            attributes.discard("noinline")
            attributes.add("alwaysinline")
        return self.functions[own]


def _annotation(node: ast.expr | None) -> Value | StridedMemory:
    match node:
        case ast.Name(dtype):
            return Value(None, dtype)
        case ast.Subscript(ast.Name(dtype), strides):
            each = strides.elts if isinstance(strides, ast.Tuple) else [strides]
            return StridedMemory(None, dtype, tuple(ast.literal_eval(stride) for stride in each))
    raise SyntaxError(f"not a type: {ast.unparse(node) if node else node}")


class _Function:
    """The code of one function. Variables are on the stack; LLVM promotes them to registers."""

    def __init__(
        self, module: _Module, at: Builder, kinds: dict[str, Value | StridedMemory], result: str
    ) -> None:
        self.module = module
        self.result = result
        self.at = at
        self.variables: dict[str, tuple[Any, str]] = {}
        self.names = {
            name: kind.with_value(argument)
            for (name, kind), argument in zip(kinds.items(), at.function.args, strict=True)
        }

    def write(self, node: ast.FunctionDef) -> None:
        self._block(node.body)
        if not self.at.block.is_terminated:
            if self.result:
                self.at.unreachable()
            else:
                self.at.ret_void()

    # statements ---------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign([target], value):
                self._assign(target, self._expression(value))
            case ast.AnnAssign(ast.Name(name), annotation, value) if value is not None:
                memory = _annotation(annotation)
                place = self._converted(self._expression(value), "int64")
                self.names[name] = memory.with_value(self.at.inttoptr(place, memory_type(memory)))
            case ast.AugAssign(target, operator, value):
                self._assign(target, self._expression(ast.BinOp(target, operator, value)))
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), limits), body):
                self._for(name, [self._expression(x) for x in limits], body)
            case ast.While(test, body):
                self._while(lambda: self._truth(test), lambda: self._block(body))
            case ast.If(test, body, otherwise):
                self._if(test, body, otherwise)
            case ast.Return(None):
                self.at.ret_void()
            case ast.Return(value):
                assert value is not None
                self.at.ret(self._converted(self._expression(value), self.result))
            case ast.Expr(ast.Constant(str())):  # a docstring
                pass
            case ast.Expr(value):
                self._expression(value)
            case ast.Pass():
                pass
            case _:
                raise SyntaxError(f"not in the language: {ast.unparse(node)}")

    def _assign(self, target: ast.expr, value: Value | Literal) -> None:
        match target:
            case ast.Name(name):
                if name not in self.variables:
                    place = self.at.alloca_in_entry(llvm_type(value.dtype))
                    self.variables[name] = place, value.dtype
                place, dtype = self.variables[name]
                self.at.store(self._converted(value, dtype), place)
            case ast.Subscript(ast.Name(name), index):
                memory = self._memory(name)
                content = self._converted(value, register_type(memory.dtype))
                self.at.store(self.at.stored(content, memory.dtype), self._place(memory, index))
            case _:
                raise SyntaxError(f"not a target: {ast.unparse(target)}")

    def _for(self, name: str, limits: list[Value | Literal], body: Sequence[ast.stmt]) -> None:
        start, stop, step = {
            1: [Literal(0), *limits, Literal(1)],
            2: [*limits, Literal(1)],
            3: limits,
        }[len(limits)]
        end, stride = self._converted(stop, "int64"), self._converted(step, "int64")
        counter = self.at.alloca_in_entry(WORD)
        self.at.store(self._converted(start, "int64"), counter)

        def once() -> None:
            index = self.at.load(counter)
            self._assign(ast.Name(name), Value(index, "int64"))
            self._block(body)
            if not self.at.block.is_terminated:
                self.at.store(self.at.add(index, stride, flags=["nsw"]), counter)

        self._while(lambda: self.at.icmp_signed("<", self.at.load(counter), end), once)

    def _while(self, test: Callable[[], Any], body: Callable[[], None]) -> None:
        head, inner, after = (self.at.append_basic_block(n) for n in ("head", "body", "after"))
        self.at.branch(head)
        self.at.position_at_end(head)
        self.at.cbranch(test(), inner, after)
        self.at.position_at_end(inner)
        body()
        if not self.at.block.is_terminated:
            self.at.branch(head)
        self.at.position_at_end(after)

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]) -> None:
        holds, fails, after = (self.at.append_basic_block(n) for n in ("then", "else", "after"))
        self.at.cbranch(self._truth(test), holds, fails)
        for block, statements in ((holds, body), (fails, otherwise)):
            self.at.position_at_end(block)
            self._block(statements)
            if not self.at.block.is_terminated:
                self.at.branch(after)
        self.at.position_at_end(after)

    # expressions --------------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> Value | Literal:
        match node:
            case ast.Constant(bool() | int() | float() as value):
                return Literal(value)
            case ast.Attribute(ast.Name("np"), name):
                return Literal(getattr(np, name))
            case ast.Name(name):
                return self._variable(name)
            case ast.Subscript(ast.Name(name), index):
                return self._element(self._memory(name), index)
            case ast.UnaryOp(operator, operand):
                return functions.emit_unary(self.at, operator, self._expression(operand))
            case ast.BinOp(left, operator, right):
                return self._binary(operator, self._expression(left), self._expression(right))
            case ast.Compare(left, [operator], [right]):
                x, y = self._expression(left), self._expression(right)
                return functions.compare(self.at, operator, x, y)
            case ast.BoolOp(operator, operands):
                join = self.at.and_ if isinstance(operator, ast.And) else self.at.or_
                result = self._truth(operands[0])
                for operand in operands[1:]:
                    result = join(result, self._truth(operand))
                return Value(result, "bool")
            case ast.IfExp(test, body, otherwise):
                values = self._expression(body), self._expression(otherwise)
                (x, y), dtype = functions.to_common_type(self.at, *values)
                return Value(self.at.select(self._truth(test), x, y), dtype)
            case ast.Call(ast.Name(name) | ast.Attribute(ast.Name("np"), name), arguments):
                return self._call(name, arguments)
            case ast.Call(ast.Attribute(value, "view"), [ast.Name(dtype)]):
                same = self._expression(value)
                bits = self._converted(same, same.dtype)
                return Value(self.at.bitcast(bits, llvm_type(dtype)), dtype)
        raise SyntaxError(f"not in the language: {ast.unparse(node)}")

    def _variable(self, name: str) -> Value | Literal:
        if name in self.variables:
            place, dtype = self.variables[name]
            return Value(self.at.load(place), dtype)
        if name in self.module.constants:
            return Literal(self.module.constants[name])
        value = self.names[name]
        assert isinstance(value, Value)
        return value

    def _truth(self, node: ast.expr) -> Any:
        return self._converted(self._expression(node), "bool")

    def _converted(self, value: Value | Literal, dtype: str) -> Any:
        return convert(self.at, value, dtype).ir

    def _binary(
        self, operator: ast.operator, x: Value | Literal, y: Value | Literal
    ) -> Value | Literal:
        name = functions.FUNCTION_OPERATORS.get(type(operator))
        if name is not None:
            return self._function(name, [x, y])
        return functions.emit_binary(self.at, operator, x, y)

    def _function(self, name: str, values: Sequence[Value | Literal]) -> Value:
        """Call a function by its NumPy name on operands of a common type."""
        same, dtype = functions.to_common_type(self.at, *values)
        operands = [Value(x, dtype) for x in same]
        source = functions.source_key(name, dtype)
        if source is None:
            return functions.emit_call(self.at, name, operands)
        return self._called(self.module.helper(source, dtype), operands)

    def _call(self, name: str, nodes: Sequence[ast.expr]) -> Value | Literal:
        if self.module.is_known(name):
            callee = self.module.callee(name)
            return self._called(callee, [self._argument(node) for node in nodes])
        match name, nodes:
            case "address", [ast.Name(array)]:
                return Value(self.at.ptrtoint(self._memory(array).ir, WORD), "int64")
            case "stack", [count]:
                nbytes = self._expression(count)
                assert isinstance(nbytes, Literal)
                return Value(self.at.stack(int(nbytes.value)), "int64")
            case "load_acquire", [ast.Name(array), index]:
                memory = self._memory(array)
                place = self._place(memory, index)
                return Value(self.at.load_atomic(place, "acquire", 8), memory.dtype)
            case "store_release", [ast.Name(array), index, content]:
                memory = self._memory(array)
                word = self._converted(self._expression(content), memory.dtype)
                self.at.store_atomic(word, self._place(memory, index), "release", 8)
                return Literal(0)
            case "fetch_add", [ast.Name(array), index, addend]:
                memory = self._memory(array)
                word = self._converted(self._expression(addend), memory.dtype)
                place = self._place(memory, index)
                return Value(self.at.atomic_rmw("add", place, word, "acq_rel"), memory.dtype)
            case "fence", []:
                self.at.fence("seq_cst")
                return Literal(0)
            case "pause", []:
                self.at.pause()
                return Literal(0)
            case "call", [function, *given]:
                words = [self._converted(self._expression(word), "int64") for word in given]
                self.at.call_at(self._converted(self._expression(function), "int64"), words)
                return Literal(0)
        values = [self._expression(node) for node in nodes]
        if name in functions.TYPES:
            return convert(self.at, values[0], name)
        return self._function(name, values)

    def _argument(self, node: ast.expr) -> Value | Literal | StridedMemory:
        if isinstance(node, ast.Name) and isinstance(self.names.get(node.id), StridedMemory):
            return self.names[node.id]
        return self._expression(node)

    def _called(self, callee: _Callee, values: Sequence[Value | Literal | StridedMemory]) -> Value:
        passed = [
            value.ir if isinstance(value, StridedMemory) else self._converted(value, kind.dtype)
            for value, kind in zip(values, callee.arguments, strict=True)
        ]
        return Value(self.at.call(callee.function, passed), callee.result)

    # memory -------------------------------------------------------------------------------------

    def _memory(self, name: str) -> StridedMemory:
        memory = self.names[name]
        assert isinstance(memory, StridedMemory), f"{name} is no array"
        return memory

    def _element(self, memory: StridedMemory, index: ast.expr) -> Value:
        content = self.at.load(self._place(memory, index))
        return Value(self.at.loaded(content, memory.dtype), register_type(memory.dtype))

    def _place(self, memory: StridedMemory, index: ast.expr) -> Any:
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        offset = WORD(0)
        for stride, i in zip(memory.strides, indices, strict=True):
            step = self._converted(self._expression(i), "int64")
            offset = self.at.add(
                offset, self.at.mul(step, WORD(stride), flags=["nsw"]), flags=["nsw"]
            )
        return self.at.gep(memory.ir, [offset], inbounds=True)
