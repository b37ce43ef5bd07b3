"""States of modules in safetensors files: written atomically, checked before any value changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, final

from magmath.api.creation import asarray
from magmath.api.data_types import astype
from magmath.api.input_output import load_on_controller, load_texts, save_on_controller
from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable, assign, conversion_remedy, is_convertible
from magmath.core.foreign_names import closest_name
from magmath.errors import (
    DataError,
    DTypeError,
    MagmathError,
    MissingWeightsError,
    ShapeError,
    WeightsError,
)

if TYPE_CHECKING:
    import torch

FORMAT = "magmath-2"
T = TypeVar("T")


@final
class IncompatibleKeys(NamedTuple):
    """The paths that a state and a module do not have in common; see `Module.load_state_dict`.

    missing_keys      paths of the module that the state lacks
    unexpected_keys   paths of the state that the module lacks
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


class Stateful(Protocol):
    """The methods of a module that a state file needs."""

    def state_dict(self) -> dict[str, Array]:
        """Return the values of its variables by path."""

    def aliases(self) -> dict[str, str]:
        """Return the further paths of shared variables, each with its path in `state_dict`."""

    def load_state_dict(self, state: Mapping[str, Any], strict: bool) -> IncompatibleKeys:
        """Assign values by path; return the missing paths and the unknown ones."""

    def named_parameters(self) -> Sequence[tuple[str, Variable]]:
        """Return its parameters with their paths."""

    def named_buffers(self) -> Sequence[tuple[str, Variable]]:
        """Return its buffers and random states with their paths."""


def assign_state(
    variables: Mapping[str, Variable], aliases: Mapping[str, str], state: Any, strict: bool
) -> IncompatibleKeys:
    """Assign values to variables by path; see `Module.load_state_dict`."""
    match = _match("load_state_dict", variables, aliases, state)
    problems = list(match.problems)
    if strict and match.missing:
        problems.append(f"missing: {', '.join(match.missing)}")
    if strict and match.unexpected:
        problems.append(f"not in the module: {', '.join(match.unexpected)}")
    if problems:
        ignorable = strict and (match.missing or match.unexpected)
        remedy = "; strict=False ignores missing and unknown paths" if ignorable else ""
        remedy = remedy or "; load the state of a module of the same layers and sizes"
        raise WeightsError(f"load_state_dict: {'; '.join(problems)}{remedy}")
    assign([(variables[path], value.node) for path, value in match.values.items()])
    return IncompatibleKeys(match.missing, match.unexpected)


def values_by_variable(
    operation: str, variables: Mapping[str, Variable], aliases: Mapping[str, str], state: Any
) -> dict[Variable, Array]:
    """Return the values of a state in the types of the variables that they are for. Raises
    WeightsError, which names the operation, for unknown paths and values that do not fit."""
    match = _match(operation, variables, aliases, state)
    problems = list(match.problems)
    for path in match.unexpected:
        close = closest_name(path, (*variables, *aliases))
        hint = f", did you mean {close!r}?" if close else ""
        problems.append(f"{path} is not in the module{hint}")
    if problems:
        raise WeightsError(
            f"{operation}: {'; '.join(problems)}; the paths are those of module.state_dict()"
        )
    found = {variables[path]: value for path, value in match.values.items()}
    return {v: astype(value, v.dtype, copy=False) for v, value in found.items()}


@final
class _Match(NamedTuple):
    """The values of a state for variables by path, and the paths that only one of both has.

    problems   what is wrong with values that do not fit, each beginning with its path
    """

    values: dict[str, Array]
    missing: list[str]
    unexpected: list[str]
    problems: list[str]


def _match(
    operation: str, variables: Mapping[str, Variable], aliases: Mapping[str, str], state: Any
) -> _Match:
    """Match a state with variables. Raises TypeError for other objects than a dictionary."""
    if not isinstance(state, Mapping):
        remedy = "give the result of state_dict()"
        if hasattr(state, "state_dict"):
            remedy = "give x.state_dict()"
        elif isinstance(state, (str, os.PathLike)):
            remedy = "module.load(path) reads a file"
        raise TypeError(
            f"{operation}: needs a dictionary of arrays by path, was given a "
            f"{type(state).__name__}; {remedy}"
        )
    values_by_path = {aliases.get(path, path): value for path, value in state.items()}
    values_by_path |= {path: value for path, value in state.items() if path in variables}
    missing = [path for path in variables if path not in values_by_path]
    unexpected = [path for path in values_by_path if path not in variables]
    values, problems = {}, []
    for path, variable in variables.items():
        if path in values_by_path:
            try:
                values[path] = _value(values_by_path[path], variable)
            except (MagmathError, TypeError) as error:
                problems.append(f"{path} {error}")
    return _Match(values, missing, unexpected, problems)


