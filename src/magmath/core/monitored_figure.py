"""The figure of an epoch that a callback or schedule monitors, and whether less of it is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from magmath.errors import OptionError

Mode = Literal["min", "max"]

_MODES: Final[dict[str, Mode]] = {
    "loss": "min", "error": "min",
    "accuracy": "max", "precision": "max", "recall": "max", "f1": "max",
}  # fmt: skip
"""The modes of figures by a word of their names; the first one that occurs counts."""


def monitored_figure(owner: str, name: str, figures: Mapping[str, float | None]) -> float:
    """Return the figure of this name. Raises OptionError, which names the owner, if there is none;
    a figure that is None was not measured."""
    figure = figures.get(name)
    if figure is None:
        recorded = [other for other, value in figures.items() if value is not None]
        raise OptionError(
            f"{owner}: no value is recorded as {name!r}; recorded are {', '.join(recorded)}; "
            f"{_remedy(name, recorded)}"
        )
    return figure


def monitored_mode(owner: str, name: str, mode: str | None) -> Mode:
    """Return "min" if less of the figure of this name is better, otherwise "max": the given mode,
    or by default that of losses, errors and the library's metrics, by the words of the name.

    Raises OptionError, which names the owner, for another mode, and for a name of unknown mode.
    """
    if mode == "min":
        return "min"
    if mode == "max":
        return "max"
    if mode is not None:
        raise OptionError(f"{owner}: mode is 'min' or 'max', was given {mode!r}")
    words = name.split("_")
    for word, known in _MODES.items():
        if word in words:
            return known
    raise OptionError(
        f"{owner}: it is not known whether less or more of {name!r} is better; give mode='min' or "
        f"mode='max'"
    )


def _remedy(name: str, recorded: list[str]) -> str:
    """Return what to write instead of a name that is not recorded, such as one of Keras."""
    full = f"validation_{name.removeprefix('val_')}"
    if name.startswith("val_") and full in recorded:
        return f"did you mean {full!r}?"
    return "give fit(…, validation=(x, y)) or metrics for others"
