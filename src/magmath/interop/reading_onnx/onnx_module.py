"""ONNX models as modules of magmath.

A model is a graph of operators, which `OnnxModule` runs with magmath's functions
(`onnx_operators.py`). Operators that magmath does not have, and that ONNX defines by others, are
replaced by these.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, final

import onnx
from google.protobuf.message import DecodeError
from onnx import shape_inference
from onnx.inliner import inline_local_functions, inline_selected_functions

import magmath as mm
from magmath.arrays.array import as_array
from magmath.arrays.inputs.number_list import LISTS, is_number, number_list
from magmath.errors import (
    DataError,
    DTypeError,
    MissingDataError,
    OptionError,
    ShapeError,
    UnsupportedError,
)
from magmath.interop.named_parts import NamedParts, add_variables
from magmath.interop.reading_onnx.onnx_call import dtype_of
from magmath.interop.reading_onnx.onnx_graph import BUFFERS, SETTINGS, OnnxGraph, stored_array
from magmath.interop.reading_onnx.onnx_operators import OPERATORS
from magmath.nn import Buffer, Parameter

OnnxModel = onnx.ModelProto
OWN_DOMAINS = ("", "ai.onnx")


@final
class OnnxModule(NamedParts):
    """An ONNX model that computes on magmath.

    Its floating point initializers of one or more dimensions are parameters, with their names in
    the model, running moments are buffers, and other initializers constants.
    """

    def __init__(self, model: OnnxModel) -> None:
        super().__init__()
        model = _with_known_operators(model)
        if model.graph.sparse_initializer:
            raise UnsupportedError(
                "from_onnx: sparse initializers are not known to magmath; export them dense"
            )
        trained, updated = _variables_of(model.graph)
        self._variables: dict[str, Parameter | Buffer] = {}
        for tensor in model.graph.initializer:
            if tensor.name in (*trained, *updated):
                kind = Buffer if tensor.name in updated else Parameter
                self._variables[tensor.name] = kind(mm.asarray(stored_array(tensor)))
                for values in ("raw_data", "float_data", "double_data", "int32_data"):
                    tensor.ClearField(values)  # the variable has them
        add_variables(self, self._variables)
        self._read(model)

    def _read(self, model: OnnxModel) -> None:
        """Read the graph of a model, whose variables exist."""
        opset = max([x.version for x in model.opset_import if x.domain in OWN_DOMAINS] or [1])
        self._model = model
        self._graph = OnnxGraph(model.graph, opset, self._variables)
        named = {value.name: value for value in model.graph.input}
        self._inputs = [named[name] for name in self._graph.inputs]

    def __repr__(self) -> str:
        inputs = ", ".join([f"{x.name}: {_shape_text(x)}" for x in self._inputs])
        return f"OnnxModule({self._model.graph.name}; {inputs})"

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_graph"], state["_inputs"]
        return {**state, "_model": self._model.SerializeToString()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        model = onnx.load_model_from_string(state.pop("_model"))
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self._read(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for the inputs of the model, given in order or by name: one array, or
        a tuple of several."""
        names = [x.name for x in self._inputs]
        named = dict(zip(names, args, strict=False)) | kwargs
        if len(named) != len(args) + len(kwargs) or named.keys() != set(names):
            raise OptionError(
                f"OnnxModule: needs the inputs {', '.join(names)}, was given {len(args)} in order"
                f"{' and ' + ', '.join(kwargs) if kwargs else ''}; give each of them once"
            )
        inputs = [_checked(x, named[x.name]) for x in self._inputs]
        results = self._graph.run(self._variables, inputs, self.training)
        outputs = [x if isinstance(x, mm.Array) else mm.asarray(x) for x in results]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def from_onnx(model: OnnxModel | str | os.PathLike[str] | bytes) -> OnnxModule:
    """Return a module of magmath that computes what an ONNX model computes.

    model   the path of a file (with its external data, if it has any), its bytes, or a `ModelProto`

    The module is in evaluation mode. It takes part in everything that other modules do: gradients,
    `compile`, `Trainer`, strategies, `state_dict`. In training mode, batch normalization uses the
    moments of the batch and updates the running ones, and dropout draws.

    Raises MissingDataError for a missing file, DataError for one that is no ONNX model, and
    UnsupportedError for operators and element types that magmath does not have. Source:
    onnx.ai/onnx/operators, versions 7 to 25.
    """
    return OnnxModule(_load(model)).eval()  # type: ignore[return-value]


def _load(model: OnnxModel | str | os.PathLike[str] | bytes) -> OnnxModel:
    if isinstance(model, onnx.ModelProto):
        return copy.deepcopy(model)  # copy.copy serializes, which ends at 2 GB
    try:
        if isinstance(model, bytes):
            loaded = onnx.load_model_from_string(model)
        else:
            loaded = onnx.load(os.fspath(Path(model)))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"from_onnx: there is no file {error.filename}; check the path"
        ) from None
    except (DecodeError, onnx.checker.ValidationError) as error:
        raise DataError(f"from_onnx: {_name(model)} is no ONNX model: {error}") from None
    if not loaded.graph.node:
        raise DataError(f"from_onnx: {_name(model)} is no ONNX model: it has no operators")
    return loaded


