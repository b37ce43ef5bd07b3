"""Modules composed of other modules, and functions as modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final, overload

from magmath.api.manipulation import concat
from magmath.arrays.array import Array
from magmath.errors import ShapeError
from magmath.graph import Shape
from magmath.nn.functional import flatten
from magmath.nn.module import Module, check_module


def _with_items(attributes: Iterable[tuple[str, Any]], name: str) -> Iterator[tuple[str, Any]]:
    """Yield attributes by name, the items of one of them by position in its place."""
    for attribute, value in attributes:
        if attribute == name:
            yield from ((str(i), item) for i, item in enumerate(value))
        else:
            yield attribute, value


@final
class Sequential(Module):
    """Applies modules in sequence: `Sequential(a, b)` or `Sequential([a, b])`.

    The path of each module is its position. A function is converted to `Lambda(function)`.
    """

    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            layers = tuple(layers[0])
        self.layers = tuple([_as_module("Sequential", layer) for layer in layers])

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the modules by position, and other attributes by name."""
        return _with_items(super().parts(), "layers")

    def __call__(self, *inputs: Any) -> Any:
        """Return the output of the last module; the first one receives the inputs."""
        outputs: Any = inputs[0] if len(inputs) == 1 else inputs
        for i, layer in enumerate(self.layers):
            try:
                outputs = layer(*inputs) if i == 0 else layer(outputs)
            except ShapeError as error:
                text = repr(layer)
                name = type(layer).__name__ if "\n" in text else text
                raise ShapeError(f"layer {i} ({name}): {error}") from None
        return outputs

    def _first_called(self) -> Module:
        return self.layers[0]._first_called() if self.layers else self

    def append(self, layer: Any) -> Sequential:
        """Append a module; return this one."""
        self.layers = (*self.layers, _as_module("Sequential", layer))
        return self

    def extend(self, layers: Iterable[Any]) -> Sequential:
        """Append modules; return this one."""
        for layer in layers:
            self.append(layer)
        return self

    def insert(self, index: int, layer: Any) -> Sequential:
        """Insert a module before a position; return this one."""
        layers = list(self.layers)
        layers.insert(index, _as_module("Sequential", layer))
        self.layers = tuple(layers)
        return self

    def __setitem__(self, index: int, layer: Any) -> None:
        """Replace the module at a position."""
        layers = list(self.layers)
        layers[index] = _as_module("Sequential", layer)
        self.layers = tuple(layers)

    def __delitem__(self, index: int | slice) -> None:
        """Remove the module at a position, or those of a slice."""
        layers = list(self.layers)
        del layers[index]
        self.layers = tuple(layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Module:
        """Return the module at a position, or a `Sequential` of a slice, with shared parameters."""
        if isinstance(index, slice):
            return Sequential(self.layers[index])
        return self.layers[index]


@final
class Residual(Module):
    """Computes x + body(x), or shortcut(x) + body(x)."""

    def __init__(self, body: Any, shortcut: Any = None) -> None:
        self.body = _as_module("Residual", body)
        self.shortcut = None if shortcut is None else _as_module("Residual", shortcut)

    def __call__(self, x: Array) -> Array:
        """Return the sum; both terms must have the same shape."""
        body_output: Array = self.body(x)
        shortcut_output: Array = x if self.shortcut is None else self.shortcut(x)
        if shortcut_output.shape != body_output.shape:
            raise ShapeError(
                f"Residual: the body gives {body_output.shape}, the shortcut "
                f"{shortcut_output.shape}; give "
                f"shortcut={_projection(x.shape, body_output.shape)}, or another module that fits"
            )
        return shortcut_output + body_output


def _projection(x: Shape, y: Shape) -> str:
    """Return the usual module for a shortcut between arrays of these shapes."""
    if x[:-1] == y[:-1] or len(y) not in (3, 4, 5):
        return f"mm.nn.Dense({y[-1]})"
    strides = {-(-n // max(m, 1)) for n, m in zip(x[2:], y[2:], strict=False)}
    stride = f", stride={max(strides)}" if strides != {1} else ""
    return f"mm.nn.Conv{len(y) - 2}d({y[1]}, 1{stride})"


@final
class Add(Module):
    """Computes the sum of several inputs."""

    def __call__(self, *inputs: Array) -> Array:
        """Return the sum of arrays that broadcast."""
        (first, *others) = inputs
        for other in others:
            first = first + other
        return first


@final
class Concatenate(Module):
    """Joins several inputs along an axis."""

    def __init__(self, axis: int = 1) -> None:
        self.axis = axis

    def __call__(self, *inputs: Array) -> Array:
        """Return the joined arrays, whose shapes must agree except along the axis."""
        return concat(list(inputs), axis=self.axis)


@final
class Parallel(Module):
    """Applies several modules to the same input and joins their outputs along an axis.

    `Parallel(a, b)` is `Concatenate()(a(x), b(x))`. The path of each module is its position.
    """

    def __init__(self, *branches: Any, axis: int = 1) -> None:
        if len(branches) == 1 and isinstance(branches[0], (list, tuple)):
            branches = tuple(branches[0])
        self.branches = tuple([_as_module("Parallel", branch) for branch in branches])
        self.axis = axis

    def parts(self) -> Iterable[tuple[str, Any]]:
        """Return the modules by position, and other attributes by name."""
        return _with_items(super().parts(), "branches")

    def __call__(self, x: Array) -> Array:
        """Return the joined outputs, whose shapes must agree except along the axis."""
        outputs = [branch(x) for branch in self.branches]
        other_extents = {
            tuple([n for d, n in enumerate(y.shape) if d != self.axis % y.ndim]) for y in outputs
        }
        if len(other_extents) > 1:
            raise ShapeError(
                f"Parallel: joins branches along axis {self.axis}; they give "
                f"{', '.join([str(y.shape) for y in outputs])}; check their strides and padding"
            )
        return concat(outputs, axis=self.axis)


@final
class Flatten(Module):
    """Merges the axes from `start_axis` on: a row for each sample."""

    def __init__(self, start_axis: int = 1) -> None:
        self.start_axis = start_axis

    def __call__(self, x: Array) -> Array:
        """(N, …) → (N, features)."""
        return flatten(x, self.start_axis)


@final
class Identity(Module):
    """Returns its input."""

    def __call__(self, x: Any) -> Any:
        """Return x."""
        return x


@final
class Lambda(Module):
    """Applies a function of arrays, without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *inputs: Any) -> Any:
        """Return function(*inputs)."""
        return self.function(*inputs)


def _as_module(operation: str, layer: Any) -> Module:
    if callable(layer) and not isinstance(layer, (Module, type)):
        return Lambda(layer)
    return check_module(operation, layer)
