"""Checkpoints: the complete state to resume training with the results of an uninterrupted run.

A checkpoint is one safetensors file, replaced atomically after each epoch. It has the module's
state, the optimizer states of each parameter, the loss scale, variables outside of the module that
the steps assign, such as a queue of the loss, the history, and as metadata the number of epochs,
the frozen parameters and the generator state. Schedules and callbacks that have a state store it
too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, final

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.core.unique_names import numbered
from magmath.engine.traces.stream_state import StreamState
from magmath.errors import MissingWeightsError, WeightsError
from magmath.graph import Shape
from magmath.nn.module import Module
from magmath.nn.state_file import read, read_metadata, write
from magmath.nn.variables import Parameter
from magmath.optim import LossScale, Optimizer
from magmath.optim.rates import load_schedule_states, schedule_states
from magmath.parallel.strategy import Strategy, Training
from magmath.train.history import EpochRecord, History
from magmath.train.listeners import Listener, listener_names
from magmath.train.state_tree import decode_state, encode_state

NAME = "checkpoint.safetensors"
HISTORY = "history.json"
FORMAT = 3  # the version of the metadata, which each change of their content increases
_MODULE, _OPTIMIZER, _STRATEGY = "module/", "optimizer/", "strategy/"
_LOSS_SCALE, _SCHEDULE, _CALLBACK = "loss_scale/", "schedule/", "callback/"
_OUTSIDE, _HISTORY = "outside/", "history"


class CheckpointTrainer(Protocol):
    """The attributes of a trainer that its checkpoint uses."""

    epochs_done: int
    stop_requested: bool

    @property
    def module(self) -> Module:
        """The trained module."""

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that updates its parameters."""

    @property
    def loss_scale(self) -> LossScale | None:
        """The scale of the loss, or None."""

    def stream(self) -> StreamState:
        """Return the generator state of layers without their own."""

    def prepare_strategy(self) -> tuple[Strategy, Training]:
        """Return the strategy, with its variables, and the module and optimizer that it trains."""


