"""JSON text of plain data, as commands print it and as files store results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(data: Any) -> str:
    """Return plain data as JSON. Numbers that are not finite, which JSON does not have, are
    null."""
    return json.dumps(_without_infinities(data), indent=1, allow_nan=False)


def _without_infinities(data: Any) -> Any:
    """Return data with None instead of infinities and NaN."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _without_infinities(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_infinities(value) for value in data]
    return data
