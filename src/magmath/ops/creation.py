"""Created arrays: filled, counted and random, the same for every layout and worker count.

Each element is computed from its global index, so a worker computes its own tile and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.codegen.emit import Emitter, NativeCall, Writer
from magmath.core.dtypes import DType, int64
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, Operation, Shape, apply, apply_to
from magmath.graph.operation import Kernel, Line
from magmath.ops.index_letters import LETTERS
from magmath.ops.kernel_binding import by_reference, copy_kernel
from magmath.ops.shared_fields import is_always_exact, no_gradient
from magmath.ops.sums import sum_
from magmath.ops.type_rules import numpy_name


def _infer_created(*_: Node, shape: Shape, dtype: DType, **__: Any) -> tuple[Shape, DType]:
    return shape, dtype


def _created_axes(node: Node) -> str:
    """Return index notation: operands are 0-d, any dimension of the result may be split."""
    return f"{','.join('' for _ in node.inputs)}->{LETTERS[: node.ndim]}"


def _element_flops(node: Node) -> float:
    return 1.0 * node.size


def _emit_full(w: Writer, call: NativeCall) -> None:
    with w.loops(call.out.shape) as indices:
        w.line(f"{call.out.at(indices)} = {call.inputs[0].at([])}")


FULL = Operation(
    name="full",
    infer=_infer_created,
    axes=_created_axes,
    reduction=None,
    vjp=lambda node, g: (sum_(g),),
    kernel=copy_kernel,
    native=_emit_full,
    reference=lambda value, *, shape, dtype: np.full(shape, value),
    numpy_function=lambda node: lambda value, out: np.copyto(out, value),
    flops=_element_flops,
    has_same_bits=is_always_exact,
)


def full(shape: Shape, value: Node, line: Line = None) -> Node:
    """Return an array filled with the value of a 0-d node."""
    return apply_to(FULL, (value,), line, {"shape": shape, "dtype": value.dtype})


def _iota_kernel(call: KernelCall) -> BoundCall:
    import torch

    out, axis = call.out, call.attributes["axis"]
    index = torch.as_tensor(call.tile[axis].indices(), device=out.device).to(out.dtype)
    index = index.reshape([-1 if d == axis else 1 for d in range(out.ndim)])
    return lambda: out.copy_(index)


def _emit_iota(w: Writer, call: NativeCall) -> None:
    axis = call.attributes["axis"]
    with w.loops(call.out.shape) as indices:
        value = f"{indices[axis]} + {call.number(call.tile[axis].start)}"
        w.line(f"{call.out.at(indices)} = {value}")


def _iota_reference(*, shape: Shape, dtype: DType, axis: int) -> Any:
    index = np.arange(shape[axis], dtype=numpy_name(dtype))
    return np.broadcast_to(
        index.reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape
    )


IOTA = Operation(
    name="iota",
    infer=_infer_created,
    axes=_created_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_iota_kernel,
    native=_emit_iota,
    reference=_iota_reference,
    numpy_function=by_reference,
    flops=_element_flops,
)


def iota(shape: Shape, axis: int, dtype: DType = int64) -> Node:
    """Return an array of each element's global index along one axis."""
    return apply(IOTA, shape=shape, dtype=dtype, axis=axis)


# random numbers: Philox by global index; operands are the 0-d nodes of the seed and the stream ----


def _random_kernel(fill: str) -> Kernel:
    def bind(call: KernelCall) -> BoundCall:
        from magmath.kernels.random import philox

        (seed, stream), out, tile, shape = call.inputs, call.out, call.tile, call.shape
        function = getattr(philox, fill)
        if seed.is_cuda:  # the host does not wait for the numbers
            return lambda: function(out, tile, shape, seed, stream)
        return lambda: function(out, tile, shape, int(seed), int(stream))

    return bind


def _random_reference(fill: str) -> Callable[..., Any]:
    """Return a reference that runs the generator on the whole array; NumPy has no such stream."""

    def reference(seed: Any, stream: Any, *, shape: Shape, dtype: DType) -> Any:
        import torch

        from magmath.core.index_set import IndexSet
        from magmath.kernels.random import philox
        from magmath.memory.torch_dtypes import to_torch

        out = torch.empty(shape, dtype=to_torch(dtype))
        tile = tuple(IndexSet.range(0, extent) for extent in shape)
        getattr(philox, fill)(out, tile, shape, int(seed), int(stream))
        return (out.float() if dtype.name == "bfloat16" else out).numpy()

    return reference


def _emit_uniform(w: Writer, call: NativeCall) -> bool:
    """Write one Philox number per element, computed from its global index in C order."""
    if call.out.dtype.name != "float32":
        return False
    seed, stream = call.inputs
    with w.loops(call.out.shape) as indices:
        linear = "0"
        for index, stored_indices, extent in zip(indices, call.tile, call.shape, strict=True):
            linear = f"({linear}) * {extent} + {index} + {call.number(stored_indices.start)}"
        w.line(f"{call.out.at(indices)} = uniform32({seed.at([])}, {stream.at([])}, {linear})")
    return True


def _random(name: str, fill: str, native: Emitter | None, flops: float) -> Operation:
    return Operation(
        name=name,
        infer=_infer_created,
        axes=_created_axes,
        reduction=None,
        vjp=no_gradient,
        kernel=_random_kernel(fill),
        native=native,
        reference=_random_reference(fill),
        is_random=True,
        flops=lambda node: flops * node.size,
    )


UNIFORM = _random("random_uniform", "fill_uniform", _emit_uniform, 20)
NORMAL = _random("random_normal", "fill_normal", None, 60)
EXPONENTIAL = _random("random_exponential", "fill_exponential", None, 40)
BITS = _random("random_bits", "fill_bits", None, 20)


def _permutation_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.random import philox

    (seed, stream), out = call.inputs, call.out
    count, below = call.shape[0], call.attributes["below"]
    return lambda: out.copy_(philox.permutation(count, below, int(seed), int(stream)))


def _permutation_reference(
    seed: Any, stream: Any, *, shape: Shape, dtype: DType, below: int
) -> Any:
    from magmath.kernels.random import philox

    return philox.permutation(shape[0], below, int(seed), int(stream)).numpy()


PERMUTATION = Operation(  # the first of 0 … below-1 in random order; each worker draws all of them
    name="random_permutation",
    infer=_infer_created,
    axes=lambda node: ",->.",
    reduction=None,
    vjp=no_gradient,
    kernel=_permutation_kernel,
    native=None,
    reference=_permutation_reference,
    is_random=True,
    flops=lambda node: 40.0 * node.size,
)

OPERATIONS = {
    operation.name: operation
    for operation in (FULL, IOTA, UNIFORM, NORMAL, EXPONENTIAL, BITS, PERMUTATION)
}
