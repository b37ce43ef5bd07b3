"""The figure of an epoch that a callback or schedule monitors."""

from __future__ import annotations

from collections.abc import Mapping

from magmath.errors import OptionError


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


def _remedy(name: str, recorded: list[str]) -> str:
    """Return what to write instead of a name that is not recorded, such as one of Keras."""
    full = f"validation_{name.removeprefix('val_')}"
    if name.startswith("val_") and full in recorded:
        return f"did you mean {full!r}?"
    return "give fit(…, validation=(x, y)) or metrics for others"
