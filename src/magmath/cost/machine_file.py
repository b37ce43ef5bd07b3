"""Machine files: descriptions of hardware in TOML, each number with its source.

The package has some in `machines/`; users write their own. Every number is a table with `value` and
`source`, so that a file cannot state a number without its origin.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

from magmath.core.dtypes import DTYPES
from magmath.core.resources import memory_share, processor_count
from magmath.core.shown_value import shown
from magmath.cost.collective_costs import Level
from magmath.cost.link import Link
from magmath.cost.machine import GemmRate, Machine, current_machine
from magmath.errors import DataError

HERE: Final = "here"
"""The name of this machine, as `magmath calibrate` has measured it; before, the defaults."""
_FOLDER: Final = files("magmath.cost") / "machines"
_FILE: Final = ("name", "device", "level")
_DEVICE: Final = (
    "bandwidth", "arithmetic", "call_seconds", "memory", "processors", "tile_rows",
    "tile_columns", "gemm",
)  # fmt: skip
_LEVEL: Final = ("name", "fan_out", "bandwidth", "latency")
_NUMBER: Final = ("value", "source")


def known_machines() -> list[str]:
    """Return the names of the packaged descriptions, and "here" for this machine."""
    names = [entry.name.removesuffix(".toml") for entry in _FOLDER.iterdir()]
    return [*sorted(names), HERE]


def load_machine(name: str | os.PathLike[str], workers: int | None = None) -> Machine:
    """Return a machine by the name of a packaged description, by the path of a TOML file, or
    "here", which connects one worker for each processor that this process may use.

    workers   number of workers that share the memory of "here", as in a pool; by default one for
              each processor. Other machines state the memory of a worker.

    Raises DataError for other types, an unknown name, a file that is not TOML, and a missing, wrong
    or unknown field.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise DataError(
            f"load_machine: a machine is a name, the path of a TOML file or a cost.Machine, was "
            f"given {shown(name)}; give the number of workers as workers="
        )
    if name == HERE:
        machine = current_machine()
        processors = processor_count()
        host = replace(machine.levels[0], fan_out=processors)
        memory = float(memory_share(processors if workers is None else workers))
        return replace(machine, levels=(host,), memory=memory)
    packaged = _FOLDER / f"{os.fspath(name)}.toml"
    source = packaged if packaged.is_file() else Path(name)
    if not source.is_file():
        raise DataError(
            f"load_machine: no machine {os.fspath(name)!r}, and no file of this name exists; known "
            f"are {', '.join(known_machines())}, or give the path of a TOML file"
        )
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"load_machine: {source} is not a TOML file: {error}") from error
    return _TableReader(str(source)).machine(content)


@final
class _TableReader:
    """Reads the fields of one file; errors name the file and the field."""

    def __init__(self, path: str) -> None:
        self._path = path

    def machine(self, content: Mapping[str, Any]) -> Machine:
        """Return the machine of a parsed file."""
        self._check_names(content, _FILE)
        device = self._table(content, "device")
        self._check_names(device, _DEVICE, "device.")
        rates = self._table(device, "gemm", "device.")
        self._check_names(rates, tuple(DTYPES), "device.gemm.")
        tables = self._levels(content)
        levels = tuple(
            self._level(f"level[{i}].", table, is_last=i == len(tables) - 1)
            for i, table in enumerate(tables)
        )
        bandwidth = self._number(device, "bandwidth")
        inner, outer = levels[0], levels[-1]
        return Machine(
            gemm=tuple(GemmRate(name, 1, self._number(rates, name, "gemm.")) for name in rates),
            bandwidth=bandwidth,
            host_bandwidth=bandwidth * inner.fan_out if inner.fan_out else math.inf,
            arithmetic=self._number(device, "arithmetic"),
            call_seconds=self._number(device, "call_seconds"),
            memory=self._number(device, "memory"),
            processors=self._integer(device, "processors"),
            tile=(self._integer(device, "tile_rows"), self._integer(device, "tile_columns")),
            shared=Link(inner.latency, inner.bandwidth, False, inner.latency),
            messages=Link(outer.latency, outer.bandwidth, False, outer.latency),
            levels=levels,
            source=self._text(content, "name"),
        )

    def _levels(self, content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        tables = content.get("level")
        if not isinstance(tables, list) or not tables:
            raise self._error("level", "at least one table [[level]], the innermost first")
        return [self._table({"level": table}, "level") for table in tables]

    def _level(self, where: str, table: Mapping[str, Any], *, is_last: bool) -> Level:
        """Return a level. Only the last one may connect any number of units."""
        self._check_names(table, _LEVEL, where)
        return Level(
            name=self._text(table, "name", where),
            fan_out=self._integer(table, "fan_out", where, zero=is_last),
            bandwidth=self._number(table, "bandwidth", where),
            latency=self._number(table, "latency", where),
        )

    def _table(self, table: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
        value = table.get(name)
        if not isinstance(value, dict) or not value:
            raise self._error(f"{where}{name}", "a table")
        return value

    def _text(self, table: Mapping[str, Any], name: str, where: str = "") -> str:
        value = table.get(name)
        if not isinstance(value, str) or not value:
            raise self._error(f"{where}{name}", "a text")
        return value

    def _number(
        self, table: Mapping[str, Any], name: str, where: str = "device.", *, zero: bool = False
    ) -> float:
        """Return the value of a field `{ value = …, source = "…" }`."""
        field = table.get(name)
        if not isinstance(field, dict):
            raise self._error(f"{where}{name}", 'a table { value = 1.0, source = "…" }')
        self._text(field, "source", f"{where}{name}.")
        self._check_names(field, _NUMBER, f"{where}{name}.")
        value = field.get("value")
        number = float(value) if type(value) in (int, float) else -1.0  # type: ignore[arg-type]
        if not (0 <= number < math.inf) or (number == 0 and not zero):
            raise self._error(f"{where}{name}.value", "a positive number")
        return number

    def _integer(
        self, table: Mapping[str, Any], name: str, where: str = "device.", *, zero: bool = False
    ) -> int:
        number = self._number(table, name, where, zero=zero)
        if not number.is_integer():
            raise self._error(f"{where}{name}.value", "an integer")
        return int(number)

    def _check_names(self, table: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
        """Raise DataError for a field that nothing reads: a wrong name would have no effect."""
        for name in table:
            if name not in known:
                raise DataError(
                    f"load_machine: {self._path} has an unknown field {where + name!r}; known "
                    f"are {', '.join(known)}"
                )

    def _error(self, field: str, needs: str) -> DataError:
        return DataError(
            f"load_machine: {self._path} has no valid field {field!r}: it needs {needs}; "
            f"`magmath plan --help` names the packaged files to start from"
        )
