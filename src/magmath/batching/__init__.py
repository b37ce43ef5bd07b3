"""Batching of expressions, for `vmap`: from the expression of one example to that of a batch."""

from magmath.batching.batch import batched
from magmath.batching.operand import BatchOperand

__all__ = ["BatchOperand", "batched"]
