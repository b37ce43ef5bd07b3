"""The results database: an SQLite file with the completed trials of one search.

A trial is written when it ends, in one transaction, so a search that was killed continues after the
last completed trial. A file without trials, as a search leaves it that failed before its first one
ended, has no results to protect, and belongs to the next search.
"""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any, final

from magmath.errors import DataError
from magmath.train.parameter_search.curve import LossCurve
from magmath.train.parameter_search.results import Trial

_TABLES = """
CREATE TABLE search (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, settings TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    minimum_loss REAL, area REAL, curve TEXT NOT NULL
);
"""
SHOWN = 300
"""Characters of a value that a message shows."""
REMEDY = "name another file, or delete this one to start the search again"


@final
class Database:
    """The file at `path`, or a database in memory if `path` is None.

    description   the identity of the search, as plain values by name

    Raises DataError if the file is not a results database or belongs to another search.
    """

    def __init__(self, path: str | os.PathLike[str] | None, description: dict[str, Any]) -> None:
        self.path = path
        self._known: dict[str, str] = {k: _text(v) for k, v in description.items()}
        if path is None:
            self._connection = sqlite3.connect(":memory:")
            self._create()
            return
        self._open(Path(path))

    def _open(self, path: Path) -> None:
        """Open the file; create the tables in a new one, and check an existing one."""
        if not path.parent.is_dir():
            raise DataError(f"search: the folder {path.parent} of the results does not exist")
        if path.is_dir():
            raise DataError(f"search: the results {path} are a folder; name a file in it")
        new = not path.exists() or path.stat().st_size == 0
        self._connection = sqlite3.connect(path)
        try:
            self._create() if new else self._check(path)
        except BaseException:
            self._connection.close()
            raise

    def _create(self) -> None:
        with self._connection as connection:
            connection.executescript(_TABLES)
        self._describe()

    def _describe(self) -> None:
        """Write the identity of this search, instead of a former one."""
        with self._connection as connection:
            connection.execute("DELETE FROM search")
            connection.executemany("INSERT INTO search VALUES (?, ?)", self._known.items())

    def _check(self, path: Path) -> None:
        """Raise DataError if the file is no database or has the trials of another search."""
        try:
            described = dict(self._connection.execute("SELECT name, value FROM search"))
            query = "SELECT number, settings, state, curve FROM trials LIMIT 1"
            has_trials = self._connection.execute(query).fetchone() is not None
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"search: {path} is not a results database of a search ({error}); {REMEDY}"
            ) from error
        if not has_trials:
            self._describe()
            return
        names = [
            name
            for name in {**described, **self._known}
            if described.get(name) != self._known.get(name)
        ]
        if names:
            listed = "; ".join(
                f"{name} is {_short(described.get(name))} there and "
                f"{_short(self._known.get(name))} here"
                for name in names
            )
            raise DataError(f"search: {path} has the results of another search: {listed}; {REMEDY}")

    def trials(self) -> list[Trial]:
        """Return the stored trials in order. Raises DataError for a damaged one."""
        query = "SELECT number, settings, state, curve FROM trials ORDER BY number"
        try:
            return [_trial(*row) for row in self._connection.execute(query)]
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"search: {self.path} has a damaged trial: {error}; {REMEDY}"
            ) from error

    def add(self, trial: Trial) -> None:
        """Store a trial that has ended."""
        curve = {"seconds": trial.curve.seconds, "losses": trial.curve.losses}
        minimum = trial.curve.minimum if trial.curve.losses else None
        values = (
            trial.number, _text(trial.settings), trial.state, minimum, trial.curve.area,
            _text(curve),
        )  # fmt: skip
        with self._connection as connection:
            connection.execute("INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?)", values)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _trial(number: int, settings: str, state: Any, curve: str) -> Trial:
    points = json.loads(curve)
    loss_curve = LossCurve(tuple(points["seconds"]), tuple(points["losses"]))
    return Trial(number, json.loads(settings), state, loss_curve)


def _short(value: str | None) -> str:
    """Return a value for a message."""
    if value is None:
        return "absent"
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"


def _text(value: Any) -> str:
    return json.dumps(value)
