"""The process that `executor/native_build.py` starts: it compiles one native program.

Source and object code are files that it inherits, so a program is compiled even if nothing can be
written to disk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from magmath.codegen.compiler_process import compiler_process
from magmath.codegen.object_cache import OBJECTS


def main(arguments: list[str]) -> None:
    """`NICENESS NAME SOURCE CODE ARITHMETIC …`: compiles the source in one file to the other, and
    to the on-disk cache under the name, after the functions of the runtime library that are missing
    on disk, the other arguments."""
    niceness, name, source, code, arithmetic, *missing = arguments
    with compiler_process(niceness):
        compiled = OBJECTS.read(name)  # another process may have compiled the same
        if compiled is None:
            compiled = _compiled(content(int(source)).decode(), arithmetic, missing)
            OBJECTS.write(name, compiled)
    with open(int(code), "wb") as file:
        file.write(compiled)


def _compiled(source: str, arithmetic: str, missing: Sequence[str]) -> bytes:
    from magmath.codegen.compiler import compile_source, imported_names
    from magmath.kernels import runtime_library

    for name in missing:
        runtime_library.load(name)
    external = runtime_library.signatures(imported_names(source))
    return compile_source(source, external, arithmetic=arithmetic)


def content(file: int) -> bytes:
    """Return the whole content of an open file."""
    return os.pread(file, os.fstat(file).st_size, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
