"""The nodes and initializers of an ONNX model that is being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import magmath as mm
from magmath.interop.onnx_trace import ADDED, Extent, Traced, TracedNode


@final
class OnnxWriter:
    """Collects the nodes of a graph; results and initializers are known by their names."""

    def __init__(self, traced: Traced, input_names: Sequence[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._extents = traced.extents
        self._input_names = list(input_names)
        self._used_names = set(input_names)
        self._known: dict[Any, str] = {}

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result; return the name of the result."""
        return self.add_several(operator, 1, *inputs, **attributes)[0]

    def add_several(self, operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node of several results; return their names."""
        names = [self._new(operator.lower()) for _ in range(count)]
        made = helper.make_node(operator, list(inputs), names, names[0], **attributes)
        self.nodes.append(made)
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
        extents. Raises MagmathError if it is not a multiple of them, or their sum with a number."""
        if len(set(value)) == 1:
            return self.store(np.asarray([value[0]], np.int64))
        known = self._known.get(("integer", value))
        if known is None:
            known = self._known["integer", value] = self._dependent(value, node)
        return known

    def _dependent(self, value: Extent, node: TracedNode) -> str:
        changed = [
            (name, entry) for i, (name, entry) in enumerate(self._extents.items())
            if any(v != value[0] for v in self._of(value, i))
        ]  # fmt: skip
        if len(changed) == 2:
            (_, one), (_, other) = changed
            if value == tuple([a * b for a, b in zip(one[0], other[0], strict=True)]):
                return self.add("Mul", self._extent(*one), self._extent(*other))
        if len(changed) == 1:
            extent = changed[0][1][0]
            start = list(self._extents).index(changed[0][0])
            steps = self._of(value, start)
            factor, rest = divmod(steps[0] - value[0], ADDED[0])
            shift = value[0] - factor * extent[0]
            linear = tuple([factor * n + shift for n in extent])
            if not rest and linear == value:
                result = self._extent(*changed[0][1])
                if factor != 1:
                    result = self.add("Mul", result, self.store(np.asarray([factor], np.int64)))
                if shift:
                    result = self.add("Add", result, self.store(np.asarray([shift], np.int64)))
                return result
        raise node.refuse("in which a number depends on the extents of the inputs in another way")

    @staticmethod
    def _of(value: Extent, index: int) -> Extent:
        """Return the values in the traces in which a named extent is larger."""
        first = 1 + index * len(ADDED)
        return value[first : first + len(ADDED)]

    def _extent(self, extent: Extent, index: int, axis: int) -> str:
        key = ("extent", extent)
        if key not in self._known:
            shape = self.add("Shape", self._input_names[index], start=axis, end=axis + 1)
            self._known[key] = shape
        return self._known[key]

    def shape(self, extents: Sequence[Extent], node: TracedNode) -> str:
        """Return the name of a shape, which may depend on named extents."""
        if all(len(set(extent)) == 1 for extent in extents):
            return self.store(np.asarray([extent[0] for extent in extents], np.int64))
        return self.add("Concat", *[self.integer(n, node) for n in extents], axis=0)

    def _new(self, stem: str) -> str:
        name = f"{stem}_{len(self._used_names)}"
        while name in self._used_names:
            name += "_"
        self._used_names.add(name)
        return name


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


def described(
    names: Sequence[str], nodes: Sequence[TracedNode], places: Mapping[Any, str], traced: Traced
) -> list[onnx.ValueInfoProto]:
    """Return the description of inputs or outputs; extents that vary have a name or none."""
    of = {entry[0]: name for name, entry in traced.extents.items()}
    found = []
    for i, (name, node) in enumerate(zip(names, nodes, strict=True)):
        shape: list[int | str | None] = [
            places.get((i, axis)) or (extent[0] if len(set(extent)) == 1 else of.get(extent))
            for axis, extent in enumerate(node.shape)
        ]
        kind = element_type(node.first.dtype)
        found.append(helper.make_tensor_value_info(name, kind, shape))
    return found
