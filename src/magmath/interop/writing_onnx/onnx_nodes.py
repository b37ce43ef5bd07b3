"""magmath's operations as nodes of ONNX (operator set 18).

`EMITTERS` maps the name of an operation to a function of the writer, the node, and the names of its
operands; it returns the name of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import log, prod
from typing import Any

import numpy as np

import magmath as mm
from magmath.errors import MagmathError
from magmath.interop.writing_onnx.onnx_trace import KEEP_FIXED, Extent, TracedNode
from magmath.interop.writing_onnx.onnx_writer import OnnxWriter

Emitter = Callable[..., str]
END = np.iinfo(np.int64).max


def _same(operator: str, **attributes: Any) -> Emitter:
    """Return the emitter of an operation that ONNX has too."""
    return lambda w, node, *names: w.add(operator, *names, **attributes)


def _not_equal(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    return w.add("Not", w.add("Equal", *names))


def _divide(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    kind = node.first.dtype
    if node.inputs[0].first.dtype != kind:
        x, y = w.cast(x, kind), w.cast(y, kind)
    return w.add("Div", x, y)


def _logarithm(base: float) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        return w.add("Mul", w.add("Log", x), w.number(1.0 / log(base), node))

    return emit


def _expm1(w: OnnxWriter, node: TracedNode, x: str) -> str:
    """Write eˣ - 1 = 2 · e^(x/2) · sinh(x/2), which does not cancel."""
    half = w.add("Mul", w.add("Max", x, w.number(-100.0, node)), w.number(0.5, node))
    return w.add("Mul", w.add("Mul", w.add("Exp", half), w.number(2.0, node)), w.add("Sinh", half))


def _log1p(w: OnnxWriter, node: TracedNode, x: str) -> str:
    """Write log(1 + x) = x · log(u) / (u - 1) with u = 1 + x, which is exact for small x."""
    one = w.number(1.0, node)
    u = w.add("Add", x, one)
    log_u, rest = w.add("Log", u), w.add("Sub", u, one)
    ratio = w.add("Div", w.add("Mul", x, log_u), rest)
    usual = w.add("Or", w.add("IsInf", x), w.add("Less", x, w.number(-0.5, node)))
    exact = w.add("Where", w.add("Equal", u, one), x, ratio)
    return w.add("Where", usual, log_u, exact)


def _erfc(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Sub", w.number(1.0, node), w.add("Erf", x))


def _truncated(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))


def _log_of_sum(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    largest = w.add("Max", x, y)
    difference = w.add("Where", w.add("Equal", x, y), w.number(0.0, node), w.add("Sub", x, y))
    below = w.add("Neg", w.add("Abs", difference))
    return w.add(
        "Add", largest, w.add("Log", w.add("Add", w.add("Exp", below), w.number(1.0, node)))
    )


def _hypotenuse(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    return w.add("Sqrt", w.add("Add", w.add("Mul", x, x), w.add("Mul", y, y)))


def _affine(w: OnnxWriter, node: TracedNode, x: str, mean: str, factor: str, shift: str) -> str:
    channels = (1, node.first.shape[1], *[1] * (node.ndim - 2)) if node.ndim > 1 else None
    moments = [w.values.get(name) for name in (mean, factor, shift)]
    if channels is not None and all(v is not None and v.shape == channels for v in moments):
        m, a, b = [w.store(v.reshape(-1)) for v in moments if v is not None]
        one = w.store(np.ones(channels[1], moments[0].dtype))  # type: ignore[union-attr]
        return w.add("BatchNormalization", x, a, b, m, one, epsilon=0.0)
    return w.add("Add", w.add("Mul", w.add("Sub", x, mean), factor), shift)


def _largest(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    zero = node.inputs[1].name == "constant" and node.inputs[1].first.attributes["value"] == 0
    return w.add("Relu", x) if zero else w.add("Max", x, y)


def _chosen(w: OnnxWriter, node: TracedNode, condition: str, x: str, y: str) -> str:
    """Write a choice; one between x and a limit is an extremum, as in relu6."""
    if node.first.dtype == mm.bool:
        return w.add("Or", w.add("And", condition, x), w.add("And", w.add("Not", condition), y))
    comparison, limit, other = node.inputs
    operator = {"greater_equal": "Min", "less_equal": "Max"}.get(comparison.name)
    if operator is not None and _is_equal_number(comparison.inputs[1], limit):
        compared = comparison.inputs[0]
        if other is compared or (operator == "Max" and _is_below(compared, limit, other)):
            return w.add(operator, y, x)
    return w.add("Where", condition, x, y)


def _is_equal_number(x: TracedNode, y: TracedNode) -> bool:
    numbers = x.name == y.name == "parameter"
    return x is y or (
        numbers and not x.varies() and not y.varies() and x.first.value == y.first.value
    )


def _is_below(compared: TracedNode, limit: TracedNode, other: TracedNode) -> bool:
    """Return True if `other` is the smaller one of `compared` and a number above the limit."""
    if other.name != "where" or other.inputs[0].name != "greater_equal":
        return False
    high, numbers = other.inputs[1], limit.name == other.inputs[1].name == "parameter"
    return (
        other.inputs[2] is compared
        and other.inputs[0].inputs[0] is compared
        and _is_equal_number(other.inputs[0].inputs[1], high)
        and numbers
        and limit.first.value <= high.first.value
    )


def _bitwise(of_truths: str, of_integers: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, *names: str) -> str:
        return w.add(of_truths if node.first.dtype == mm.bool else of_integers, *names)

    return emit


def _finite(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Not", w.add("Or", w.add("IsInf", x), w.add("IsNaN", x)))


def _astype(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.cast(x, node.first.dtype)


def _remainder(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    if not node.first.dtype.is_floating:
        return w.add("Mod", x, y)
    return w.add("Sub", x, w.add("Mul", w.add("Floor", w.add("Div", x, y)), y))


def _floor_divide(w: OnnxWriter, node: TracedNode, x: str, y: str) -> str:
    if mm.isdtype(node.first.dtype, "real floating"):
        return w.add("Floor", w.add("Div", x, y))
    return w.add("Div", w.add("Sub", x, w.add("Mod", x, y)), y)


# shapes -----------------------------------------------------------------------------------------


def _reshape(w: OnnxWriter, node: TracedNode, x: str) -> str:
    varied = [extent for extent in node.shape if len(set(extent)) > 1]
    if len(varied) != 1 or 0 in node.first.shape:
        return w.add("Reshape", x, w.shape(node.shape, node))
    shape = [-1 if len(set(extent)) > 1 else extent[0] for extent in node.shape]
    return w.add("Reshape", x, w.store(np.asarray(shape, np.int64)))


def _permute(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Transpose", x, perm=list(node.attribute("axes")))


def _broadcast(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return w.add("Expand", x, w.shape(node.shape, node))


def _concat(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    return w.add("Concat", *names, axis=node.attribute("axis"))


def _slice(w: OnnxWriter, node: TracedNode, x: str) -> str:
    bounds = list(zip(*node.each("bounds"), strict=True))  # by axis, in each trace
    chosen: list[tuple[int, Extent, Extent, int]] = []
    for axis, (of_traces, extent) in enumerate(zip(bounds, node.inputs[0].shape, strict=True)):
        if all(b == (0, n, 1) for b, n in zip(of_traces, extent, strict=True)):
            continue
        starts, stops, steps = zip(*of_traces, strict=True)
        if len(set(steps)) > 1:
            raise node.unsupported("whose step depends on an extent of the inputs")
        if steps[0] < 0:  # -1 is before the first element
            stops = tuple([-END if stop < 0 else stop for stop in stops])
        elif stops == extent:
            stops = (END,) * len(stops)
        chosen.append((axis, starts, stops, steps[0]))
    if not chosen:
        return x
    axes = w.store(np.asarray([axis for axis, *_ in chosen], np.int64))
    first = w.shape([starts for _, starts, _, _ in chosen], node)
    last = w.shape([stops for _, _, stops, _ in chosen], node)
    by = w.store(np.asarray([step for *_, step in chosen], np.int64))
    return w.add("Slice", x, first, last, axes, by)


def _set_slice(w: OnnxWriter, node: TracedNode, x: str, values: str) -> str:
    extents = node.inputs[0].shape
    written = {}
    for axis, bounds in enumerate(zip(*node.each("bounds"), strict=True)):
        if any(b != (0, n, 1) for b, n in zip(bounds, extents[axis], strict=True)):
            start, stop, step = _only(node, bounds)
            written[axis] = np.arange(start, stop, step)
    return _overwritten(w, node, x, values, written, dropped=())


def _set_window(w: OnnxWriter, node: TracedNode, x: str, values: str, *starts: str) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    written = {}
    for axis, extent, step, start in zip(
        axes, extents, node.attribute("steps"), node.inputs[2:], strict=True
    ):
        if start.name != "parameter" or start.varies():
            raise node.unsupported("at a position that the inputs determine")
        first = int(start.first.value) % _only(node, node.inputs[0].shape[axis])
        written[axis] = first + step * np.arange(1 if extent is None else extent)
    dropped = [axis for axis, n in zip(axes, extents, strict=True) if n is None]
    return _overwritten(w, node, x, values, written, dropped)


def _only(node: TracedNode, values: Sequence[Any]) -> Any:
    """Return what is equal in all traces."""
    if any(value != values[0] for value in values):
        raise node.unsupported("which writes to a part of an axis of variable extent")
    return values[0]


def _overwritten(
    w: OnnxWriter,
    node: TracedNode,
    x: str,
    values: str,
    written: Mapping[int, Any],
    dropped: Collection[int],
) -> str:
    """Write values at positions along some axes: a choice between them and the former elements.

    `dropped`: the axes that the values do not have.
    """
    ndim, shape = node.ndim, list(node.inputs[1].shape)
    mask = np.ones([1] * ndim, bool)
    for axis in sorted(written, reverse=True):
        after = ndim - 1 - axis
        if axis in dropped and len(shape) > after:
            place = w.store(np.asarray([-after - 1], np.int64))
            values = w.add("Unsqueeze", values, place)
            shape.insert(len(shape) - after, (1,))
        extent = _only(node, node.inputs[0].shape[axis])
        along = np.zeros(extent, bool)
        along[written[axis]] = True
        mask = mask & along.reshape([-1 if d == axis else 1 for d in range(ndim)])
        if len(shape) > after and set(shape[len(shape) - 1 - after]) != {1}:
            source = np.zeros(extent, np.int64)
            source[written[axis]] = np.arange(len(written[axis]))
            values = w.add("Gather", values, w.store(source), axis=-after - 1)
    return w.add("Where", w.store(mask), values, x)


def _window(w: OnnxWriter, node: TracedNode, x: str, *starts: str) -> str:
    axes, extents = node.attribute("axes"), node.attribute("extents")
    steps = node.attribute("steps")
    one = w.store(np.asarray([1], np.int64))
    firsts = []
    for axis, start in zip(axes, starts, strict=True):  # negative ones count from the end
        whole = w.integer(node.inputs[0].shape[axis], node)
        firsts.append(w.add("Mod", w.add("Reshape", w.cast(start, mm.int64), one), whole))
    first = w.add("Concat", *firsts, axis=0)
    counts = [1 if n is None else n for n in extents]
    reach = [step * (n - 1) + 1 for step, n in zip(steps, counts, strict=True)]
    last = w.add("Add", first, w.store(np.asarray(reach, np.int64)))
    along, by = (w.store(np.asarray(part, np.int64)) for part in (axes, steps))
    part = w.add("Slice", x, first, last, along, by)
    dropped = [axis for axis, n in zip(axes, extents, strict=True) if n is None]
    return w.add("Squeeze", part, w.store(np.asarray(dropped, np.int64))) if dropped else part


def _full(w: OnnxWriter, node: TracedNode, value: str) -> str:
    return w.add("Expand", w.cast(value, node.first.dtype), w.shape(node.shape, node))


def _positions(w: OnnxWriter, node: TracedNode) -> str:
    axis = node.attribute("axis")
    count = w.add("Squeeze", w.integer(node.shape[axis], node))
    zero, one = w.store(np.asarray(0, np.int64)), w.store(np.asarray(1, np.int64))
    line = w.cast(w.add("Range", zero, count, one), node.first.dtype)
    if node.ndim == 1:
        return line
    along = w.store(np.asarray([-1 if d == axis else 1 for d in range(node.ndim)], np.int64))
    return w.add("Expand", w.add("Reshape", line, along), w.shape(node.shape, node))


def _number(w: OnnxWriter, node: TracedNode) -> str:
    """Write a number that depends on extents: a count of elements, or the inverse of one."""
    if node.ndim:
        raise node.unsupported(
            "which is made anew in each call, from an extent of the inputs or by drawing numbers",
            f"compute it with functions of magmath, keep it in a Buffer, or {KEEP_FIXED}",
        )
    if node.name == "parameter" and None in [one.value for one in node.nodes]:
        raise MagmathError(
            "to_onnx: the module draws random numbers; write it in evaluation mode, "
            "module.eval(), or give such numbers as an input"
        )
    values = [
        one.value if node.name == "parameter" else np.asarray(mm.Array(one)).item()
        for one in node.nodes
    ]
    whole = tuple([round(v) for v in values])
    if all(float(v) == float(n) for v, n in zip(values, whole, strict=True)):
        return w.cast(w.add("Squeeze", w.integer(whole, node)), node.first.dtype)
    inverse = tuple([round(1.0 / v) if v else 0 for v in values])
    close = all(n and abs(v * n - 1.0) < 1e-6 for v, n in zip(values, inverse, strict=True))
    if not close:
        raise node.unsupported("which depends on the extents of the inputs in an unknown way")
    count = w.cast(w.add("Squeeze", w.integer(inverse, node)), node.first.dtype)
    return w.add("Reciprocal", count)


def _take(w: OnnxWriter, node: TracedNode, x: str, *indices: str) -> str:
    axes, at = node.attribute("axes"), node.attribute("at")
    if len(axes) == 1 and at == axes[0]:
        return w.add("Gather", x, indices[0], axis=axes[0])
    if axes != tuple(range(len(axes))) or at != 0:
        raise node.unsupported("with indices of axes that are not the first ones")
    shape = w.shape(node.shape[: node.ndim - node.inputs[0].ndim + len(axes)], node)
    last = w.store(np.asarray([-1], np.int64))
    columns = [w.add("Unsqueeze", w.add("Expand", i, shape), last) for i in indices]
    return w.add("GatherND", x, w.add("Concat", *columns, axis=-1))


def _take_along(w: OnnxWriter, node: TracedNode, x: str, indices: str) -> str:
    return w.add("GatherElements", x, indices, axis=node.attribute("axis"))


def _diagonal(w: OnnxWriter, node: TracedNode, x: str) -> str:
    n = np.arange(node.first.shape[-1])
    if node.inputs[0].ndim != 2 or node.varies():
        raise node.unsupported("of more than one matrix")
    return w.add("GatherND", x, w.store(np.stack([n, n], 1).astype(np.int64)))


# reductions and products ------------------------------------------------------------------------


def _sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    axes = w.store(np.asarray(node.attribute("axis"), np.int64))
    kind = node.first.dtype
    x = x if node.inputs[0].first.dtype == kind else w.cast(x, kind)
    return w.add("ReduceSum", x, axes, keepdims=int(node.attribute("keepdims")))


def _reduced(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axes = w.store(np.asarray(node.attribute("axis"), np.int64))
        keep = int(node.attribute("keepdims"))
        kind, result = node.inputs[0].first.dtype, node.first.dtype
        if kind == mm.bool and result == mm.bool:
            return w.cast(w.add(operator, w.cast(x, mm.int32), axes, keepdims=keep), mm.bool)
        x = x if kind == result else w.cast(x, result)
        return w.add(operator, x, axes, keepdims=keep)

    return emit


def _extremum(operator: str) -> Emitter:
    def emit(w: OnnxWriter, node: TracedNode, x: str) -> str:
        axis, keep = node.attribute("axis"), int(node.attribute("keepdims"))
        return w.add(operator, x, axis=axis, keepdims=keep)

    return emit


def _cumulative_sum(w: OnnxWriter, node: TracedNode, x: str) -> str:
    x = x if node.inputs[0].first.dtype == node.first.dtype else w.cast(x, node.first.dtype)
    return w.add("CumSum", x, w.store(np.asarray(node.attribute("axis"), np.int64)))


def _contract(w: OnnxWriter, node: TracedNode, *names: str) -> str:
    subscripts, kind = node.attribute("subscripts"), node.first.dtype
    given = zip(names, node.inputs, strict=True)
    cast = [name if x.first.dtype == kind else w.cast(name, kind) for name, x in given]
    if len(cast) == 2 and _is_matmul(subscripts):
        return w.add("MatMul", *cast)
    return w.add("Einsum", *cast, equation=subscripts)


def _is_matmul(subscripts: str) -> bool:
    """Return True for a product of (stacks of) matrices."""
    operands, result = subscripts.split("->")
    a, b = operands.split(",")
    if min(len(a), len(b), len(result)) < 2 or a[-1] != b[-2] or a[-1] in result:
        return False
    stack = a[:-2]
    return result == stack + a[-2] + b[-1] and b[:-2] in (stack, "")


# convolution and pooling ------------------------------------------------------------------------


def _sides(pairs: Any) -> list[int]:
    return [low for low, _ in pairs] + [high for _, high in pairs]


def _convolution(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    return w.add(
        "Conv", x, weight, pads=_sides(node.attribute("padding")),
        strides=list(node.attribute("stride")), dilations=list(node.attribute("dilation")),
        group=node.attribute("groups"), kernel_shape=list(node.inputs[1].first.shape[2:]),
    )  # fmt: skip


def _transposed(w: OnnxWriter, node: TracedNode, x: str, weight: str) -> str:
    kernel = node.inputs[1].first.shape[2:]
    pads, strides, dilations = (node.attribute(name) for name in ("padding", "stride", "dilation"))
    added = [
        made - ((n - 1) * s + d * (k - 1) + 1 - low - high)
        for made, n, s, d, k, (low, high) in zip(
            node.attribute("space"), node.inputs[0].first.shape[2:], strides, dilations, kernel,
            pads, strict=True,
        )
    ]  # fmt: skip
    return w.add(
        "ConvTranspose", x, weight, pads=_sides(pads), strides=list(strides),
        dilations=list(dilations), output_padding=added, group=node.attribute("groups"),
        kernel_shape=list(kernel),
    )  # fmt: skip


def _max_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    return _pooled(w, node, x, "MaxPool", dilations=list(node.attribute("dilation")))


def _sum_pool(w: OnnxWriter, node: TracedNode, x: str) -> str:
    if set(node.attribute("dilation")) != {1}:
        raise node.unsupported("with a dilation")
    mean = _pooled(w, node, x, "AveragePool", count_include_pad=1)
    return w.add("Mul", mean, w.number(float(prod(node.attribute("kernel"))), node))


def _pooled(w: OnnxWriter, node: TracedNode, x: str, operator: str, **options: Any) -> str:
    """Write a pooling over the last dimensions; ONNX's are those after the first two."""
    kernel = list(node.attribute("kernel"))
    before = node.ndim - len(kernel)
    if before not in (1, 2):
        raise node.unsupported(f"over {len(kernel)} of {node.ndim} dimensions")
    one = w.store(np.asarray([1], np.int64))
    images = x if before == 2 else w.add("Unsqueeze", x, one)
    made = w.add(
        operator, images, kernel_shape=kernel, strides=list(node.attribute("stride")),
        pads=_sides(node.attribute("padding")), **options,
    )  # fmt: skip
    return made if before == 2 else w.add("Squeeze", made, one)


