"""The process that `codegen/background_build.py` starts: it compiles code of one module to disk."""

from __future__ import annotations

import sys
from importlib import import_module

from magmath.codegen.compiler_process import compiler_process


def main(arguments: list[str]) -> None:
    """`NICENESS MODULE FUNCTION …`: compiles what a function of a module returns for the other
    arguments."""
    niceness, module, function, *options = arguments
    with compiler_process(niceness):
        getattr(import_module(module), function)(*options).compile()


if __name__ == "__main__":
    main(sys.argv[1:])
