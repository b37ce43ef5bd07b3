"""The nodes and initializers of an ONNX model that is being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import magmath as mm
from magmath.interop.writing_onnx.onnx_trace import (
    TRACES,
    Extent,
    Place,
    TracedModule,
    TracedNode,
)


@final
class OnnxWriter:
    """Collects the nodes of a graph; results and initializers are known by their names."""

    def __init__(self, traced: TracedModule, input_names: Sequence[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.values: dict[str, Any] = {}
        """The values of initializers, by name."""
        self._named_extents = list(traced.extents.values())
        self._used_names = set(input_names)
        self._known: dict[Any, str] = {}
        """The names of initializers by their values, and of extents that have been written."""
        self._axes: dict[Extent, tuple[str, int]] = {}
        """A result and its axis that has the extent, by extents that vary."""

    def record_extents(self, name: str, node: TracedNode) -> None:
        """Record a result, whose extents other shapes may use."""
        for axis, extent in enumerate(node.shape):
            if is_varying(extent):
                self._axes.setdefault(extent, (name, axis))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result; return the name of the result."""
        return self.add_several(operator, 1, *inputs, **attributes)[0]

    def add_several(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node of several results; return their names."""
        names = [self._new(operator.lower()) for _ in range(count)]
        node = helper.make_node(operator, list(inputs), names, names[0], **attributes)
        self.nodes.append(node)
        return names

    def output(self, source: str, name: str) -> None:
        """Give a result its name as an output of the model."""
        self.nodes.append(helper.make_node("Identity", [source], [name], name))

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for outputs and variables."""
        self._used_names.update(names)

    def store(self, values: Any, name: str | None = None) -> str:
        """Add an initializer; return its name. Equal small ones without a name are one."""
        values = np.ascontiguousarray(values).reshape(np.shape(values))
        key = (values.tobytes(), values.dtype, values.shape) if values.size <= 64 else None
        if name is None and key in self._known:
            return self._known[key]
        stored = self._new("constant") if name is None else name
        self.initializers.append(numpy_helper.from_array(values, stored))
        self.values[stored] = values
        if name is None and key is not None:
            self._known[key] = stored
        return stored

    def number(self, value: Any, like: TracedNode) -> str:
        """Return the name of a 0-d initializer of the element type of a node."""
        return self.store(np.asarray(value, numpy_dtype(like.first.dtype)))

    def cast(self, source: str, dtype: mm.DType) -> str:
        """Return a result in another element type."""
        return self.add("Cast", source, to=element_type(dtype))

    def integer(self, value: Extent, node: TracedNode) -> str:
        """Return the name of an integer, as an array of one element, that may depend on named
        extents. Raises UnsupportedError if it is no extent of a result, no multiple of a named
        extent plus a number, and no product of two extents."""
        if not is_varying(value):
            return self.store(np.asarray([value[0]], np.int64))
        key = ("integer", value)
        if key not in self._known:
            self._known[key] = self._varying_integer(value, node)
        return self._known[key]

    def _varying_integer(self, value: Extent, node: TracedNode) -> str:
        if value in self._axes:
            name, axis = self._axes[value]
            return self.add("Shape", name, start=axis, end=axis + 1)
        for i, extent in enumerate(self._named_extents):
            linear = _linear(value, extent, i)
            if linear is not None:
                factor, shift = linear
                result = self.integer(extent, node)
                if factor != 1:
                    result = self.add("Mul", result, self.store(np.asarray([factor], np.int64)))
                if shift:
                    result = self.add("Add", result, self.store(np.asarray([shift], np.int64)))
                return result
        for extent in list(self._axes):
            quotient = tuple([v // max(n, 1) for v, n in zip(value, extent, strict=True)])
            product = tuple([a * b for a, b in zip(extent, quotient, strict=True)])
            if product == value and (quotient in self._axes or not is_varying(quotient)):
                return self.add("Mul", self.integer(extent, node), self.integer(quotient, node))
        raise node.unsupported("which depends on the extents of the inputs in an unknown way")

    def shape(self, extents: Sequence[Extent], node: TracedNode) -> str:
        """Return the name of a shape, which may depend on named extents."""
        if not any(map(is_varying, extents)):
            return self.store(np.asarray([extent[0] for extent in extents], np.int64))
        return self.add("Concat", *[self.integer(n, node) for n in extents], axis=0)

    def _new(self, stem: str) -> str:
        name = f"{stem}_{len(self._used_names)}"
        while name in self._used_names:
            name += "_"
        self._used_names.add(name)
        return name


def is_varying(value: Extent) -> bool:
    """Return True if an integer differs between the traces."""
    return len(set(value)) > 1


def _linear(value: Extent, extent: Extent, index: int) -> tuple[int, int] | None:
    """Return (factor, shift) with value = factor · extent + shift, or None if there are none.

    `index` is the number of the named extent, which says in which traces it is larger.
    """
    first = 1 + index * TRACES
    factor, remainder = divmod(value[first] - value[0], extent[first] - extent[0])
    shift = value[0] - factor * extent[0]
    fits = not remainder and tuple([factor * n + shift for n in extent]) == value
    return (factor, shift) if fits else None


def numpy_dtype(dtype: mm.DType) -> Any:
    """Return NumPy's element type, bfloat16 included, of magmath's."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == mm.bfloat16 else dtype.name)


def element_type(dtype: mm.DType) -> int:
    """Return ONNX's element type of magmath's."""
    return int(helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)))


def numpy_values(x: mm.Array) -> Any:
    """Return the values of an array, of bfloat16 too."""
    if x.dtype == mm.bfloat16:
        return np.asarray(mm.astype(x, mm.float32)).astype(ml_dtypes.bfloat16)
    return np.asarray(x)


def value_infos(
    names: Sequence[str],
    nodes: Sequence[TracedNode],
    axis_names: Mapping[Place, str],
    traced: TracedModule,
) -> list[onnx.ValueInfoProto]:
    """Return the description of inputs or outputs; extents that vary have a name or none."""
    name_of = {extent: name for name, extent in traced.extents.items()}
    infos = []
    for i, (name, node) in enumerate(zip(names, nodes, strict=True)):
        shape: list[int | str | None] = [
            axis_names.get((i, axis)) or (name_of.get(extent) if is_varying(extent) else extent[0])
            for axis, extent in enumerate(node.shape)
        ]
        kind = element_type(node.first.dtype)
        infos.append(helper.make_tensor_value_info(name, kind, shape))
    return infos
