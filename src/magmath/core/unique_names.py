"""Names that are unique in a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def numbered(names: Sequence[str], reserved: Collection[str] = ()) -> list[str]:
    """Return the names, with a number in repeated and reserved ones: "a", "a_2", "a_3"."""
    used_names = {*reserved, *names}
    unique_names: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in unique_names or unique in reserved or (number > 1 and unique in used_names):
            number += 1
            unique = f"{name}_{number}"
        unique_names.append(unique)
    return unique_names
