"""Triton kernels of element-wise expressions: source, and compilation in the background.

A kernel computes several operations for each element of one shape; values that only other
operations of the kernel read stay in registers. Each operation is rounded by itself, by the
functions that torch's own kernels use, so that results have the bits of these.
"""

from __future__ import annotations

import linecache
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from hashlib import sha256
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, final

import torch

logger = logging.getLogger(__name__)
THREADS: Final = 2
"""Threads that compile."""
BLOCK: Final = 1024
"""Elements that one program of the grid computes."""

_HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel({names}, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
{body}
"""

TYPES: Final[Mapping[str, str]] = {
    "float32": "tl.float32",
    "float64": "tl.float64",
    "int32": "tl.int32",
    "int64": "tl.int64",
    "bool": "tl.int1",
}
"""The types that kernels compute, in Triton."""

_FLOATS: Final[Mapping[str, str]] = {
    "negative": "({0} * -1.0)",
    "abs": "tl.abs({0})",
    "square": "({0} * {0})",
    "exp": "libdevice.exp({0})",
    "expm1": "libdevice.expm1({0})",
    "log": "libdevice.log({0})",
    "log1p": "libdevice.log1p({0})",
    "sin": "libdevice.sin({0})",
    "cos": "libdevice.cos({0})",
    "tanh": "libdevice.tanh({0})",
    "erf": "libdevice.erf({0})",
    "floor": "libdevice.floor({0})",
    "ceil": "libdevice.ceil({0})",
    "relu": "tl.where({0} <= 0, 0.0, {0})",
    "where_positive": "tl.where({1} <= 0, 0.0, {0})",
    "affine": "(({0} - {1}) * {2} + {3})",
}
_NUMBERS: Final[Mapping[str, str]] = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "clamp_min": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "clamp_max": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "stop_gradient": "{0}",
}
_COMPARISONS: Final[Mapping[str, str]] = {
    "equal": "({0} == {1})",
    "not_equal": "({0} != {1})",
    "less": "({0} < {1})",
    "less_equal": "({0} <= {1})",
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
}
_TRUTHS: Final[Mapping[str, str]] = {
    "logical_and": "({0} & {1})",
    "logical_or": "({0} | {1})",
    "logical_xor": "({0} ^ {1})",
    "logical_not": "({0} == 0)",
}
_ROUNDED: Final[Mapping[str, Mapping[str, str]]] = {
    "float32": {
        "divide": "tl.div_rn({0}, {1})",
        "reciprocal": "tl.div_rn(1.0, {0})",
        "sigmoid": "tl.div_rn(1.0, 1.0 + libdevice.exp({0} * -1.0))",
        "sqrt": "tl.sqrt_rn({0})",
        "root": "tl.sqrt_rn({0})",
    },
    "float64": {
        "divide": "({0} / {1})",
        "reciprocal": "(1.0 / {0})",
        "sigmoid": "(1.0 / (1.0 + libdevice.exp({0} * -1.0)))",
        "sqrt": "tl.sqrt({0})",
        "root": "tl.sqrt({0})",
    },
}
"""Operations that Triton rounds to nearest by a function for each type: `/` of float32 has errors
of up to 2 ulp."""


def expression(operation: str, result: str, operands: Sequence[str]) -> str | None:
    """Return the expression of an operation with these types of result and operands, in which {0}
    is the first operand; None if a kernel does not compute it."""
    if not {result, *operands} <= TYPES.keys():
        return None
    is_uniform = all(kind == result for kind in operands)
    if result in _ROUNDED and is_uniform:
        of_float = _ROUNDED[result].get(operation) or _FLOATS.get(operation)
        if of_float is not None:
            return of_float
    if operation in _NUMBERS and result != "bool" and is_uniform:
        return _NUMBERS[operation]
    if operation in _COMPARISONS and result == "bool" and len({*operands}) == 1:
        return _COMPARISONS[operation]
    if operation in _TRUTHS and result == "bool" and is_uniform:
        return _TRUTHS[operation]
    if operation == "where" and operands[0] == "bool" and {*operands[1:]} == {result}:
        return "tl.where({0}, {1}, {2})"
    if operation == "astype" and "bool" not in (result, *operands):
        return "({0}).to(" + TYPES[result] + ")"
    return None


@final
class TritonKernel:
    """A kernel that is compiled in the background; `names` are its pointers, in order."""

    def __init__(self, names: Sequence[str], lines: Sequence[str]) -> None:
        body = "\n".join([f"    {line}" for line in lines])
        self.source = _HEAD.format(names=", ".join(names), body=body)
        self._built: Future[Any] | None = None

    def build(self, tensors: Sequence[torch.Tensor], count: int) -> None:
        """Start the compilation for tensors of these types."""
        if self._built is None:
            self._built = Future()
            _jobs().put((self._built, partial(_compiled, self.source, [*tensors], count)))

    def is_ready(self) -> bool:
        """Return True once it is compiled, or has failed."""
        return self._built is not None and self._built.done()

    def launch(self, tensors: Sequence[torch.Tensor], count: int) -> None:
        """Compute `count` elements. Raises the error of the compiler if it has failed."""
        assert self._built is not None
        function = self._built.result()
        function[(-(-count // BLOCK),)](*tensors, count, BLOCK=BLOCK, **_options())


def _compiled(source: str, tensors: Sequence[torch.Tensor], count: int) -> Any:
    """Return the compiled function of a source, of which Triton wants the lines."""
    name = f"<magmath kernel {sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, name, "exec", dont_inherit=True), names)
    function = names["kernel"]
    if tensors[0].is_cuda:
        with torch.cuda.device(tensors[0].device):
            function.warmup(*tensors, count, BLOCK=BLOCK, grid=(1,), **_options())
    return function


@cache
def _options() -> dict[str, Any]:
    """Return the options of kernels that round as torch's do: no contraction, and denormal numbers
    in the functions of libdevice."""
    options: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
    try:
        from triton.backends.nvidia.compiler import CUDAOptions
    except ImportError:
        return options
    if "enable_reflect_ftz" in getattr(CUDAOptions, "__dataclass_fields__", {}):
        options["enable_reflect_ftz"] = False
    return options


@cache
def _jobs() -> SimpleQueue[tuple[Future[Any], Callable[[], Any]]]:
    """Return the queue of compilations, which threads take that end with the process."""
    jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
    for number in range(THREADS):
        name = f"magmath-triton-{number}"
        Thread(target=_build, args=(jobs,), name=name, daemon=True).start()
    return jobs


def _build(jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
    while True:
        future, job = jobs.get()
        try:
            future.set_result(job())
        except BaseException as error:  # whose frames hold tensors
            logger.info("a fused kernel is not compiled: %s", error)
            future.set_exception(error.with_traceback(None))
        del future, job
