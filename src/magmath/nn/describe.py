"""Modules as text: the nested representation, and the table of layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from magmath.arrays.tree import flatten
from magmath.arrays.variables.variable import Variable
from magmath.nn.abstract import AbstractArray, trace_call
from magmath.nn.forward_hooks import forward_hook
from magmath.nn.inventory import joined_path
from magmath.nn.variables import Deferred

_PLAIN = (bool, int, float, complex, str, type(None))


class ModuleParts(Protocol):
    """The parts of a module by path, as the table uses them (see `Inventory`)."""

    @property
    def variables(self) -> Mapping[str, Variable]:
        """By path."""

    @property
    def modules(self) -> Mapping[str, DescribedModule]:
        """The modules by path; the module itself under ""."""


class DescribedModule(Protocol):
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


def representation(module: DescribedModule, module_class: type[DescribedModule]) -> str:
    """Return the class with its settings and, one per line, the modules in it; `module_class` is
    the class of all modules."""
    children = list(_children(module, module_class))
    head = f"{type(module).__name__}({', '.join(_settings(module, module_class))}"
    if not children:
        return head + ")"
    lines = [
        f"  ({name}): " + representation(child, module_class).replace("\n", "\n  ")
        for name, child in children
    ]
    return "\n".join([head, *lines, ")"])


def _children(
    module: DescribedModule, module_class: type[DescribedModule]
) -> list[tuple[str, DescribedModule]]:
    """Return the modules in the attributes, including nested lists, tuples and dictionaries."""
    children: list[tuple[str, DescribedModule]] = []
    stack = list(reversed(list(module.parts())))
    while stack:
        path, part = stack.pop()
        if isinstance(part, module_class):
            children.append((path, part))
        elif isinstance(part, (list, tuple, dict)):
            items = list(part.items() if isinstance(part, dict) else enumerate(part))
            stack += [(joined_path(path, str(key)), item) for key, item in reversed(items)]
    return children


def _settings(module: DescribedModule, module_class: type[DescribedModule]) -> list[str]:
    """Return the attributes that are numbers, strings or functions, as arguments."""
    settings = []
    for name, value in module.parts():
        hidden = name.startswith("_") or name == "training"
        items = value if isinstance(value, tuple) else (value,)
        if hidden or isinstance(value, (module_class, Variable, Deferred)):
            continue
        if all(isinstance(item, _PLAIN) for item in items):
            settings.append(f"{name}={value!r}")
        elif callable(value):
            settings.append(f"{name}={getattr(value, '__name__', value)}")
    return settings


def summary(
    module: DescribedModule,
    module_class: type[DescribedModule],
    inputs: Sequence[AbstractArray],
    parts_of_built: Callable[[Collection[int]], ModuleParts],
) -> str:
    """Return a table with one row per module: the shape of its output and the number of its own
    parameters.

    parts_of_built   returns the parts, given the ids of the modules that were called; raises
                     StateError if a parameter has no shape
    """
    outputs_of: dict[int, Any] = {}

    def record(called: object, outputs: Any) -> None:
        outputs_of[id(called)] = outputs

    with forward_hook(record):
        trace_call(module, tuple(inputs))
    parts = parts_of_built(outputs_of.keys())
    rows = [("layer", "output", "parameters")]
    rows += [("input", str(x.shape), "0") for x in inputs]
    rows += [
        (
            _name(path, submodule, module_class),
            _shapes(outputs_of.get(id(submodule))),
            f"{_own_size(parts, path, submodule):,}",
        )
        for path, submodule in parts.modules.items()
        if path
    ]
    total = sum(p.size for p in module.parameters())
    frozen = total - sum(p.size for p in module.trainable())
    if len(parts.modules) == 1:
        rows.append(
            (_name("", module, module_class), _shapes(outputs_of.get(id(module))), f"{total:,}")
        )
    totals = f"{total:,} parameters" + (f", {frozen:,} of them frozen" if frozen else "")
    return "\n".join([*table(rows), totals])


def table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return lines with aligned columns, the last one aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]


def _name(path: str, module: DescribedModule, module_class: type[DescribedModule]) -> str:
    text = representation(module, module_class)
    short = text if "\n" not in text else f"{type(module).__name__}"
    return f"{path}: {short}" if path else short


def _shapes(outputs: Any) -> str:
    if outputs is None:
        return "not called"
    shapes = [str(x.shape) for x in flatten(outputs)[0]]
    return ", ".join(shapes)


def _own_size(parts: ModuleParts, path: str, module: DescribedModule) -> int:
    """Return the number of elements of the parameters in the attributes of this module itself."""
    parameters = {id(p) for _, p in module.named_parameters()}
    inner = [f"{other}." for other in parts.modules if other.startswith(f"{path}.")]
    return sum(
        v.size
        for name, v in parts.variables.items()
        if id(v) in parameters
        and name.startswith(f"{path}.")
        and not any(name.startswith(prefix) for prefix in inner)
    )
