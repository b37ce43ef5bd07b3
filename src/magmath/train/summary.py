"""A network as a table of text: layers, output shapes, parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magmath.core.shapes import size_of
from magmath.errors import MagmathError

if TYPE_CHECKING:
    from magmath.train.network import NeuralNetwork


def summary(network: NeuralNetwork) -> str:
    """One line a layer; MagmathError before the network is built."""
    if network.input_shape is None:
        raise MagmathError("summary: the network is not built; call net.build(sample_shape) or fit")
    shape = network.input_shape
    rows = [("layer", "output", "parameters"), ("input", str(shape), "0")]
    total = 0
    for layer in network.layers:
        count = sum(size_of(spec.shape) for spec in layer.parameters(shape).values())
        shape = layer.output_shape(shape)
        total += count
        rows.append((str(layer), str(shape), f"{count:,}"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
    return "\n".join([*lines, f"{total:,} parameters"])
