"""Graphs of ONNX models, run with magmath's functions.

What depends on constants and shapes alone, such as the new shape of a reshape, is folded: the
reference implementation of the package onnx computes it with NumPy, so it is known in a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import magmath as mm
from magmath.errors import UnsupportedError
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator, dtype_of
from magmath.interop.reading_onnx.onnx_operators import OPERATORS

OnnxValues = dict[str, OnnxValue]
SETTINGS: dict[str, tuple[int, ...]] = {
    "Clip": (1, 2), "Dropout": (1, 2), "OneHot": (1, 2), "Pad": (1, 2, 3), "Range": (0, 1, 2),
    "Resize": (1, 2, 3), "Upsample": (1,), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2),
}  # fmt: skip
"""The operands that are settings, as bounds and sizes, and no data, by operator."""
BUFFERS: dict[str, tuple[int, ...]] = {"BatchNormalization": (3, 4)}
"""The operands that training updates without gradients."""
_NEVER_FOLDED = (
    "Bernoulli",
    "Dropout",
    "If",
    "Loop",
    "Scan",
    "RandomNormalLike",
    "RandomUniformLike",
)


@final
class _Node:
    """A call with the names of its operands and results; "" for an operand that is left out."""

    def __init__(self, proto: onnx.NodeProto, opset: int) -> None:
        attributes = {a.name: _attribute(a, opset) for a in proto.attribute}
        self.inputs = tuple(proto.input)
        self.outputs = tuple(proto.output)
        self.call = OnnxCall(proto.op_type, attributes, self.outputs, opset)
        self.operator: Operator = OPERATORS[proto.op_type]
        self.graphs = [a for a in attributes.values() if isinstance(a, OnnxGraph)]
        self._proto = proto
        self._reference: ReferenceEvaluator | None = None

    @property
    def needed(self) -> list[str]:
        """The names that it reads, also in its graphs."""
        inner = [name for graph in self.graphs for name in graph.free]
        return [*filter(None, self.inputs), *inner]

    def can_fold(self, operands: Sequence[OnnxValue]) -> bool:
        """Return True if constants and shapes alone determine the results."""
        if self.call.operator in _NEVER_FOLDED or not operands:
            return False
        return all(x is None or isinstance(x, np.ndarray) for x in operands)

    def fold(self, operands: Sequence[OnnxValue]) -> list[OnnxValue]:
        """Return the results of operands of NumPy, as arrays of NumPy."""
        values = {name: x for name, x in zip(self.inputs, operands, strict=True) if name}
        try:
            results: Any = self._evaluator().run(None, values)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            # The reference implementation has bugs, and lacks some versions of operators.
            results = _as_tuple(self.operator(self.call, *operands))
        return [x if isinstance(x, mm.Array) else _as_value(np.asarray(x)) for x in results]

    def _evaluator(self) -> ReferenceEvaluator:
        if self._reference is None:
            inputs, outputs = (
                [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name]
                for names in (self.inputs, self.outputs)
            )
            graph = onnx.helper.make_graph([self._proto], self.call.operator, inputs, outputs)
            self._reference = ReferenceEvaluator(graph, opsets={"": self.call.opset})
        return self._reference


@final
class OnnxGraph:
    """The calls of a graph in order. `variables` are the names of values that `run` is given."""

    def __init__(self, proto: onnx.GraphProto, opset: int, variables: Iterable[str] = ()) -> None:
        self.outputs = [value.name for value in proto.output]
        initializers = {tensor.name: tensor for tensor in proto.initializer}
        self.inputs = [value.name for value in proto.input if value.name not in initializers]
        given_at_run = set(variables)
        self._constants: OnnxValues = {
            name: stored_array(tensor)
            for name, tensor in initializers.items()
            if name not in given_at_run
        }
        self._nodes: list[_Node] = []
        for node in proto.node:
            if node.op_type == "Constant":
                self._constants[node.output[0]] = _constant(node)
            else:
                self._nodes.append(_Node(node, opset))
        self._fold_constants()
        self._last_uses = self._results_after_last_use()

    def _fold_constants(self) -> None:
        remaining = []
        for node in self._nodes:
            operands = [self._constants.get(name) if name else None for name in node.inputs]
            known = all(not name or name in self._constants for name in node.inputs)
            if known and node.can_fold(operands):
                self._constants |= zip(node.outputs, node.fold(operands), strict=False)
            else:
                remaining.append(node)
        self._nodes = remaining

    @property
    def free(self) -> list[str]:
        """The names that the graph reads from the graph around it."""
        own_names = {
            *self._constants,
            *self.inputs,
            *[n for node in self._nodes for n in node.outputs],
        }
        needed = [name for node in self._nodes for name in node.needed] + self.outputs
        return [name for name in dict.fromkeys(needed) if name not in own_names]

    def _results_after_last_use(self) -> list[list[str]]:
        """Return, for each node, the results of nodes that no later one reads."""
        read_later = set(self.outputs)
        unused: list[list[str]] = []
        results = {name for node in self._nodes for name in node.outputs}
        for node in reversed(self._nodes):
            last = [n for n in dict.fromkeys([*node.needed, *node.outputs]) if n not in read_later]
            read_later.update(last)
            unused.append([name for name in last if name in results])
        return unused[::-1]

    def run(
        self, outer: Mapping[str, OnnxValue], inputs: Sequence[OnnxValue], training: bool
    ) -> list[OnnxValue]:
        """Return the outputs; `outer` are the values that the graph reads from around it."""
        values: OnnxValues = {**outer, **self._constants}
        values |= zip(self.inputs, inputs, strict=True)
        for node, unused in zip(self._nodes, self._last_uses, strict=True):
            operands = [values[name] if name else None for name in node.inputs]
            if node.can_fold(operands):
                results: Sequence[OnnxValue] = node.fold(operands)
            else:
                results = _results(node, operands, values, training)
            values |= zip(node.outputs, results, strict=False)
            for name in unused:  # releases memory
                values.pop(name, None)
        return [values[name] for name in self.outputs]


def _results(
    node: _Node, operands: Sequence[OnnxValue], values: OnnxValues, training: bool
) -> Sequence[OnnxValue]:
    def run_graph(graph: OnnxGraph, *inputs: OnnxValue) -> list[OnnxValue]:
        return graph.run(values, inputs, training)

    call = replace(node.call, training=training, run_graph=run_graph)
    while operands and operands[-1] is None:
        operands = operands[:-1]
    return _as_tuple(node.operator(call, *operands))


def _as_tuple(results: Any) -> tuple[OnnxValue, ...]:
    return results if isinstance(results, tuple) else (results,)


def stored_array(tensor: onnx.TensorProto) -> OnnxValue:
    """Return the values of a tensor: an array of NumPy, which has no bfloat16, or an `Array`.

    Raises UnsupportedError for element types that magmath does not have.
    """
    dtype_of(tensor.data_type)
    return _as_value(numpy_helper.to_array(tensor))


def _as_value(values: Any) -> OnnxValue:
    """Return an array of NumPy; as an `Array` if it has bfloat16."""
    return mm.asarray(values) if values.dtype.name == "bfloat16" else values


def _attribute(attribute: onnx.AttributeProto, opset: int) -> Any:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return OnnxGraph(attribute.g, opset)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return stored_array(value)
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [item.decode() for item in value]
    if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
        return list(value)
    return value


def _constant(node: onnx.NodeProto) -> Any:
    attribute = node.attribute[0] if node.attribute else onnx.AttributeProto(name="no value")
    value = _attribute(attribute, 0)
    if isinstance(value, (np.ndarray, mm.Array)):
        return value
    types = {"value_float": "float32", "value_floats": "float32"}
    types |= {"value_int": "int64", "value_ints": "int64"}
    if attribute.name not in types:
        raise UnsupportedError(
            f"from_onnx: constants by {attribute.name} are not known to magmath; "
            f"convert the model to one without strings and sparse constants"
        )
    return np.asarray(value, types[attribute.name])
