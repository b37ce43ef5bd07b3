"""Modules of magmath as ONNX models."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper

import magmath
import magmath as mm
from magmath.arrays.array import as_array
from magmath.arrays.tree import flatten
from magmath.arrays.variables.variable import Variable
from magmath.core.atomic_replace import atomic_replace
from magmath.core.integers import require_integer
from magmath.errors import OptionError, UnsupportedError
from magmath.interop.reading_onnx.onnx_module import from_onnx
from magmath.interop.writing_onnx.onnx_nodes import EMITTERS
from magmath.interop.writing_onnx.onnx_trace import KEEP_FIXED, TracedModule, TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter, numpy_values, value_infos
from magmath.nn import Module
from magmath.nn.abstract import AbstractArray, trace_call
from magmath.nn.module import first_called
from magmath.train import NeuralNetwork, Trainer

OPSET, IR_VERSION = 18, 8
"""The versions of operators and format that models are written in, of 2023."""
MAX_BYTES = 1 << 31
"""Larger models store their initializers in a second file, as the format requires."""


def to_onnx(
    module: Callable[..., Any] | Trainer | NeuralNetwork,
    path: str | os.PathLike[str],
    *example: Any,
    variable_axes: int | Sequence[int] | Mapping[str, int | Sequence[int]] = 1,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Write a module as an ONNX model; return the model.

    module         an `nn.Module` or a trained network, written in evaluation mode, or a function of
                   arrays
    path           the file, which is replaced at once when it is complete
    example        an example of the arguments: arrays
    variable_axes  the number of first axes of each input whose extents may differ from those of
                   the example, or a list of such axes: 1 for samples, 2 for samples and words,
                   (0, 2, 3) for images of any size. A dictionary has either by the name of the
                   input, as {"tokens": 2, "features": 1}; an input that it lacks has 1
    input_names    the names of the inputs, by default "input" for one, and for several the names of
                   the arguments of the module's `__call__`, or "input", "input_1", …
    output_names   the names of the outputs, by default "output", "output_1", …, or the keys of a
                   dictionary that the module returns

    Parameters and buffers are initializers with the paths that they have in the module; what
    depends on them alone is computed. Equal extents of one axis of several inputs count as one.
    The model is run on the example before it is written.

    Raises UnsupportedError for operations that ONNX does not have, for random numbers, for numbers
    that depend on a variable extent in an unknown way, and if the model does not compute what the
    module computes. Source: onnx.ai/onnx/operators, version 18.
    """
    if not example:
        raise OptionError(
            "to_onnx: needs an example of the arguments after the path, such as mm.zeros((1, 784))"
        )
    function = module.module if isinstance(module, Trainer | NeuralNetwork) else module
    examples = [as_array("to_onnx", x) for x in example]
    with function.mode(False) if isinstance(function, Module) else nullcontext():
        if isinstance(function, Module) and not function.is_built:
            trace_call(function, tuple([AbstractArray(x.shape, x.dtype) for x in examples]))
        paths = _paths(function)
        inputs = input_names or _argument_names(function, len(examples))
        axes = _axes_of_inputs(variable_axes, inputs or _numbered("input", len(examples)))
        if not input_names and not set(paths.values()).isdisjoint(inputs or ()):
            inputs = None
        inputs = _names("input", inputs, len(examples), paths.values())
        traced = TracedModule(function, examples, axes)
        used_names = [*paths.values(), *inputs]
        outputs = _names("output", output_names or _keys(traced), len(traced.outputs), used_names)
        model = helper.make_model(
            _graph(traced, inputs, outputs, paths),
            producer_name="magmath",
            producer_version=magmath.__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        _check_values(function, model, examples)
    _save(model, path)
    return model


def _keys(traced: TracedModule) -> list[str] | None:
    """Return the keys of a dictionary of arrays that the module returns, otherwise None."""
    keys = list(traced.nested) if isinstance(traced.nested, dict) else []
    return keys if keys and len(keys) == len(traced.outputs) else None


def _argument_names(function: Callable[..., Any], count: int) -> list[str] | None:
    """Return the names of the arguments of a module or a function with several inputs; None if they
    have no names of their own."""
    if count == 1:
        return None
    called = type(first_called(function)).__call__ if isinstance(function, Module) else function
    try:
        arguments = list(signature(called).parameters.values())[isinstance(function, Module) :]
    except ValueError:
        return None
    named = arguments[:count]
    positional = all(x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD) for x in named)
    return [x.name for x in named] if positional and len(named) == count else None


def _axes_of_inputs(
    variable_axes: int | Sequence[int] | Mapping[str, int | Sequence[int]], names: Sequence[str]
) -> list[list[int]]:
    """Return the variable axes of each input."""
    if not isinstance(variable_axes, Mapping):
        return [_axes(variable_axes)] * len(names)
    unknown = [name for name in variable_axes if name not in names]
    if unknown:
        raise OptionError(
            f"to_onnx: variable_axes has {unknown[0]!r}, which is no input; the inputs are "
            f"{', '.join(names)}; input_names= gives them other names"
        )
    return [_axes(variable_axes.get(name, 1)) for name in names]


def _axes(variable_axes: int | Sequence[int]) -> list[int]:
    """Return the axes of one input: those of a list, or as many first ones."""
    if isinstance(variable_axes, Sequence):
        return [require_integer("to_onnx: variable_axes", axis, 0) for axis in variable_axes]
    return list(range(require_integer("to_onnx: variable_axes", variable_axes, 0)))


