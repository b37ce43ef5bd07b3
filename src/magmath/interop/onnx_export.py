"""Modules of magmath as ONNX models."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import helper

import magmath
from magmath.arrays.array import as_array
from magmath.core.atomic_replace import atomic_replace
from magmath.core.integers import require_integer
from magmath.errors import MagmathError, OptionError
from magmath.interop.onnx_nodes import EMITTERS
from magmath.interop.onnx_trace import Traced, TracedNode
from magmath.interop.onnx_writer import OnnxWriter, described, numpy_values
from magmath.nn import Module
from magmath.nn.abstract import AbstractArray, trace_call

OPSET, IR_VERSION = 18, 8
"""The versions of operators and format that models are written in, of 2023."""
MAX_BYTES = 1 << 31
"""Larger models store their initializers in a second file, as the format requires."""


def to_onnx(
    module: Callable[..., Any],
    path: str | os.PathLike[str],
    *example: Any,
    variable_axes: int = 1,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """Write a module, in evaluation mode, as an ONNX model; return the model.

    module         an `nn.Module`, or a function of arrays
    path           the file, which is replaced at once when it is complete
    example        an example of the arguments: arrays, whose shapes and types count
    variable_axes  the number of first axes of each input whose extents may differ from those of
                   the example: 1 for samples, 2 for samples and words
    input_names    the names of the inputs, by default "input", "input_1", …
    output_names   the names of the outputs, by default "output", "output_1", …

    Parameters and buffers are initializers with the paths that they have in the module; what
    depends on them alone, such as the factors of batch normalization, is computed. Equal first
    extents of several inputs count as one.

    Raises MagmathError for operations that ONNX does not have, random numbers among them, and for
    numbers that depend on a variable extent in a way other than as a multiple of it. Source:
    onnx.ai/onnx/operators, version 18.
    """
    if not example:
        raise OptionError(
            "to_onnx: needs an example of the arguments after the path, such as mm.zeros((1, 784))"
        )
    count = require_integer("to_onnx: variable_axes", variable_axes, 0)
    examples = [as_array("to_onnx", x) for x in example]
    if isinstance(module, Module):
        with module.mode(False):
            if not module.is_built:
                trace_call(module, tuple([AbstractArray(x.shape, x.dtype) for x in examples]))
            traced = Traced(module, examples, count)
        paths = [*module.named_parameters(), *module.named_buffers()]
    else:
        traced, paths = Traced(module, examples, count), []
    inputs = _names("input", input_names, len(traced.inputs))
    outputs = _names("output", output_names, len(traced.outputs))
    graph = _graph(traced, inputs, outputs, {id(v): path for path, v in paths})
    model = helper.make_model(
        graph,
        producer_name="magmath",
        producer_version=magmath.__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    _save(model, path)
    return model


def _names(kind: str, given: Sequence[str] | None, count: int) -> list[str]:
    if given is None:
        return [kind if i == 0 else f"{kind}_{i}" for i in range(count)]
    if len(given) != count or len(set(given)) != count:
        raise OptionError(
            f"to_onnx: {kind}_names needs {count} different names, was given {list(given)}"
        )
    return list(given)


def _graph(
    traced: Traced, inputs: Sequence[str], outputs: Sequence[str], paths: dict[int, str]
) -> onnx.GraphProto:
    writer = OnnxWriter(traced, inputs)
    writer.reserve([*outputs, *paths.values()])
    names: dict[TracedNode, str] = dict(zip(traced.inputs, inputs, strict=True))
    written = [x for x in traced.nodes if (x.is_data or x.is_named) and x not in names]
    needed = [x for node in written for x in node.inputs] + traced.outputs
    constant = [x for x in dict.fromkeys(needed) if not (x.is_data or x.is_named)]
    for node, values in zip(constant, traced.values(constant), strict=True):
        variable = traced.variables.get(node.first)
        names[node] = writer.store(numpy_values(values), paths.get(id(variable)))
    for node in written:
        emitter = EMITTERS.get(node.name)
        if emitter is None:
            raise node.refuse("which has no equal in ONNX")
        names[node] = emitter(writer, node, *[names[x] for x in node.inputs])
    for node, name in zip(traced.outputs, outputs, strict=True):
        writer.output(names[node], name)
    read = {name for made in writer.nodes for name in made.input}
    return helper.make_graph(
        writer.nodes,
        "magmath",
        described(inputs, traced.inputs, traced.places, traced),
        described(outputs, traced.outputs, {}, traced),
        [tensor for tensor in writer.initializers if tensor.name in read],
    )


def _save(model: onnx.ModelProto, path: str | os.PathLike[str]) -> None:
    if model.ByteSize() < MAX_BYTES - (1 << 20):
        onnx.checker.check_model(model, full_check=True)
        with atomic_replace(path) as draft:
            onnx.save(model, draft)
        return
    data = f"{os.path.basename(os.fspath(path))}.data"
    try:
        onnx.save(model, os.fspath(path), save_as_external_data=True, location=data)
    except OSError as error:
        raise MagmathError(f"to_onnx: {os.fspath(path)} cannot be written: {error}") from None
