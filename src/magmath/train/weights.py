"""Weights in safetensors files: written whole or not at all, checked before anything is changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.core.atomic_replace import atomic_replace
from magmath.errors import MagmathError, WeightsError
from magmath.memory.torch_dtypes import to_torch

if TYPE_CHECKING:
    from magmath.train.network import NeuralNetwork


def save(network: NeuralNetwork, path: str | os.PathLike[str]) -> None:
    """Write all parameters, with the layers and the sample shape as metadata."""
    from safetensors.torch import save as encode

    if network.input_shape is None:
        raise MagmathError("save: the network is not built; there are no parameters to save")
    tensors = {
        name: v.data.pool.get(v.data.handle).contiguous() for name, v in network.parameters.items()
    }
    metadata = {
        "format": "magmath-1",
        "layers": json.dumps([str(layer) for layer in network.layers]),
        "input_shape": json.dumps(network.input_shape),
    }
    target = Path(path)
    if not target.parent.is_dir():
        raise WeightsError(f"save: there is no folder {target.parent}; make it first")
    with atomic_replace(target) as draft:
        Path(draft).write_bytes(encode(tensors, metadata))


def load(network: NeuralNetwork, path: str | os.PathLike[str]) -> None:
    """Read all parameters; builds the network if it is not built."""
    tensors, metadata = _read(path)
    if network.input_shape is None:
        network.build(_sample_shape(path, metadata))
    expected = {name: v.shape for name, v in network.parameters.items()}
    given = {name: tuple(t.shape) for name, t in tensors.items()}
    if expected != given:
        raise WeightsError(
            f"load: {path} belongs to another network: {_difference(expected, given)}"
        )
    for name, v in network.parameters.items():
        if not np.all(np.isfinite(tensors[name].double().numpy())):
            raise WeightsError(f"load: {path}: parameter {name} holds nan or infinite values")
        v.assign(tensors[name].to(to_torch(v.dtype)))


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if not Path(path).exists():
        raise WeightsError(
            f"load: there is no file {path}; give the path of one that net.save(path) has written"
        )
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"load: {path} is not a safetensors file, or is damaged: {error}"
        ) from error


def _sample_shape(path: str | os.PathLike[str], metadata: dict[str, str]) -> tuple[int, ...]:
    try:
        return tuple(int(n) for n in json.loads(metadata["input_shape"]))
    except (KeyError, ValueError, TypeError):
        raise WeightsError(
            f"load: {path} does not say what samples it is for; call net.build(sample_shape) first"
        ) from None


def _difference(expected: dict[str, Any], given: dict[str, Any]) -> str:
    for name in [*expected, *given]:
        if expected.get(name) != given.get(name):
            ours = expected.get(name, "no such parameter")
            theirs = given.get(name, "no such parameter")
            return f"{name} is {ours} in the network, {theirs} in the file"
    return "the parameters differ"
