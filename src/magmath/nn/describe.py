"""Modules as text: the nested representation, and the table of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from magmath.array.tree import flatten
from magmath.array.variable import Variable
from magmath.nn.abstract import inputs_of, trace_call
from magmath.nn.inventory import Inventory, joined
from magmath.nn.module import Module, observing
from magmath.nn.variables import Deferred

if TYPE_CHECKING:
    from magmath.api.creation import DTypeLike

_PLAIN = (bool, int, float, complex, str, type(None))


def representation(module: Module) -> str:
    """Return the class with its settings, and its modules, one per line."""
    children = list(_children(module))
    head = f"{type(module).__name__}({', '.join(_settings(module))}"
    if not children:
        return head + ")"
    lines = [
        f"  ({name}): " + representation(child).replace("\n", "\n  ") for name, child in children
    ]
    return "\n".join([head, *lines, ")"])


def _children(module: Module) -> list[tuple[str, Module]]:
    """Return the modules in its attributes, also in nested lists, tuples and dictionaries."""
    found: list[tuple[str, Module]] = []
    stack = list(reversed(list(module.parts())))
    while stack:
        path, part = stack.pop()
        if isinstance(part, Module):
            found.append((path, part))
        elif isinstance(part, (list, tuple, dict)):
            items = list(part.items() if isinstance(part, dict) else enumerate(part))
            stack += [(joined(path, str(key)), item) for key, item in reversed(items)]
    return found


def _settings(module: Module) -> list[str]:
    """Return the attributes that are numbers, strings or functions, formatted as arguments."""
    found = []
    for name, value in module.parts():
        hidden = name.startswith("_") or name == "training"
        items = value if isinstance(value, tuple) else (value,)
        if hidden or isinstance(value, (Module, Variable, Deferred)):
            continue
        if all(isinstance(item, _PLAIN) for item in items):
            found.append(f"{name}={value!r}")
        elif callable(value):
            found.append(f"{name}={getattr(value, '__name__', value)}")
    return found


def summary(module: Module, shapes: Sequence[Any], dtype: DTypeLike) -> str:
    """Return a line for each module, with its output shape and the size of its own parameters."""
    shown: dict[int, Any] = {}

    def observer(called: Module, outputs: Any) -> None:
        shown[id(called)] = outputs

    inputs = inputs_of("summary", shapes, dtype)
    with observing(observer):
        trace_call(module, inputs)
    inventory = module._built("summary")
    rows = [("layer", "output", "parameters")]
    rows += [("input", str(x.shape), "0") for x in inputs]
    rows += [
        (_name(path, one), _shapes(shown.get(id(one))), f"{_own_size(inventory, path, one):,}")
        for path, one in inventory.modules.items()
        if path
    ]
    total = sum(p.size for p in module.parameters())
    frozen = total - sum(p.size for p in module.trainable())
    if len(inventory.modules) == 1:
        rows.append((_name("", module), _shapes(shown.get(id(module))), f"{total:,}"))
    last = f"{total:,} parameters" + (f", {frozen:,} of them frozen" if frozen else "")
    return "\n".join([*table(rows), last])


def table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return lines with aligned columns, the last one aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]


def _name(path: str, module: Module) -> str:
    text = representation(module)
    short = text if "\n" not in text else f"{type(module).__name__}"
    return f"{path}: {short}" if path else short


def _shapes(outputs: Any) -> str:
    if outputs is None:
        return "not called"
    shapes = [str(x.shape) for x in flatten(outputs)[0]]
    return ", ".join(shapes)


def _own_size(inventory: Inventory, path: str, module: Module) -> int:
    """Return the number of elements of a module's parameters, without those of inner modules."""
    parameters = {id(p) for _, p in module.named_parameters()}
    inner = [f"{other}." for other in inventory.modules if other.startswith(f"{path}.")]
    return sum(
        v.size
        for name, v in inventory.variables.items()
        if id(v) in parameters
        and name.startswith(f"{path}.")
        and not any(name.startswith(prefix) for prefix in inner)
    )