def _paths(module: Any) -> dict[int, str]:
    """Return the paths of the variables of a module, by their identity."""
    paths: dict[int, str] = {}
    for path, part in module.named_modules() if isinstance(module, Module) else ():
        for name, value in part.parts():
            if isinstance(value, Variable):
                paths.setdefault(id(value), f"{path}.{name}" if path else name)
    return paths


def _check_values(
    module: Callable[..., Any], model: onnx.ModelProto, examples: Sequence[mm.Array]
) -> None:
    """Raise UnsupportedError if the model does not compute what the module computes for the
    example, whose extents are not among those of the traces."""
    random = np.random.default_rng(0)
    inputs = [_with_different_values(x, random) for x in examples]
    expected = flatten(module(*inputs))[0]
    results = from_onnx(model)(*inputs)
    for x, y in zip(expected, results if isinstance(results, tuple) else (results,), strict=True):
        if x.shape != y.shape or not _is_close(numpy_values(x), numpy_values(y), x.dtype):
            raise UnsupportedError(
                f"to_onnx: for the example the model computes other values than the module, whose "
                f"code decides something by the extents of its inputs, or draws numbers; "
                f"{KEEP_FIXED}"
            )


def _with_different_values(x: mm.Array, random: np.random.Generator) -> mm.Array:
    """Return an example; random numbers in place of floating point ones that are all equal."""
    values = np.asarray(mm.astype(x, mm.float64)) if x.dtype.is_floating else None
    if values is None or values.size < 2 or (values != values.flat[0]).any():
        return x
    return mm.asarray(random.normal(size=x.shape), dtype=x.dtype)


def _is_close(x: Any, y: Any, dtype: mm.DType) -> bool:
    if not dtype.is_floating:
        return bool((x == y).all())
    tolerance = 1e-6 if dtype == mm.float64 else 1e-2 if dtype == mm.float32 else 0.1
    a, b = x.astype(np.float64), y.astype(np.float64)
    scale = np.abs(a[np.isfinite(a)]).max(initial=0.0) or 1.0
    return bool(np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True).all())


def _names(
    kind: str, chosen_names: Sequence[str] | None, count: int, other_names: Collection[str]
) -> list[str]:
    """Return the given names of inputs or outputs, or numbered ones. Raises OptionError if given
    ones do not differ from each other and from the `other_names`."""
    if chosen_names is None:
        names = _numbered(kind, count)
        while not set(other_names).isdisjoint(names):
            names = [f"{name}_" for name in names]
        return names
    if (
        len(chosen_names) != count
        or len(set(chosen_names)) != count
        or not set(other_names).isdisjoint(chosen_names)
    ):
        raise OptionError(
            f"to_onnx: {kind}_names needs {count} different names that are not those of inputs or "
            f"parameters, was given {list(chosen_names)}"
        )
    return list(chosen_names)


def _numbered(kind: str, count: int) -> list[str]:
    return [kind if i == 0 else f"{kind}_{i}" for i in range(count)]


def _graph(
    traced: TracedModule, inputs: Sequence[str], outputs: Sequence[str], paths: dict[int, str]
) -> onnx.GraphProto:
    """Return the graph of a module, with these names of inputs and outputs, and initializers with
    the paths of variables."""
    writer = OnnxWriter(traced, inputs)
    writer.reserve([*outputs, *paths.values()])
    names: dict[TracedNode, str] = dict(zip(traced.inputs, inputs, strict=True))
    written = [x for x in traced.nodes if not x.is_constant and x not in names]
    needed = [x for node in written for x in node.inputs] + traced.outputs
    constants = [x for x in dict.fromkeys(needed) if x.is_constant]
    for node, values in zip(constants, traced.values(constants), strict=True):
        variable = traced.variables.get(node.first)
        names[node] = writer.store(numpy_values(values), paths.get(id(variable)))
    for node, name in names.items():
        if node.depends_on_inputs:
            writer.record_extents(name, node)
    for node in written:
        emitter = EMITTERS.get(node.name)
        if emitter is None:
            raise node.unsupported("which has no equal in ONNX", "write it in other operations")
        names[node] = emitter(writer, node, *[names[x] for x in node.inputs])
        writer.record_extents(names[node], node)
    for node, name in zip(traced.outputs, outputs, strict=True):
        writer.output(names[node], name)
    nodes = _needed(writer.nodes, outputs)
    read = {name for node in nodes for name in node.input}
    return helper.make_graph(
        nodes,
        "magmath",
        value_infos(inputs, traced.inputs, traced.axis_names, traced),
        value_infos(outputs, traced.outputs, {}, traced),
        [tensor for tensor in writer.initializers if tensor.name in read],
    )


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs depend on."""
    read, needed = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.output):
            read.update(node.input)
            needed.append(node)
    return needed[::-1]


def _save(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    """Write a model to a file, and the values of a large one to a second file next to it."""
    file = Path(path)
    data = file.with_name(f"{file.name}.data")
    stored = sum([len(tensor.raw_data) for tensor in model.graph.initializer])
    limit = MAX_BYTES - (1 << 20)
    is_large = stored >= limit or model.ByteSize() >= limit  # ByteSize ends at 2 GB
    with atomic_replace(file) as draft:
        if is_large:
            separate = copy.deepcopy(model)  # `save` moves its values to the file
            onnx.save(separate, draft, save_as_external_data=True, location=data.name)
        else:
            onnx.save(model, draft)
        _check_types(draft)
        if is_large:
            Path(draft).with_name(data.name).replace(data)


def _check_types(path: str) -> None:
    """Raise UnsupportedError for an operator that ONNX does not have for a type."""
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UnsupportedError(
            f"to_onnx: ONNX does not have an operation for the element types of the module: "
            f"{reason}; convert operands with mm.astype"
        ) from None
