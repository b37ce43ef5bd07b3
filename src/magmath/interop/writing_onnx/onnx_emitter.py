"""The type of emitters: an emitter is the function that writes an operation as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Emitter = Callable[..., str]
"""A function of the writer, the node, and the names of its operands; it returns the name of the
result."""

END = np.iinfo(np.int64).max


def same_as(operator: str, **attributes: Any) -> Emitter:
    """Return the emitter of an operation that ONNX has too."""
    return lambda w, node, *names: w.add(operator, *names, **attributes)
