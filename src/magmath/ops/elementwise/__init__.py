"""The element-wise operations: their records, and the functions that apply them to nodes."""

from magmath.ops.elementwise.identities import ARGUMENT, STOP_GRADIENT
from magmath.ops.elementwise.node_functions import (
    OPERATIONS,
    add,
    astype,
    call,
    conj,
    multiply,
    negative,
    real,
    sqrt,
    squared_sizes,
    subtract,
    where,
)
from magmath.ops.elementwise.selection import WHERE
from magmath.ops.elementwise.tables import BINARY, FLOATING, LOGICAL, OF_BOOLS, PARTS, ROWS, UNARY
from magmath.ops.elementwise.type_conversion import ASTYPE, check_imaginary_part
from magmath.ops.elementwise.weak_scalar import WeakScalar

OPERATIONS.update(
    {record.name: record for record in (*ROWS, WHERE, ASTYPE, STOP_GRADIENT, ARGUMENT)}
)

__all__ = [
    "ARGUMENT",
    "ASTYPE",
    "BINARY",
    "FLOATING",
    "LOGICAL",
    "OF_BOOLS",
    "OPERATIONS",
    "PARTS",
    "STOP_GRADIENT",
    "UNARY",
    "WHERE",
    "WeakScalar",
    "add",
    "astype",
    "call",
    "check_imaginary_part",
    "conj",
    "multiply",
    "negative",
    "real",
    "sqrt",
    "squared_sizes",
    "subtract",
    "where",
]
