"""ONNX's recurrent networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

import magmath as mm
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator
from magmath.nn.recurrence import RecurrentState, lstm_step

ScanStep = Callable[[RecurrentState, mm.Array], RecurrentState]
"""(states, products of a row of inputs) → the next states."""


@final
class _Weights(NamedTuple):
    """The weights of one direction, for products with rows of inputs and of hidden states."""

    of_input: mm.Array
    of_hidden: mm.Array
    input_bias: mm.Array
    hidden_bias: mm.Array
    peepholes: OnnxValue


def _recurrent(kind: str) -> Operator:
    """Return the operator of a kind of cell: the outputs, and the last states."""

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
        is_batch_first = call.get("layout", 0)
        states = [hidden, cell] if kind == "LSTM" else [hidden]
        if is_batch_first:
            x = mm.swapaxes(x, 0, 1)
            states = [None if s is None else mm.swapaxes(s, 0, 1) for s in states]
        _check(call, x, lengths, kind)
        directions, units = w.shape[0], r.shape[-1]
        zeros = mm.zeros((directions, x.shape[1], units), dtype=x.dtype)
        initial = [zeros if s is None else s for s in states]
        finals, outputs = [], []
        for d in range(directions):
            weights = _weights(kind, d, w, r, b, peepholes)
            step = _CELLS[kind](call, weights, d)
            rows = x @ weights.of_input + weights.input_bias
            is_reverse = d == 1 or call.get("direction") == "reverse"
            start = tuple([s[d] for s in initial])
            final, output = _outputs_of_direction(step, start, rows, is_reverse)
            finals.append(final)
            outputs.append(output)
        whole = mm.stack(outputs, axis=1)
        last = [mm.stack(list(parts)) for parts in zip(*finals, strict=True)]
        if is_batch_first:
            whole = mm.permute_dims(whole, (2, 0, 1, 3))
            last = [mm.swapaxes(state, 0, 1) for state in last]
        return (whole, *last)

    return operator


def _outputs_of_direction(
    step: ScanStep, initial: RecurrentState, rows: mm.Array, is_reverse: bool
) -> tuple[RecurrentState, mm.Array]:
    """Return the last states, and the hidden states after each row."""

    def body(states: RecurrentState, row: mm.Array) -> tuple[RecurrentState, mm.Array]:
        following = step(states, row)
        return following, following[0]

    final, outputs = mm.scan(body, initial, rows, reverse=is_reverse)
    return final, outputs


def _weights(
    kind: str, direction: int, w: OnnxValue, r: OnnxValue, b: OnnxValue, peepholes: OnnxValue
) -> _Weights:
    width = w.shape[1]
    biases = mm.zeros((2 * width,), dtype=w.dtype) if b is None else b[direction]
    of_input, of_hidden, input_bias, hidden_bias = (
        _in_order(kind, rows)
        for rows in (w[direction], r[direction], biases[:width], biases[width:])
    )
    return _Weights(
        mm.matrix_transpose(of_input),
        mm.matrix_transpose(of_hidden),
        input_bias,
        hidden_bias,
        None if peepholes is None else peepholes[direction],
    )


def _in_order(kind: str, rows: mm.Array) -> mm.Array:
    """Return the rows of all gates in PyTorch's order for an LSTM: input, forget, cell, output;
    ONNX has them in the order input, output, forget, cell."""
    if kind != "LSTM":
        return rows
    units = rows.shape[0] // 4
    enter, leave, forget, new = (rows[i * units : (i + 1) * units] for i in range(4))
    return mm.concat([enter, forget, new, leave])


def _check(call: OnnxCall, x: mm.Array, lengths: OnnxValue, kind: str) -> None:
    if lengths is not None and (np.asarray(lengths) != x.shape[0]).any():
        raise call.unsupported("with sequences of several lengths is not available")
    for name in ("clip", "input_forget"):
        if call.get(name, 0):
            raise call.unsupported(f"with {name} is not available")
    if kind == "RNN":
        return
    defaults = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[kind]
    names = [name.capitalize() for name in call.get("activations") or defaults]
    if names != defaults * (len(names) // len(defaults)):
        raise call.unsupported(f"with the activations {names} is not available; use {defaults}")


def _rnn(call: OnnxCall, weights: _Weights, direction: int) -> ScanStep:
    names = call.get("activations") or ["Tanh"]
    functions: dict[str, Any] = {"Tanh": mm.tanh, "Relu": mm.relu, "Sigmoid": mm.sigmoid}
    name = names[direction % len(names)].capitalize()
    if name not in functions:
        raise call.unsupported(f"with the activation {name} is not available; use Tanh or Relu")

    def step(states: RecurrentState, row: mm.Array) -> RecurrentState:
        (hidden,) = states
        return (functions[name](row + hidden @ weights.of_hidden + weights.hidden_bias),)

    return step


def _gru(call: OnnxCall, weights: _Weights, direction: int) -> ScanStep:
    r, bias = weights.of_hidden, weights.hidden_bias
    units = r.shape[0]
    of_gates, of_new = slice(0, 2 * units), slice(2 * units, None)

    def step(states: RecurrentState, row: mm.Array) -> RecurrentState:
        (hidden,) = states
        gates = mm.sigmoid(row[..., of_gates] + hidden @ r[:, of_gates] + bias[of_gates])
        update, reset = gates[..., :units], gates[..., units:]
        if call.get("linear_before_reset", 0):
            recurrent = reset * (hidden @ r[:, of_new] + bias[of_new])
        else:
            recurrent = (reset * hidden) @ r[:, of_new] + bias[of_new]
        new = mm.tanh(row[..., of_new] + recurrent)
        return ((1.0 - update) * new + update * hidden,)

    return step


def _lstm(call: OnnxCall, weights: _Weights, direction: int) -> ScanStep:
    units, peepholes = weights.of_hidden.shape[0], None
    if weights.peepholes is not None:  # of input, output and forget gate
        peepholes = [weights.peepholes[i * units : (i + 1) * units] for i in (0, 2, 1)]

    def step(states: RecurrentState, row: mm.Array) -> RecurrentState:
        recurrent = states[0] @ weights.of_hidden + weights.hidden_bias
        return lstm_step(row, recurrent, states, peepholes)

    return step


_CELLS: dict[str, Callable[..., ScanStep]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
RECURRENT: dict[str, Operator] = {kind: _recurrent(kind) for kind in _CELLS}
