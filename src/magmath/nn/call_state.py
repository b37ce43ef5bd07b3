"""The calls of modules in progress, for each thread of the user's program."""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any, NamedTuple, final

from magmath.core.scoped_value import ScopedValue

ForwardHook = Callable[[object, Any], None]
"""A function of the called module and its outputs."""


@final
class Materialization(NamedTuple):
    """An attribute of a module that a call makes a variable of.

    deferred  its former value, the placeholder
    was_made  True if the variable exists already, as that of another attribute that shares it
    """

    module: object
    name: str
    deferred: Any
    was_made: bool


@final
class CallState(local):
    """The calls of modules of the current thread; other threads have their own.

    modules         the modules whose calls are active, the innermost one last: what these store in
                    attributes, such as their last output, is no setting of the user
    hooks           the hooks of the contexts that are open, see `forward_hooks.py`
    abstract_calls  the number of active calls with abstract inputs, see `abstract.py`
    materialized    the attributes that the outermost call has made variables of
    forced_modes    the identities of the modules of active `Module.mode` blocks, in which the mode
                    of these does not depend on their state
    """

    def __init__(self) -> None:
        self.modules: tuple[object, ...] = ()
        self.hooks = ScopedValue[tuple[ForwardHook, ...]](())
        self.abstract_calls = 0
        self.materialized: list[Materialization] = []
        self.forced_modes = ScopedValue(frozenset[int]())


CALLS = CallState()
