"""Modules as text: the nested representation, and the table of layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from magmath.arrays.tree import flatten
from magmath.arrays.variables.variable import Variable
from magmath.nn.abstract import AbstractArray, trace_call
from magmath.nn.forward_hooks import forward_hook
from magmath.nn.inventory import joined
from magmath.nn.variables import Deferred

_PLAIN = (bool, int, float, complex, str, type(None))


class Walked(Protocol):
    """The parts of a module that the table uses."""

    @property
    def variables(self) -> Mapping[str, Variable]:
        """By path."""

    @property
    def modules(self) -> Mapping[str, Described]:
        """The modules by path; the module itself under ""."""


class Described(Protocol):
    """The methods of a module from which its text is made."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs for these inputs."""

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the attributes by name."""

    def named_parameters(self) -> Sequence[tuple[str, Variable]]:
        """Return the parameters with their paths."""

    def parameters(self) -> Sequence[Variable]:
        """Return the parameters."""

    def trainable(self) -> Sequence[Variable]:
        """Return the parameters that are not frozen."""


def representation(module: Described, kind: type[Described]) -> str:
    """Return the class with its settings and, one per line, the modules in it; `kind` is the class
    of all modules."""
    children = list(_children(module, kind))
    head = f"{type(module).__name__}({', '.join(_settings(module, kind))}"
    if not children:
        return head + ")"
    lines = [
        f"  ({name}): " + representation(child, kind).replace("\n", "\n  ")
        for name, child in children
    ]
    return "\n".join([head, *lines, ")"])


def _children(module: Described, kind: type[Described]) -> list[tuple[str, Described]]:
    """Return the modules in the attributes, including nested lists, tuples and dictionaries."""
    found: list[tuple[str, Described]] = []
    stack = list(reversed(list(module.parts())))
    while stack:
        path, part = stack.pop()
        if isinstance(part, kind):
            found.append((path, part))
        elif isinstance(part, (list, tuple, dict)):
            items = list(part.items() if isinstance(part, dict) else enumerate(part))
            stack += [(joined(path, str(key)), item) for key, item in reversed(items)]
    return found


def _settings(module: Described, kind: type[Described]) -> list[str]:
    """Return the attributes that are numbers, strings or functions, as arguments."""
    found = []
    for name, value in module.parts():
        hidden = name.startswith("_") or name == "training"
        items = value if isinstance(value, tuple) else (value,)
        if hidden or isinstance(value, (kind, Variable, Deferred)):
            continue
        if all(isinstance(item, _PLAIN) for item in items):
            found.append(f"{name}={value!r}")
        elif callable(value):
            found.append(f"{name}={getattr(value, '__name__', value)}")
    return found


def summary(
    module: Described,
    kind: type[Described],
    inputs: Sequence[AbstractArray],
    parts_of_built: Callable[[Collection[int]], Walked],
) -> str:
    """Return a table with one row per module: the shape of its output and the number of its own
    parameters.

    parts_of_built   returns the parts, given the ids of the modules that were called; raises
                     MagmathError if a parameter has no shape
    """
    shown: dict[int, Any] = {}

    def record(called: object, outputs: Any) -> None:
        shown[id(called)] = outputs

    with forward_hook(record):
        trace_call(module, tuple(inputs))
    inventory = parts_of_built(shown.keys())
    rows = [("layer", "output", "parameters")]
    rows += [("input", str(x.shape), "0") for x in inputs]
    rows += [
        (
            _name(path, one, kind),
            _shapes(shown.get(id(one))),
            f"{_own_size(inventory, path, one):,}",
        )
        for path, one in inventory.modules.items()
        if path
    ]
    total = sum(p.size for p in module.parameters())
    frozen = total - sum(p.size for p in module.trainable())
    if len(inventory.modules) == 1:
        rows.append((_name("", module, kind), _shapes(shown.get(id(module))), f"{total:,}"))
    last = f"{total:,} parameters" + (f", {frozen:,} of them frozen" if frozen else "")
    return "\n".join([*table(rows), last])


def table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return lines with aligned columns, the last one aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]


def _name(path: str, module: Described, kind: type[Described]) -> str:
    text = representation(module, kind)
    short = text if "\n" not in text else f"{type(module).__name__}"
    return f"{path}: {short}" if path else short


def _shapes(outputs: Any) -> str:
    if outputs is None:
        return "not called"
    shapes = [str(x.shape) for x in flatten(outputs)[0]]
    return ", ".join(shapes)


def _own_size(inventory: Walked, path: str, module: Described) -> int:
    """Return the number of elements of the parameters in the attributes of this module itself."""
    parameters = {id(p) for _, p in module.named_parameters()}
    inner = [f"{other}." for other in inventory.modules if other.startswith(f"{path}.")]
    return sum(
        v.size
        for name, v in inventory.variables.items()
        if id(v) in parameters
        and name.startswith(f"{path}.")
        and not any(name.startswith(prefix) for prefix in inner)
    )
