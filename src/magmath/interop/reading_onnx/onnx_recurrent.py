"""ONNX's recurrent networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator
from magmath.nn.recurrence import RecurrentState, lstm_step

RecurrentStep = Callable[[RecurrentState, mm.Array], RecurrentState]


def _recurrent(kind: str) -> Operator:
    """Return the operator of a kind of cell: the outputs, and the last states."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]

    def operator(
        call: OnnxCall,
        x: OnnxValue,
        w: OnnxValue,
        r: OnnxValue,
        b: OnnxValue = None,
        lengths: OnnxValue = None,
        hidden: OnnxValue = None,
        cell: OnnxValue = None,
        peepholes: OnnxValue = None,
    ) -> tuple[mm.Array, ...]:
        x = mm.asarray(x)
        batch_first = call.get("layout", 0)
        states = [hidden, cell] if kind == "LSTM" else [hidden]
        if batch_first:
            x = mm.swapaxes(x, 0, 1)
            states = [None if s is None else mm.swapaxes(s, 0, 1) for s in states]
        _check(call, x, lengths, kind)
        units, directions = r.shape[-1], w.shape[0]
        zeros = mm.zeros((directions, x.shape[1], units), dtype=x.dtype)
        first = [zeros if s is None else s for s in states]
        ends, outputs = [], []
        for d in range(directions):
            width = gates * units
            both = mm.zeros((2 * width,), dtype=x.dtype) if b is None else b[d]
            of_input, of_hidden, bias, own = (
                _in_order(kind, rows) for rows in (w[d], r[d], both[:width], both[width:])
            )
            added = x @ mm.matrix_transpose(of_input) + bias
            p = None if peepholes is None else peepholes[d]
            step = _CELLS[kind](call, mm.matrix_transpose(of_hidden), own, p, d)
            backwards = d == 1 or call.get("direction") == "reverse"

            def scanned(states: RecurrentState, row: mm.Array, step: RecurrentStep = step) -> Any:
                following = step(states, row)
                return following, following[0]

            end, found = mm.scan(scanned, tuple([s[d] for s in first]), added, reverse=backwards)
            ends.append(end)
            outputs.append(found)
        whole = mm.stack(outputs, axis=1)
        last = [mm.stack(list(parts)) for parts in zip(*ends, strict=True)]
        if batch_first:
            return (
                mm.permute_dims(whole, (2, 0, 1, 3)),
                *[mm.swapaxes(state, 0, 1) for state in last],
            )
        return (whole, *last)

    return operator


def _in_order(kind: str, rows: mm.Array) -> mm.Array:
    """Return the rows of all gates in PyTorch's order for an LSTM; ONNX has those that let in, let
    out, keep, and are new."""
    if kind != "LSTM":
        return rows
    units = rows.shape[0] // 4
    enter, leave, keep, new = (rows[i * units : (i + 1) * units] for i in range(4))
    return mm.concat([enter, keep, new, leave])


def _check(call: OnnxCall, x: mm.Array, lengths: OnnxValue, kind: str) -> None:
    if lengths is not None and (np.asarray(lengths) != x.shape[0]).any():
        raise call.unsupported("with sequences of several lengths is not available")
    for name in ("clip", "input_forget"):
        if call.get(name, 0):
            raise call.unsupported(f"with {name} is not available")
    if kind == "RNN":
        return
    usual = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[kind]
    given = call.get("activations") or usual
    if [name.lower() for name in given] != [name.lower() for name in usual] * (
        len(given) // len(usual)
    ):
        raise call.unsupported(f"with the activations {given} is not available; use {usual}")


def _rnn(
    call: OnnxCall, r: mm.Array, bias: mm.Array, peepholes: Any, direction: int
) -> RecurrentStep:
    names = call.get("activations") or ["Tanh"]
    functions: dict[str, Any] = {"Tanh": mm.tanh, "Relu": mm.relu, "Sigmoid": mm.sigmoid}
    name = names[direction % len(names)].capitalize()
    if name not in functions:
        raise call.unsupported(f"with the activation {name} is not available; use Tanh or Relu")
    return lambda states, row: (functions[name](row + states[0] @ r + bias),)


def _gru(
    call: OnnxCall, r: mm.Array, bias: mm.Array, peepholes: Any, direction: int
) -> RecurrentStep:
    units = r.shape[0]
    two = slice(0, 2 * units)
    late = slice(2 * units, None)

    def step(states: RecurrentState, row: mm.Array) -> RecurrentState:
        (hidden,) = states
        gates = mm.sigmoid(row[..., two] + hidden @ r[:, two] + bias[two])
        update, reset = gates[..., :units], gates[..., units:]
        if call.get("linear_before_reset", 0):
            own = reset * (hidden @ r[:, late] + bias[late])
        else:
            own = (reset * hidden) @ r[:, late] + bias[late]
        new = mm.tanh(row[..., late] + own)
        return ((1.0 - update) * new + update * hidden,)

    return step


def _lstm(
    call: OnnxCall, r: mm.Array, bias: mm.Array, peepholes: Any, direction: int
) -> RecurrentStep:
    units, seen = r.shape[0], None
    if peepholes is not None:
        seen = [peepholes[i * units : (i + 1) * units] for i in (0, 2, 1)]
    return lambda state, row: lstm_step(row, state[0] @ r + bias, state, seen)


_CELLS: dict[str, Callable[..., RecurrentStep]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
RECURRENT: dict[str, Operator] = {kind: _recurrent(kind) for kind in _CELLS}
