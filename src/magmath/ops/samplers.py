"""Random numbers whose distribution has parameters: gamma, Poisson, binomial and others.

Like uniform and normal numbers, each is a function of seed, stream and global index, so a worker
computes its own tile. A parameter is a 0-d node or one of the shape of the result, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from magmath.core.dtypes import DType, float64, int64
from magmath.core.parameter_ranges import LARGEST, MAX_ITEMS, MIN_EXPONENT, ParameterRange
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, GradientError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.graph.operation import CheckedOperands, Infer, Kernel
from magmath.ops.index_letters import LETTERS
from magmath.ops.leaves import constant
from magmath.ops.shared_fields import no_gradient


def _infer(name: str, counts: bool, ranges: tuple[ParameterRange, ...]) -> Infer:
    def infer(
        seed: Node, stream: Node, *parameters: Node, shape: Shape, dtype: DType
    ) -> tuple[Shape, DType]:
        assert len(parameters) == len(ranges), name
        if not (dtype is int64 if counts else dtype.is_floating):
            kind = "int64" if counts else "real floating types"
            raise DTypeError(f"{name}: makes {kind}, was given {dtype}")
        for node in parameters:
            if node.dtype is not float64:
                raise DTypeError(f"{name}: parameters are float64, was given {node.dtype}")
            if node.shape not in ((), shape):
                raise ShapeError(f"{name}: a parameter has shape {node.shape}, the result {shape}")
        return shape, dtype

    return infer


def _axes(node: Node) -> str:
    """Return index notation: any dimension may be split; parameters are 0-d, or split like it."""
    letters = LETTERS[: node.ndim]
    return f"{','.join(letters if x.ndim else '' for x in node.inputs)}->{letters}"


def _kernel(sampler: str, ranges: tuple[ParameterRange, ...]) -> Kernel:
    def bind(call: KernelCall) -> BoundCall:
        from magmath.kernels.random import samplers

        (seed, stream, *parameters), out, tile, shape = call.inputs, call.out, call.tile, call.shape
        return lambda: samplers.fill(
            sampler, out, parameters, ranges, tile, shape, int(seed), int(stream)
        )

    return bind


def _reference(sampler: str, ranges: tuple[ParameterRange, ...]) -> Callable[..., Any]:
    """Return a reference that runs the generator on the whole array; NumPy has no such stream."""

    def reference(seed: Any, stream: Any, *parameters: Any, shape: Shape, dtype: DType) -> Any:
        import torch

        from magmath.core.index_set import IndexSet
        from magmath.kernels.random import samplers
        from magmath.memory.torch_dtypes import to_torch

        out = torch.empty(shape, dtype=to_torch(dtype))
        tile = tuple(IndexSet.range(0, extent) for extent in shape)
        tensors = [torch.as_tensor(x) for x in parameters]
        samplers.fill(sampler, out, tensors, ranges, tile, shape, int(seed), int(stream))
        return (out.float() if dtype.name == "bfloat16" else out).numpy()

    return reference


def _checked(ranges: tuple[ParameterRange, ...]) -> CheckedOperands:
    """Return the parameters; one out of its range makes a distribution fail (OptionError)."""
    first = 2  # after the seed and the stream
    return CheckedOperands(
        positions=lambda node: range(first, len(node.inputs)),
        harmless=lambda node, i: constant(ranges[i - first].low, float64),
        check=lambda node, i: ranges[i - first].check,
    )


def _no_derivative(node: Node, cotangent: Node) -> NoReturn:
    raise GradientError(
        "random: there is no gradient with respect to the shape of gamma numbers or the kappa of "
        "vonmises, nor to the parameters of distributions that are made of gamma numbers; wrap the "
        "parameters in mm.stop_gradient"
    )


def _sampler(
    sampler: str, flops: float, *ranges: ParameterRange, counts: bool = False
) -> Operation:
    """Return the record of a distribution; `counts`: its numbers are integers, without gradient."""
    name = f"random_{sampler}"
    return Operation(
        name=name,
        infer=_infer(name, counts, ranges),
        axes=_axes,
        reduction=None,
        vjp=no_gradient if counts else _no_derivative,
        kernel=_kernel(sampler, ranges),
        native=None,
        reference=_reference(sampler, ranges),
        checked=_checked(ranges),
        is_random=True,
        flops=lambda node: flops * node.size,
    )


SHAPE = ParameterRange("gamma", "shape", 0, LARGEST)
LAM = ParameterRange("poisson", "lam", 0, LARGEST)
TRIALS = ParameterRange("binomial", "n", 0, LARGEST)
PROBABILITY = ParameterRange("binomial", "p", 0, 1)
ITEMS = {
    name: ParameterRange("hypergeometric", name, 0, MAX_ITEMS)
    for name in ("ngood", "nbad", "nsample")
}
EXPONENT = ParameterRange("zipf", "a", MIN_EXPONENT, LARGEST)
CONCENTRATION = ParameterRange("vonmises", "kappa", 0, LARGEST)

GAMMA = _sampler("gamma", 200, SHAPE)
LOG_GAMMA = _sampler("log_gamma", 200, SHAPE)
POISSON = _sampler("poisson", 150, LAM, counts=True)
BINOMIAL = _sampler("binomial", 200, TRIALS, PROBABILITY, counts=True)
HYPERGEOMETRIC = _sampler("hypergeometric", 200, *ITEMS.values(), counts=True)
ZIPF = _sampler("zipf", 150, EXPONENT, counts=True)
VONMISES_COSINE = _sampler("vonmises_cosine", 200, CONCENTRATION)

OPERATIONS = {
    operation.name: operation
    for operation in (
        GAMMA, LOG_GAMMA, POISSON, BINOMIAL, HYPERGEOMETRIC, ZIPF, VONMISES_COSINE,
    )
}  # fmt: skip
