"""What public functions make of an element-wise operation, as its record says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFunction:
    """The public function of an operation (`api/elementwise.py`).

    summary           the first line of the function's documentation; empty if the function is
                      written out, or if the operation serves others only
    is_of_floats      takes floating point numbers only: public functions convert integers
    of_bools          how public functions compute truth values, if not by the operation: "int8" (as
                      small integers), "unchanged" (return them), or the name of another operation
    is_associative    f(f(x, y), z) is f(x, f(y, z)), so that a reduction may combine halves
    identity          the operand with which the result is the other operand, or None
    """

    summary: str = ""
    is_of_floats: bool = False
    of_bools: str = ""
    is_associative: bool = False
    identity: complex | None = None


NOT_PUBLIC: Final = PublicFunction()
