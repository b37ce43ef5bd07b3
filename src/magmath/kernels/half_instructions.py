"""The half types for which the processor has instructions."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def has_instructions(x: torch.Tensor) -> bool:
    """Return False for half types for which oneDNN has no instructions on this processor.

    torch's products and convolutions of such types are loops over single elements, at a hundredth
    of the rate of float32.
    """
    if x.device.type != "cpu" or x.dtype not in _QUERIES:
        return True
    return _is_supported(x.dtype)


_QUERIES = {  # the operators of torch that return whether a type has instructions
    torch.float16: "_is_mkldnn_fp16_supported",
    torch.bfloat16: "_is_mkldnn_bf16_supported",
}


@cache
def _is_supported(dtype: torch.dtype) -> bool:
    query: Any = getattr(torch.ops.mkldnn, _QUERIES[dtype], None)
    return query is not None and bool(query())
