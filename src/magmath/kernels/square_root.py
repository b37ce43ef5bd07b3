"""Square roots as IEEE 754 rounds them, on all threads of a worker.

NumPy and compiled loops round square roots so; those of torch differ in the last bit for a sixth of
all float32 numbers. A result must not depend on how often a program has run before, which decides
whether it is compiled (`executor/tiers.py`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from magmath.codegen.aot_cache import AotModule
from magmath.codegen.background_build import is_code_ready
from magmath.core.type_aliases import BoundCall
from magmath.kernels.parallel_region import bind_job

MIN_DIVIDED: Final = 1 << 15
"""Elements from which threads are worth the time to start them."""
PARTS: Final = 16
JOB: Final = ("x", "y", "count", "parts", "next_part")
"""The argument of the exported functions: two addresses, the number of elements, the number of
parts, and the counter of those that are taken; 64-bit words."""

_SOURCE: Final = '''
def roots{where}_{T}(record: int64):
    """Compute one thread's share of y = √x, or of y = √y."""
    job: int64[1] = record
    x: {T}[1] = job[X]
    y: {T}[1] = job[Y]
    part = fetch_add(job, NEXT_PART, 1)
    while part < job[PARTS]:
        last = quotient((part + 1) * job[COUNT], job[PARTS])
        for i in range(quotient(part * job[COUNT], job[PARTS]), last):
            y[i] = np.sqrt({operand}[i])
        part = fetch_add(job, NEXT_PART, 1)
'''
_FORMS: Final = {"": "x", "_in_place": "y"}
"""The operand of each form: a loop that reads and writes through one address is vectorized, and one
through two equal addresses is not."""
_TYPES: Final = {torch.float32: "float32", torch.float64: "float64"}
_FUNCTIONS: Final = {
    f"roots{where}_{dtype}": _SOURCE.format(where=where, T=dtype, operand=operand)
    for where, operand in _FORMS.items()
    for dtype in _TYPES.values()
}
CODE: Final = AotModule(
    "".join(_FUNCTIONS.values()),
    tuple(_FUNCTIONS),
    constants={name.upper(): i for i, name in enumerate(JOB)},
)
"""The compiled functions."""


def code() -> AotModule:
    """Return the code, for the compiler in the background."""
    return CODE


def can_compute(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Return True for float32 and float64 numbers on the processor."""
    return x.device.type == "cpu" and x.dtype == out.dtype and x.dtype in _TYPES


def bind(x: torch.Tensor, out: torch.Tensor) -> BoundCall:
    """Return a bound call that stores the square roots of x in `out`, which may be x.

    Needs operands that `can_compute` accepts; must run without NumPy's floating-point warnings.
    """
    contiguous = x.is_contiguous() and out.is_contiguous() and x.shape == out.shape
    divided = contiguous and x.numel() >= MIN_DIVIDED and torch.get_num_threads() > 1
    if not (divided and is_code_ready(code)):
        values, results = x.numpy(), out.numpy()
        return lambda: np.sqrt(values, out=results)
    count, in_place = x.numel(), x.data_ptr() == out.data_ptr()
    words = [x.data_ptr(), out.data_ptr(), count, PARTS, 0]
    function = CODE.address(f"roots{'_in_place' if in_place else ''}_{_TYPES[x.dtype]}")
    return bind_job(function, words, JOB.index("next_part"), (x, out))
