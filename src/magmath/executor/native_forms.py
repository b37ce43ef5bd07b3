"""The native forms of a program, which its bindings share.

A form depends on which arrays of a binding are the same, not on their addresses, so bindings with
equal signatures have one, and a program that runs on new arrays writes no source again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, final

from magmath.executor.bind import Binding
from magmath.executor.native import write_loop, write_segments
from magmath.executor.native_segments import NativeSegments
from magmath.executor.native_source import NativeSource

MAX_FORMS = 4
"""Maximum number of forms of a program; bindings with other signatures have none."""

Form = TypeVar("Form")


@final
class NativeForms:
    """The native forms of a program on one worker, or on one lane of it.

    With `exact`, each operation is rounded by itself, and only instructions whose native form gives
    the bits of their kernel are in segments.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._loops: dict[Hashable, NativeSource | None] = {}
        self._segments: dict[Hashable, NativeSegments | None] = {}

    def loop(self, binding: Binding) -> NativeSource | None:
        """Return the native form of the whole loop; None if an instruction has none."""
        return _stored(self._loops, binding, self._written_loop)

    def segments(self, binding: Binding) -> NativeSegments | None:
        """Return the segments, whose compilation begins at the first call; None if there are
        none."""
        return _stored(self._segments, binding, self._written_segments)

    def has_compiled_segments(self) -> bool:
        """Return True if segments are compiled."""
        return any(form is not None and form.is_ready() for form in self._segments.values())

    def close(self) -> None:
        """Stop the compilations."""
        for form in self._segments.values():
            if form is not None:
                form.close()
        self._segments.clear()

    def _written_loop(self, binding: Binding) -> NativeSource | None:
        return write_loop(binding.tensors.program, binding.tensors)

    def _written_segments(self, binding: Binding) -> NativeSegments | None:
        source = write_segments(binding.tensors.program, binding.tensors, exact=self._exact)
        return None if source is None else NativeSegments(source, exact=self._exact)


def _stored(
    forms: dict[Hashable, Form | None], binding: Binding, write: Callable[[Binding], Form | None]
) -> Form | None:
    if binding.signature not in forms and len(forms) < MAX_FORMS:
        forms[binding.signature] = write(binding)
    return forms.get(binding.signature)
