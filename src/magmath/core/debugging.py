"""Switches that make latent faults visible, in the environment variable MAGMATH_DEBUG.

`fill`: memory is filled with the byte 0x7f when it is allocated, or reused for another value, so
that reads of unwritten memory return no plausible values. These bytes are NaN or huge floating
point numbers (3.4e38 in float32), and large integers.

`delays=SEED`: workers sleep for random times wherever the order of their work must not matter, so
that races and deadlocks which depend on timing become frequent. Each worker draws its own times,
the same in each run with the seed.

`without=NAME`: plans omit a pass (`core/optional_passes.py`), so that the pass which makes a wrong
number is found.

`vectors=BYTES`: compiled loops have vectors of 16, 32 or 64 bytes, as on another processor, so that
a fault of narrow or wide vectors shows on any machine. It is read once in each process.

Several switches are separated by commas. The others are read when a pool starts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import Final, final

from magmath.core.optional_passes import OPTIONAL_PASSES
from magmath.core.options import DEBUG
from magmath.errors import OptionError

FILL_BYTE: Final = 0x7F
SHORT_SECONDS: Final = 2e-3
"""Maximum of most delays."""
VECTOR_SIZES: Final = ("16", "32", "64")
LONG_SECONDS: Final = 0.15
"""Some delays: waiting for a barrier then returns to Python, and resumes."""


@final
@dataclass(frozen=True, slots=True)
class Debugging:
    """The switches that are on."""

    fill: bool = False
    delays: int | None = None
    without: frozenset[str] = frozenset()
    vectors: int | None = None


def debugging() -> Debugging:
    """Return the switches of the environment. Raises OptionError for unknown ones."""
    fill, delays, vectors, without = False, None, None, set[str]()
    for switch in filter(None, DEBUG.read().split(",")):
        name, _, value = switch.partition("=")
        if switch == "fill":
            fill = True
        elif name == "delays" and value.isdecimal():
            delays = int(value)
        elif name == "vectors" and value in VECTOR_SIZES:
            vectors = int(value)
        elif name == "without" and value in OPTIONAL_PASSES:
            without.add(value)
        else:
            raise OptionError(
                f"{DEBUG}: {switch!r} is not known; the switches are fill, delays=SEED, "
                f"vectors=BYTES (16, 32 or 64) and without=PASS, separated by commas, and the "
                f"passes {', '.join(OPTIONAL_PASSES)}"
            )
    return Debugging(fill, delays, frozenset(without), vectors)


@final
class Delays:
    """Random delays of one thread, drawn from a seed and the names of the thread; none if the
    switch is off."""

    __slots__ = ("_random",)

    def __init__(self, *names: object) -> None:
        seed = debugging().delays
        self._random = None if seed is None else Random(f"{seed} {names}")

    def sleep(self) -> None:
        """Sleep in about every third call."""
        if self._random is None:
            return
        kind = self._random.random()
        if kind < 0.02:
            time.sleep(self._random.uniform(0, LONG_SECONDS))
        elif kind < 0.3:
            time.sleep(self._random.uniform(0, SHORT_SECONDS))

    def should_defer(self) -> bool:
        """Return True in three of four calls, for work that may also be done later."""
        return self._random is not None and self._random.random() < 0.75
