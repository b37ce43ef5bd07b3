"""On-disk cache of ahead-of-time compiled functions in the compiler's language.

The cache key of the object code is a hash of all its inputs. The first process that needs a
function compiles its source, in less than a second; other processes wait and load the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

from magmath.codegen.object_cache import OBJECTS, cache_key, sources_with_imports
from magmath.core.module_locks import module_lock
from magmath.core.type_aliases import BoundCall

if TYPE_CHECKING:
    from magmath.codegen.compiler import ExternalSignatures, IrFunctions
    from magmath.codegen.object_loader import LoadedObject

LOOK_SECONDS = 1.0
_LOAD_LOCK = module_lock(__name__, "_LOAD_LOCK")
"""Threads share loaded code. Code may load other code."""


@final
class AotModule:
    """A source whose functions are callable from Python, and by address.

    exports     the exported functions
    constants   named integers in the source
    external    external functions by name, as for `codegen/compiler.py`
    ir_modules  modules whose `IR_FUNCTIONS` are written in LLVM IR, and whose `CONSTANTS` are
                named numbers for the callers of these
    arithmetic  the permitted floating-point optimizations (`codegen/values.py`)
    prepare     called before the code is loaded; registers the external symbols
    """

    def __init__(
        self,
        source: str,
        exports: Sequence[str],
        *,
        constants: Mapping[str, int] = MappingProxyType({}),
        external: ExternalSignatures = MappingProxyType({}),
        ir_modules: Sequence[str] = (),
        arithmetic: str = "contracted",
        prepare: BoundCall = lambda: None,
    ) -> None:
        self._source, self._exports, self._arithmetic = source, tuple(exports), arithmetic
        self._constants, self._external = constants, external
        self._ir_modules = tuple(ir_modules)
        self._prepare = prepare
        self._on_disk = False
        self._next_look = 0.0  # by the monotonic clock

    def function(self, name: str) -> Callable[..., Any]:
        """Return an exported function as a Python builtin (`codegen/cpython_builtin.py`) that
        releases the GIL."""
        return self._code().function(name)

    def address(self, name: str) -> int:
        """Return the address of an exported function."""
        return self._code().address_of(name)

    def compile(self) -> None:
        """Compile the code to the on-disk cache, and everything that `prepare` loads."""
        self._code()

    def is_cached(self) -> bool:
        """Return True if the object code is on disk, so that loading does not compile.

        The disk is read at most once a second.
        """
        if not self._on_disk and monotonic() >= self._next_look:
            self._on_disk = OBJECTS.has_file(self._key)
            self._next_look = monotonic() + LOOK_SECONDS
        return self._on_disk

    def _code(self) -> LoadedObject:
        with _LOAD_LOCK:
            return self._loaded

    @cached_property
    def _loaded(self) -> LoadedObject:
        from magmath.codegen.object_loader import LoadedObject

        self._prepare()
        return LoadedObject(OBJECTS.get(self._key, self._compiled))

    def _compiled(self) -> bytes:
        from magmath.codegen.compiler import compile_source

        ir_functions: IrFunctions = {}
        constants = self._constants
        for name in self._ir_modules:
            module = import_module(name)
            ir_functions = {**ir_functions, **module.IR_FUNCTIONS}
            constants = {**module.CONSTANTS, **constants}
        return compile_source(
            self._source, self._external, exports=self._exports, constants=constants,
            ir_functions=ir_functions, arithmetic=self._arithmetic,
        )  # fmt: skip

    @cached_property
    def _key(self) -> str:
        ir_sources = sources_with_imports(self._ir_modules)
        return cache_key(
            self._source, self._exports, dict(self._constants), dict(self._external),
            self._ir_modules, ir_sources, self._arithmetic,
        )  # fmt: skip
