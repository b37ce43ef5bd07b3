"""Differentiation: gradients as graphs of the same operations."""

from magmath.autodiff.independence import is_independent
from magmath.autodiff.reverse_mode import gradients

__all__ = ["gradients", "is_independent"]