def _sort(w: OnnxWriter, node: TracedNode, x: str, result: int) -> str:
    axis = node.attribute("axis")
    count = w.integer(node.inputs[0].shape[axis], node)
    largest = int(node.attribute("descending"))
    return w.add_several("TopK", 2, x, count, axis=axis, largest=largest)[result]


EMITTERS: dict[str, Emitter] = {
    "abs": _same("Abs"), "acos": _same("Acos"), "acosh": _same("Acosh"), "add": _same("Add"),
    "asin": _same("Asin"), "asinh": _same("Asinh"), "atan": _same("Atan"),
    "atanh": _same("Atanh"), "ceil": _same("Ceil"), "cos": _same("Cos"), "cosh": _same("Cosh"),
    "equal": _same("Equal"), "erf": _same("Erf"), "exp": _same("Exp"), "floor": _same("Floor"),
    "greater": _same("Greater"), "greater_equal": _same("GreaterOrEqual"),
    "isnan": _same("IsNaN"), "isinf": _same("IsInf"), "isfinite": _finite,
    "less": _same("Less"), "less_equal": _same("LessOrEqual"), "log": _same("Log"),
    "logical_and": _same("And"), "logical_not": _same("Not"), "logical_or": _same("Or"),
    "logical_xor": _same("Xor"), "maximum": _largest, "minimum": _same("Min"),
    "multiply": _same("Mul"), "negative": _same("Neg"), "power": _same("Pow"),
    "reciprocal": _same("Reciprocal"), "relu": _same("Relu"), "round": _same("Round"),
    "sign": _same("Sign"), "sin": _same("Sin"), "sinh": _same("Sinh"), "sqrt": _same("Sqrt"),
    "root": _same("Sqrt"), "subtract": _same("Sub"), "tan": _same("Tan"), "tanh": _same("Tanh"),
    "where": _chosen, "stop_gradient": _same("Identity"), "clamp_max": _same("Min"),
    "clamp_min": _same("Max"), "remainder": _remainder, "fmod": _same("Mod", fmod=1),
    "bitwise_and": _bitwise("And", "BitwiseAnd"), "bitwise_or": _bitwise("Or", "BitwiseOr"),
    "bitwise_xor": _bitwise("Xor", "BitwiseXor"), "bitwise_invert": _bitwise("Not", "BitwiseNot"),
    "bitwise_left_shift": _same("BitShift", direction="LEFT"),
    "bitwise_right_shift": _same("BitShift", direction="RIGHT"),
    "square": lambda w, node, x: w.add("Mul", x, x),
    "not_equal": _not_equal, "divide": _divide, "floor_divide": _floor_divide,
    "log2": _logarithm(2.0), "log10": _logarithm(10.0), "expm1": _expm1, "log1p": _log1p,
    "erfc": _erfc, "trunc": _truncated, "logaddexp": _log_of_sum, "hypot": _hypotenuse,
    "affine": _affine, "astype": _astype,
    "reshape": _reshape, "permute_dims": _permute, "broadcast_to": _broadcast,
    "concat": _concat, "slice": _slice, "set_slice": _set_slice, "window": _window,
    "set_window": _set_window, "full": _full,
    "iota": _positions, "parameter": _number, "input": _number, "take": _take,
    "take_along": _take_along,
    "diagonal": _diagonal, "sum": _sum, "prod": _reduced("ReduceProd"),
    "max": _reduced("ReduceMax"), "min": _reduced("ReduceMin"), "any": _reduced("ReduceMax"),
    "all": _reduced("ReduceMin"), "argmax": _extremum("ArgMax"), "argmin": _extremum("ArgMin"),
    "cumulative_sum": _cumulative_sum, "contract": _contract, "correlation": _convolution,
    "correlation_input": _transposed, "max_pool": _max_pool, "sum_pool": _sum_pool,
    "sort": lambda w, node, x: _sort(w, node, x, 0),
    "argsort": lambda w, node, x: _sort(w, node, x, 1),
    "det": _same("Det"),
}  # fmt: skip
