"""Joins sums over the same elements, so that they are read once.

The moments of a batch norm are Σ x and Σ (x - mean)², its gradient needs Σ g and Σ g·(x - m). Each
pair becomes one operation (`ops/joint_sums.py`), whose result workers also add in one exchange. The
pass comes after differentiation, so the pairs need no gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import final

from magmath.core.dtypes import float32, float64
from magmath.core.shapes import AxisNumbers
from magmath.graph import Graph, Node, apply
from magmath.ops.elementwise import astype, call
from magmath.ops.joint_sums import SUM_AND_DOT, SUM_AND_SQUARES
from magmath.ops.leaves import constant
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import slice_along


@final
@dataclass(frozen=True)
class _Pair:
    """A sum, and a second sum over the same elements."""

    total: Node
    second: Node


def join_sums(graph: Graph) -> Graph:
    """Return the graph with pairs of sums of float32 or float64 as one operation each."""
    pairs = _pairs(graph)
    if not pairs:
        return graph
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        pair = pairs.get(node)
        if pair is not None and node not in new:
            new |= _joined(pair, new)
        elif pair is None:
            inputs = tuple(new[source] for source in node.inputs)
            new[node] = node.with_inputs(inputs)
    return graph.mapped(new)


def _pairs(graph: Graph) -> Mapping[Node, _Pair]:
    """Return the pair of each node that is part of one."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    totals = {
        (node.inputs[0], node.attributes["axis"]): node
        for node in graph.nodes
        if node.name == "sum" and node.dtype is node.inputs[0].dtype
    }
    pairs: dict[Node, _Pair] = {}
    for node in graph.nodes:
        if node.name not in ("centred_squares", "centred_dot") or not node.attributes["axis"]:
            continue
        total = totals.get((node.inputs[0], node.attributes["axis"]))
        if total is None or total in pairs:
            continue
        squares = node.name == "centred_squares"
        fits = node.dtype is float32 or (not squares and node.dtype is float64)
        # x and m must be known where Σ g is computed.
        fits = fits and (squares or all(number[x] < number[total] for x in node.inputs[1:]))
        if fits:
            pairs[total] = pairs[node] = _Pair(total, node)
    return pairs


def _joined(pair: _Pair, new: Mapping[Node, Node]) -> dict[Node, Node]:
    """Return the replacements of both sums of a pair."""
    total, second = pair.total, pair.second
    axis: AxisNumbers = second.attributes["axis"]
    x = second.inputs[0]
    if second.name == "centred_squares":
        joint = apply(SUM_AND_SQUARES, new[x], axis=axis, line=second.line)
    else:
        joint = apply(SUM_AND_DOT, *[new[v] for v in second.inputs], axis=axis, line=second.line)
    sums = [slice_along(joint, axis[0], i, i + 1) for i in range(2)]
    result = sums[1]
    if second.name == "centred_squares":
        count = constant(prod([x.shape[d] for d in axis]), float64)
        result = sums[1] - sums[0] * sums[0] / count
        result = call("maximum", result, constant(0, float64))  # rounding may make it negative
    return {
        total: reshape(astype(sums[0], total.dtype), total.shape),
        second: astype(result, second.dtype),
    }