def _value(entry: Any, variable: Variable) -> Array:
    """Return a value for a variable. Raises a MagmathError or TypeError, whose message continues
    the path of the variable."""
    shape = variable.shape
    if hasattr(entry, "shape") and tuple(entry.shape) != shape:  # before anything is copied
        raise ShapeError(f"has shape {shape}, was given {tuple(entry.shape)}")
    try:
        value = asarray(entry)
    except (MagmathError, TypeError) as error:
        problem = str(error).removeprefix("asarray: ")
        raise TypeError(f"has no valid value: {problem}") from None
    if value.shape != shape:
        raise ShapeError(f"has shape {shape}, was given {value.shape}")
    if not is_convertible(value.dtype, variable.dtype):
        raise DTypeError(
            f"is {variable.dtype}, was given {value.dtype}, which would lose information: "
            f"{conversion_remedy(value.dtype, variable.dtype)}"
        )
    return value


def save(module: Stateful, path: str | os.PathLike[str]) -> None:
    """Write a module's state, and which paths share variables."""
    write(path, module.state_dict(), {"aliases": json.dumps(module.aliases())})


def load(module: Stateful, path: str | os.PathLike[str], strict: bool) -> None:
    """Read a module's state."""
    state, metadata = read(path)
    load_arrays(module, path, state, metadata, strict)


def load_arrays(
    module: Stateful,
    path: str | os.PathLike[str],
    state: dict[str, torch.Tensor],
    metadata: dict[str, str],
    strict: bool = True,
) -> None:
    """Assign the arrays of a file to a module.

    If only the file's module shares a variable, each of this module's variables gets its value.
    """
    _check_finite(module, path, state)
    if aliases := json.loads(metadata.get("aliases", "{}")):
        known_paths = {path for path, _ in [*module.named_parameters(), *module.named_buffers()]}
        for alias, first in aliases.items():
            if alias in known_paths and first in state:
                state.setdefault(alias, state[first])
    try:
        module.load_state_dict(state, strict)
    except WeightsError as error:
        problems = str(error).removeprefix("load_state_dict: ")
        raise WeightsError(f"load: {path} belongs to another network: {problems}") from None


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str]
) -> None:
    """Write arrays to a safetensors file with metadata."""
    target = Path(path)
    if not target.parent.is_dir():
        raise MissingWeightsError(
            f"save: the folder {target.parent} does not exist; create it first"
        )
    save_on_controller(target, arrays, {"format": FORMAT, **metadata})


def read(path: str | os.PathLike[str]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the arrays of a safetensors file, and its metadata."""
    return _read(path, load_on_controller)


def read_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    return _read(path, load_texts)


def _read(path: str | os.PathLike[str], load: Callable[[str | os.PathLike[str]], T]) -> T:
    if not Path(path).exists():
        raise MissingWeightsError(
            f"load: there is no file {path}; give the path of one that net.save(path) has written"
        )
    try:
        return load(path)
    except (DataError, OSError) as error:
        raise WeightsError(
            f"load: {path} is not a safetensors file, or is damaged; give the path of a file that "
            f"net.save(path) has written"
        ) from error


def _check_finite(
    module: Stateful, path: str | os.PathLike[str], state: Mapping[str, torch.Tensor]
) -> None:
    """Raise WeightsError if the value of a parameter is nan or infinite. Buffers may have such
    values, as masks that are added to scores do."""
    import torch

    not_finite = [
        name
        for name, tensor in state.items()
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all())
    ]
    if not_finite:
        parameters, aliases = {name for name, _ in module.named_parameters()}, module.aliases()
        for name in [x for x in not_finite if aliases.get(x, x) in parameters]:
            raise WeightsError(f"load: {path}: parameter {name} holds nan or infinite values")