@final
class Checkpoint:
    """The checkpoint of a trainer in a folder, which is created if it does not exist.

    Raises MissingWeightsError if there cannot be such a folder.
    """

    def __init__(
        self,
        trainer: CheckpointTrainer,
        folder: str | os.PathLike[str],
        listeners: Sequence[Listener[Any]],
    ) -> None:
        self._trainer = trainer
        self._listeners = dict(zip(listener_names(listeners), listeners, strict=True))
        self._states: dict[str, Any] = {}
        """The restored states of listeners by name."""
        self._stopped_of: int | None = None
        """The number of epochs of the restored training if a callback has ended it before."""
        self._outside: dict[str, Variable] = {}
        """The variables outside of the module by name, see `include`."""
        self._outside_values: dict[str, Any] | None = None
        """Their restored values, until `include` assigns them."""
        self.folder = Path(folder)
        self.path = self.folder / NAME
        _make_folder(self.folder)

    def save(self, history: History, epochs: int) -> None:
        """Write the state after an epoch of a training with this number of epochs."""
        trainer = self._trainer
        arrays = {_MODULE + k: v for k, v in trainer.module.state_dict().items()}
        has_states = trainer.optimizer.variable_states.has_state_of
        frozen = {path: p for path, p in _parameters(trainer.module) if not p.trainable}
        paused = [path for path, p in frozen.items() if has_states(p)]
        states_of = self._optimizer_states(paused)
        arrays |= {_OPTIMIZER + k: v.snapshot() for k, v in states_of.items()}
        arrays |= {_STRATEGY + k: v.snapshot() for k, v in self._strategy_state().items()}
        arrays |= {_LOSS_SCALE + k: v.snapshot() for k, v in self._loss_scale_state().items()}
        arrays |= {_OUTSIDE + k: v.snapshot() for k, v in self._outside.items()}
        schedules = self._encode(
            _SCHEDULE, schedule_states(trainer.optimizer.learning_rates), arrays
        )
        states = {name: x.state_dict() for name, x in self._listeners.items()}
        callbacks = self._encode(_CALLBACK, states, arrays)
        recorded = {
            "strategy": history.strategy,
            "steps": history.step_losses,
            "records": [asdict(record) for record in history.records],
        }
        stream = trainer.stream()
        rate = trainer.optimizer.learning_rate
        content: dict[str, Any] = {
            "format": FORMAT,
            "epochs": trainer.epochs_done,
            "seed": stream.seed,
            "next_stream": stream.next,
            "strategy": trainer.prepare_strategy()[0].label,
            "optimizer": type(trainer.optimizer).__name__,
            "optimizer_steps": trainer.optimizer.steps,
            "learning_rate": None if callable(rate) else float(rate),
            "schedules": schedules,
            "callbacks": callbacks,
            "frozen": list(frozen),
            "paused": paused,
            "stopped_of": epochs if trainer.stop_requested else None,
            "history": encode_state("the history", recorded, _HISTORY, arrays),
        }
        write(self.path, arrays, {"training": json.dumps(content)})
        history.save(self.folder / HISTORY)

    def restore(self) -> History | None:
        """Restore the trainer from the checkpoint; return its history, or None if there is no file.

        Parameters are frozen that were frozen when it was written, and no others. Variables outside
        of the module get their values in `include`. Raises WeightsError if it belongs to another
        module or optimizer, or to another version of magmath; then the module is as before.
        """
        if not self.path.exists():
            return None
        tensors, metadata = read(self.path)
        content = _content(self.path, metadata)
        module = self._trainer.module
        before = [path for path, p in _parameters(module) if not p.trainable]
        _freeze_only(module, content["frozen"])
        try:
            return self._restore(tensors, content)
        except WeightsError:
            _freeze_only(module, before)
            raise

    def _restore(self, tensors: Mapping[str, Any], content: Mapping[str, Any]) -> History:
        """Restore the trainer from the arrays and the metadata of a checkpoint."""
        trainer = self._trainer
        strategy, training = trainer.prepare_strategy()
        saved = {k: v for k, v in tensors.items() if k.startswith(_STRATEGY)}
        tensors = {**tensors, **strategy.fitted_state(training, saved, _STRATEGY)}
        optimizer_states = self._optimizer_states(content["paused"], tensors)
        variables = {
            **{_OPTIMIZER + name: v for name, v in optimizer_states.items()},
            **{_STRATEGY + name: v for name, v in strategy.state(training).items()},
            **{_LOSS_SCALE + name: v for name, v in self._loss_scale_state().items()},
        }
        self._check_fits(tensors, variables, strategy, content)
        schedules, callbacks = [
            {name: decode_state(state, tensors) for name, state in content[kind].items()}
            for kind in ("schedules", "callbacks")
        ]
        history = _history(decode_state(content["history"], tensors))
        trainer.module.load_state_dict(
            {k.removeprefix(_MODULE): v for k, v in tensors.items() if k.startswith(_MODULE)}
        )
        for name, v in variables.items():
            v.assign(tensors[name])
        strategy.accept(training)
        self._restore_numbers(content)
        load_schedule_states(trainer.optimizer.learning_rates, schedules)
        self._states = callbacks
        self._stopped_of = content["stopped_of"]
        self._outside_values = {
            k.removeprefix(_OUTSIDE): v for k, v in tensors.items() if k.startswith(_OUTSIDE)
        }
        return history

    def include(self, variables: Sequence[Variable]) -> None:
        """Save these variables too, which are those outside of the module that the steps assign.

        The first call after `restore` with those of the checkpoint assigns them their values:
        callbacks may assign the loss to which they belong later than the trainer is made.
        """
        names = numbered([v.name for v in variables])
        self._outside = dict(zip(names, variables, strict=True))
        values = self._outside_values
        if values is None:
            return
        saved = {name: tuple(value.shape) for name, value in values.items()}
        if saved == {name: v.shape for name, v in self._outside.items()}:
            for name, v in self._outside.items():
                v.assign(values[name])
            self._outside_values = None

    def check_included(self) -> None:
        """Raise WeightsError if the checkpoint has the values of other variables outside of the
        module than were included since `restore`."""
        if self._outside_values is not None:
            raise WeightsError(
                f"fit: the checkpoint {self.path} belongs to steps that assign the variables "
                f"{', '.join(self._outside_values) or '(none)'} outside of the module, and these "
                f"assign {', '.join(self._outside) or '(none)'}; give the same loss, or another "
                f"folder"
            )

    def _check_fits(
        self,
        tensors: Mapping[str, Any],
        variables: Mapping[str, Variable],
        strategy: Strategy,
        content: Mapping[str, Any],
    ) -> None:
        """Raise WeightsError if the arrays of a checkpoint, with this metadata, are not those of
        this training."""

        def saved(prefix: str) -> dict[str, Shape]:
            return {k: tuple(v.shape) for k, v in tensors.items() if k.startswith(prefix)}

        def own(prefix: str) -> dict[str, Shape]:
            return {k: v.shape for k, v in variables.items() if k.startswith(prefix)}

        self._check_module(saved(_MODULE))
        if own(_STRATEGY) != saved(_STRATEGY):
            raise WeightsError(
                f"fit: the checkpoint {self.path} belongs to another strategy than "
                f"{strategy.label}, to {content['strategy']}; give the same strategy, or another "
                f"folder"
            )
        optimizer = content["optimizer"]
        own_class = type(self._trainer.optimizer).__name__
        if own_class != optimizer or own(_OPTIMIZER).keys() != saved(_OPTIMIZER).keys():
            raise WeightsError(
                f"fit: the checkpoint {self.path} belongs to the optimizer {optimizer} or "
                f"to other parameters than {self._trainer.optimizer} updates; give the same "
                "module and optimizer, or another folder"
            )
        if own(_LOSS_SCALE).keys() != saved(_LOSS_SCALE).keys():
            scales = bool(own(_LOSS_SCALE))
            raise WeightsError(
                f"fit: the checkpoint {self.path} was written with"
                f"{'out' if scales else ''} loss scaling, this training is with"
                f"{'' if scales else 'out'} it; give the same precision, or another folder"
            )

    def _check_module(self, saved: Mapping[str, Shape]) -> None:
        """Raise WeightsError if the shapes of a checkpoint's arrays are not those of the module."""
        state = self._trainer.module.state_dict()
        own = {_MODULE + path: tuple(value.shape) for path, value in state.items()}
        different = [k for k in {**own, **saved} if own.get(k) != saved.get(k)]
        if different:
            first = different[0]
            others = f", and {len(different) - 1} more differ" if len(different) > 1 else ""
            raise WeightsError(
                f"fit: the checkpoint {self.path} belongs to another module: "
                f"{first.removeprefix(_MODULE)} is {_described(saved.get(first))} there and "
                f"{_described(own.get(first))} here{others}; give the same module, or another "
                f"folder"
            )

    def restore_listeners(self) -> None:
        """Restore the states of listeners; those without one keep their initial state."""
        for name, state in self._states.items():
            if name in self._listeners:
                self._listeners[name].load_state_dict(state)
        self._states = {}

    def is_complete(self, epochs: int) -> bool:
        """Return True if a callback has ended the restored training, and if it is to have no more
        than the epochs that it was to have then."""
        return self._stopped_of is not None and epochs <= self._stopped_of

    def _encode(
        self, kind: str, states: Mapping[str, Mapping[str, Any]], arrays: dict[str, Array]
    ) -> dict[str, Any]:
        """Return states by name for the metadata; add their arrays to `arrays`."""
        return {
            name: encode_state(name, state, kind + name, arrays)
            for name, state in states.items()
            if state
        }

    def _restore_numbers(self, content: Mapping[str, Any]) -> None:
        trainer, stream = self._trainer, self._trainer.stream()
        stream.seed, stream.next = content["seed"], content["next_stream"]
        trainer.epochs_done = content["epochs"]
        trainer.optimizer.restore_steps(content["optimizer_steps"])
        if content["learning_rate"] is not None and not callable(trainer.optimizer.learning_rate):
            trainer.optimizer.learning_rate = content["learning_rate"]

    def _strategy_state(self) -> Mapping[str, Variable]:
        """Return the variables of the strategy by name."""
        strategy, training = self._trainer.prepare_strategy()
        return strategy.state(training)

    def _loss_scale_state(self) -> Mapping[str, Variable]:
        """Return the variables of the loss scale by name."""
        scale = self._trainer.loss_scale
        return {} if scale is None else scale.state()

    def _optimizer_states(
        self, paused: Collection[str], saved: Mapping[str, Any] | None = None
    ) -> dict[str, Variable]:
        """Return the optimizer states by the path of the parameter, also of the frozen parameters
        with the paths `paused`, which were trained before.

        saved   the arrays of a checkpoint: only parameters with equal step counts share one
        """
        strategy, training = self._trainer.prepare_strategy()
        paths = {id(v): path for path, v in training.module.named_parameters()}
        trained = [paths[id(p)] for p in training.parameters]
        updated: list[tuple[str, Variable]]
        updated = list(zip(trained, strategy.updated(training), strict=True))
        paused_parameters: list[tuple[str, Variable]]
        paused_parameters = [
            (path, p) for path, p in _parameters(training.module) if path in paused
        ]
        states_of = training.optimizer.variable_states.of
        states_by_path: dict[str, Variable] = {}
        for variables in filter(None, [updated, paused_parameters]):
            for alike in _with_equal_counts(variables, saved) if saved is not None else ():
                states_of(alike)
            states = states_of([v for _, v in variables])
            for (path, _), entry in zip(variables, states, strict=True):
                states_by_path |= {f"{path}/{name}": state for name, state in entry.states.items()}
                if entry.count is not None:
                    states_by_path[f"{path}/count"] = entry.count
        return states_by_path