def _name(model: Any) -> str:
    return "the argument" if isinstance(model, bytes) else os.fspath(model)


def _with_known_operators(model: OnnxModel) -> OnnxModel:
    """Return the model in operators that magmath has. Raises UnsupportedError if that cannot be."""
    if model.functions:
        model = inline_local_functions(model)
    missing, former = _missing_operators(model.graph), None
    while missing and missing != former:  # a definition may use operators that have one too
        former = missing
        _give_defaults(model, missing)
        try:
            typed = shape_inference.infer_shapes(model)
            model = inline_selected_functions(typed, sorted(missing), inline_schema_functions=True)
        except (RuntimeError, shape_inference.InferenceError):  # the type of an operand is unknown
            break
        missing = _missing_operators(model.graph)
    if missing:
        names = ", ".join(sorted([f"{d}.{n}" if d else n for d, n in missing]))
        raise UnsupportedError(
            f"from_onnx: the model has operators that magmath does not have: {names}; "
            f"export it with other operators"
        )
    return model


def _give_defaults(model: OnnxModel, operators: set[tuple[str, str]]) -> None:
    """Give nodes of some operators the attributes that they leave out: definitions need them."""
    versions = {x.domain: x.version for x in model.opset_import}
    for node in _all_nodes(model.graph):
        domain, name = node.domain, node.op_type
        if (domain, name) in operators and onnx.defs.has(name, versions.get(domain, 0), domain):
            schema = onnx.defs.get_schema(name, versions[domain], domain)
            present = {attribute.name for attribute in node.attribute}
            defaults = [attribute.default_value for attribute in schema.attributes.values()]
            node.attribute.extend([x for x in defaults if x.name and x.name not in present])


def _missing_operators(graph: onnx.GraphProto) -> set[tuple[str, str]]:
    """Return the domains and names of operators that magmath does not have."""
    return {
        (node.domain, node.op_type)
        for node in _all_nodes(graph)
        if node.domain not in OWN_DOMAINS or node.op_type not in {*OPERATORS, "Constant"}
    }


def _variables_of(graph: onnx.GraphProto) -> tuple[list[str], list[str]]:
    """Return the names of the initializers that are parameters, and of those that are buffers."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
              onnx.TensorProto.BFLOAT16)  # fmt: skip
    stored = [t.name for t in graph.initializer if t.data_type in floats and t.dims]
    data: set[str] = set()
    buffers: set[str] = set()
    for node in _all_nodes(graph):
        setting_inputs = SETTINGS.get(node.op_type, ())
        buffer_inputs = BUFFERS.get(node.op_type, ())
        data.update(
            [
                name
                for i, name in enumerate(node.input)
                if i not in (*setting_inputs, *buffer_inputs)
            ]
        )
        buffers.update([name for i, name in enumerate(node.input) if i in buffer_inputs])
    return [n for n in stored if n in data], [n for n in stored if n in buffers - data]


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes, those of inner graphs included."""
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                nodes += _all_nodes(attribute.g)
    return nodes


def _checked(declared: onnx.ValueInfoProto, value: Any) -> mm.Array:
    """Return an input as an array of the type that the model declares; real numbers are rounded to
    a floating point type. Python integers take an integer type.

    Raises DTypeError for a type with numbers that the declared one does not hold, RangeError for
    Python integers that it does not hold, and ShapeError for another number of dimensions, or other
    extents, than declared.
    """
    array = as_array("OnnxModule", value)
    tensor = declared.type.tensor_type
    kind = dtype_of(tensor.elem_type)
    is_python = is_number(value) or (isinstance(value, LISTS) and number_list(value) is not None)
    if array.dtype != kind:
        is_rounded = kind.kind == "float" and array.dtype.kind != "complex"
        is_fitted = is_python and kind.is_integer and array.dtype.is_integer
        if not (is_rounded or is_fitted or mm.can_cast(array.dtype, kind)):
            raise DTypeError(
                f"OnnxModule: the input {declared.name} needs the type {kind}, which does not hold "
                f"all numbers of the given {array.dtype}; convert it with mm.astype(x, mm.{kind})"
            )
        array = as_array("OnnxModule", value, kind) if is_python else mm.astype(array, kind)
    if not tensor.HasField("shape"):
        return array
    needed = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    if len(needed) != array.ndim or any(
        n not in (None, 0, m) for n, m in zip(needed, array.shape, strict=True)
    ):
        raise ShapeError(
            f"OnnxModule: the input {declared.name} needs the shape {_shape_text(declared)}, was "
            f"given {array.shape}; extents by name may be any, export the model with more of them"
        )
    return array


def _shape_text(declared: onnx.ValueInfoProto) -> str:
    """Return the declared shape as text, with * for an extent without a number or a name."""
    dims = declared.type.tensor_type.shape.dim
    return f"({', '.join([d.dim_param or str(d.dim_value or '*') for d in dims])})"
