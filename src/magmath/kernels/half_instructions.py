"""Determines the half types for which the processor has instructions."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def multiplies(x: torch.Tensor) -> bool:
    """Return False for half types for which oneDNN has no instructions on this processor.

    torch's products and convolutions of such types are loops over single elements, at a hundredth
    of the rate of float32.
    """
    if x.device.type != "cpu" or x.dtype not in _SUPPORTED:
        return True
    return _is_supported(x.dtype)


_SUPPORTED = {
    torch.float16: "_is_mkldnn_fp16_supported",
    torch.bfloat16: "_is_mkldnn_bf16_supported",
}


@cache
def _is_supported(dtype: torch.dtype) -> bool:
    known: Any = getattr(torch.ops.mkldnn, _SUPPORTED[dtype], None)
    return known is not None and bool(known())