def _with_equal_counts(
    variables: Sequence[tuple[str, Variable]], saved: Mapping[str, Any]
) -> list[list[Variable]]:
    """Return variables, given with the paths of their parameters, that have equal step counts."""
    groups: dict[int, list[Variable]] = {}
    for path, v in variables:
        groups.setdefault(int(saved.get(f"{_OPTIMIZER}{path}/count", 0)), []).append(v)
    return list(groups.values())


def _parameters(module: Module) -> list[tuple[str, Parameter]]:
    """Return the parameters that can be frozen, with their paths."""
    return [(path, p) for path, p in module.named_parameters() if isinstance(p, Parameter)]


def _make_folder(folder: Path) -> None:
    """Create a folder unless it exists. Raises MissingWeightsError if a file is in its place, or in
    that of a folder above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        raise MissingWeightsError(
            f"fit: checkpoint needs a folder, was given '{folder}', and {file} is a file; give the "
            f"path of a folder, such as checkpoint='{file}.checkpoint'"
        ) from None


def _freeze_only(module: Module, paths: Collection[str]) -> None:
    """Freeze the parameters with these paths, and no others."""
    frozen = {path for path, p in _parameters(module) if not p.trainable}
    if frozen != set(paths):
        module.unfreeze(lambda path, p: isinstance(p, Parameter))
        module.freeze(lambda path, p: isinstance(p, Parameter) and path in paths)


def _described(shape: Shape | None) -> str:
    return "missing" if shape is None else f"of shape {shape}"


def epochs_in(folder: str | os.PathLike[str]) -> int | None:
    """Return the number of epochs of the checkpoint in a folder, None if there is none. Raises as
    `Checkpoint.restore` for a damaged file and for one that is not a checkpoint."""
    path = Path(folder) / NAME
    return int(_content(path, read_metadata(path))["epochs"]) if path.exists() else None


def _content(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a checkpoint. Raises WeightsError for other files, and for checkpoints
    of another format."""
    try:
        content: dict[str, Any] = json.loads(metadata["training"])
    except (KeyError, ValueError):
        raise WeightsError(f"fit: {path} is not a checkpoint of fit; give another folder") from None
    if content.get("format") != FORMAT:
        raise WeightsError(
            f"fit: the checkpoint {path} was written by another version of magmath; give another "
            f"folder"
        )
    return content


def _history(content: dict[str, Any]) -> History:
    records = [EpochRecord(**record) for record in content["records"]]
    return History(records, content["steps"], content["strategy"])
