"""How messages show a value that a function was given."""

from __future__ import annotations


def shown(value: object) -> str:
    """Return an array by its shape, and any other object as `repr` does."""
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if isinstance(shape, tuple) and shape else repr(value)
