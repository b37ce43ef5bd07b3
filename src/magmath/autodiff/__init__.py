"""Differentiation: gradients as graphs of the same operations."""

from magmath.autodiff.reverse_mode import gradients

__all__ = ["gradients"]
