"""Paragraphs that the docstrings of several functions have in common."""

from __future__ import annotations

from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def with_paragraph(function: F, text: str) -> F:
    """Return the function, with a paragraph appended to its docstring."""
    if function.__doc__ is not None:  # `python -OO` removes docstrings
        function.__doc__ = f"{cleandoc(function.__doc__)}\n\n{cleandoc(text)}"
    return function
