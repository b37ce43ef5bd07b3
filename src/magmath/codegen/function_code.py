"""The code of one function: statements and expressions of the language, as LLVM IR.

`codegen/compiler.py` describes the language, and compiles modules of functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from magmath.codegen import functions
from magmath.codegen.values import (
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


@final
@dataclass(frozen=True)
class Callee:
    """A callable function: its LLVM function, its parameters, and the type of its result."""

    function: Any
    arguments: list[Value | StridedMemory]
    result: str


class FunctionScope(Protocol):
    """The named numbers and functions of the module in which a function is compiled."""

    @property
    def constants(self) -> Mapping[str, int]:
        """Numbers by name."""

    def is_known(self, name: str) -> bool:
        """Return True if a function of this name exists."""

    def callee(self, name: str) -> Callee:
        """Return a function by its name."""

    def helper(self, name: str, dtype: str) -> Callee:
        """Return a library function of the compiler, compiled for numbers of one type."""


def annotated_type(node: ast.expr | None) -> Value | StridedMemory:
    """Return the type that an annotation of the language names: of a number or of memory."""
    match node:
        case ast.Name(dtype):
            return Value(None, dtype)
        case ast.Subscript(ast.Name(dtype), strides):
            elements = strides.elts if isinstance(strides, ast.Tuple) else [strides]
            values = tuple(ast.literal_eval(stride) for stride in elements)
            return StridedMemory(None, dtype, values)
    raise SyntaxError(f"not a type: {ast.unparse(node) if node else node}")


@final
class FunctionCode:
    """The code of one function. Variables are on the stack; LLVM promotes them to registers."""

    def __init__(
        self,
        module: FunctionScope,
        at: Builder,
        kinds: dict[str, Value | StridedMemory],
        result: str,
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
        """Emit the body of a function, and its return if the body does not end with one."""
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
                memory = annotated_type(annotation)
                address = self._converted(self._expression(value), "int64")
                self.names[name] = memory.with_value(self.at.inttoptr(address, memory_type(memory)))
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
                    address = self.at.alloca_in_entry(llvm_type(value.dtype))
                    self.variables[name] = address, value.dtype
                address, dtype = self.variables[name]
                self.at.store(self._converted(value, dtype), address)
            case ast.Subscript(ast.Name(name), index):
                memory = self._memory(name)
                content = self._converted(value, register_type(memory.dtype))
                self.at.store(self.at.stored(content, memory.dtype), self._address(memory, index))
            case _:
                raise SyntaxError(f"not a target: {ast.unparse(target)}")

    def _for(self, name: str, limits: list[Value | Literal], body: Sequence[ast.stmt]) -> None:
        start, stop, step = {
            1: [Literal(0), *limits, Literal(1)],
            2: [*limits, Literal(1)],
            3: limits,
        }[len(limits)]
        if isinstance(step, Literal) and step.value < 1:
            raise SyntaxError(f"not in the language: range with a step of {step.value}")
        end, stride = self._converted(stop, "int64"), self._converted(step, "int64")
        counter = self.at.alloca_in_entry(WORD)
        self.at.store(self._converted(start, "int64"), counter)

        def iterate() -> None:
            index = self.at.load(counter)
            self._assign(ast.Name(name), Value(index, "int64"))
            self._block(body)
            if not self.at.block.is_terminated:
                self.at.store(self.at.add(index, stride, flags=["nsw"]), counter)

        self._while(lambda: self.at.icmp_signed("<", self.at.load(counter), end), iterate)

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
                return functions.emit_comparison(self.at, operator, x, y)
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
            address, dtype = self.variables[name]
            return Value(self.at.load(address), dtype)
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
        converted, dtype = functions.to_common_type(self.at, *values)
        operands = [Value(x, dtype) for x in converted]
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
                address = self._address(memory, index)
                return Value(self.at.load_atomic(address, "acquire", 8), memory.dtype)
            case "store_release", [ast.Name(array), index, content]:
                memory = self._memory(array)
                word = self._converted(self._expression(content), memory.dtype)
                self.at.store_atomic(word, self._address(memory, index), "release", 8)
                return Literal(0)
            case "fetch_add", [ast.Name(array), index, addend]:
                memory = self._memory(array)
                word = self._converted(self._expression(addend), memory.dtype)
                address = self._address(memory, index)
                return Value(self.at.atomic_rmw("add", address, word, "acq_rel"), memory.dtype)
            case "fence", []:
                self.at.fence("seq_cst")
                return Literal(0)
            case "pause", []:
                self.at.pause()
                return Literal(0)
            case "call", [function, *operands]:
                words = [self._converted(self._expression(word), "int64") for word in operands]
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

    def _called(self, callee: Callee, values: Sequence[Value | Literal | StridedMemory]) -> Value:
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
        content = self.at.load(self._address(memory, index))
        return Value(self.at.loaded(content, memory.dtype), register_type(memory.dtype))

    def _address(self, memory: StridedMemory, index: ast.expr) -> Any:
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        offset = WORD(0)
        for stride, i in zip(memory.strides, indices, strict=True):
            step = self._converted(self._expression(i), "int64")
            offset = self.at.add(
                offset, self.at.mul(step, WORD(stride), flags=["nsw"]), flags=["nsw"]
            )
        return self.at.gep(memory.ir, [offset], inbounds=True)
