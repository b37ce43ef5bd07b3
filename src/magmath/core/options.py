"""The environment variables that configure magmath: names, defaults and meaning, in one table.

A value is read whenever it is needed, so a program may set a variable before the first use. The
table in `docs/running.md` repeats `VARIABLES` for users. Variables by which magmath's processes
pass data to each other are defined where they are used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

from magmath.errors import OptionError


@final
@dataclass(frozen=True)
class EnvironmentVariable:
    """An environment variable; as text it is its name."""

    name: str
    default: str
    meaning: str

    def read(self) -> str:
        """Return the value in the environment, or the default if there is none or it is empty."""
        return os.environ.get(self.name) or self.default

    def read_number(self) -> float:
        """Return the value as a number. Raises OptionError if it is none of at least 0."""
        text = self.read()
        with suppress(ValueError):
            if (number := float(text)) >= 0:
                return number
        raise OptionError(
            f"{self.name}: must be a number of at least 0, is {text!r}; it sets {self.meaning}"
        )

    def __str__(self) -> str:
        return self.name


CACHE: Final = EnvironmentVariable(
    "MAGMATH_CACHE", "", "the folder of compiled code and measurements"
)
CACHE_LIMIT: Final = EnvironmentVariable(
    "MAGMATH_CACHE_LIMIT", "512", "the bound on its size in megabytes; 0 disables the cache"
)
COMPILE_AFTER: Final = EnvironmentVariable(
    "MAGMATH_COMPILE_AFTER",
    "0.3",
    "seconds of runs, at least three, before native code is compiled for a program, in proportion "
    "beyond 1000 instructions; inf compiles nothing",
)
DATA: Final = EnvironmentVariable("MAGMATH_DATA", "", "the folder of data sets")
DEBUG: Final = EnvironmentVariable(
    "MAGMATH_DEBUG",
    "",
    "switches that make latent faults visible: fill, delays=SEED, vectors=BYTES, without=PASS",
)
REMOTE_SHELL: Final = EnvironmentVariable(
    "MAGMATH_REMOTE_SHELL", "ssh", "the program that starts commands on other hosts"
)

VARIABLES: Final = (CACHE, CACHE_LIMIT, COMPILE_AFTER, DATA, DEBUG, REMOTE_SHELL)
