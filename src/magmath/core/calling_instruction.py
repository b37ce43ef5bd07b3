"""The instruction of Python's bytecode that called a function.

Reference counts show whether an operand of `x[i] = v` or `x[i] += v` has a name, but an explicit
call such as `x.__iadd__(v)` passes operands with one reference less.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import Final

from magmath.core.bounded_memo import store_bounded

ITEM_WRITES: Final = frozenset(
    [dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap]
)
"""The instructions of `x[i] = v`; Python 3.12 has another one for slices."""
BINARY: Final = dis.opmap["BINARY_OP"]
_MAX_INSTRUCTIONS = 4096
_known: dict[tuple[int, int], tuple[CodeType, int]] = {}  # by code (kept alive) and position


def calling_instruction(depth: int) -> int:
    """Return the bytecode that the frame `depth` levels above the caller is executing."""
    frame = sys._getframe(depth + 1)
    code, position = frame.f_code, frame.f_lasti
    key = id(code), position
    entry = _known.get(key)
    if entry is None:
        entry = store_bounded(_known, key, (code, code.co_code[position]), _MAX_INSTRUCTIONS)
    return entry[1]
