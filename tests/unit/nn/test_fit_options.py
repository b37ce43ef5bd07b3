"""The options of `fit`: one list of names, types and defaults for a trainer and a network."""

from __future__ import annotations

from inspect import signature
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import magmath as mm
from magmath.train.fit_request import FitOptions, FitRequest

FITS = {"trainer": mm.train.Trainer.fit, "network": mm.nn.NeuralNetwork.fit}


def _options(function: Any) -> dict[str, Any]:
    parameters = signature(function).parameters.values()
    return {x.name: x for x in parameters if x.kind is x.KEYWORD_ONLY}


def test_types_name_all_options() -> None:
    assert FitOptions.__annotations__.keys() == _options(FitRequest.of).keys()
    types, declared = get_type_hints(FitOptions), get_type_hints(FitRequest.of)
    assert all(get_args(types[x]) == get_args(declared[x]) for x in types)


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_help_shows_names_and_defaults(fit: Any) -> None:
    for name, parameter in _options(FitRequest.of).items():
        assert _options(fit)[name].default == parameter.default
        assert name in (mm.train.Trainer.fit.__doc__ or "")


@pytest.mark.parametrize("own", ["trainer", "network"])
def test_other_names_are_refused_with_the_list(own: str) -> None:
    network = mm.nn.NeuralNetwork([mm.nn.Dense(2)])
    fit = network.fit if own == "network" else network.trainer.fit
    x, y = np.zeros((4, 3), dtype=np.float32), np.zeros(4, dtype=np.int64)
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword.*epochs"):
        fit(x, y, epoch=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["module", "loss", "optimizer", "strategy", "precision", "seed"])
def test_arguments_of_the_constructor_are_named_as_such(name: str) -> None:
    trainer = mm.train.Trainer(mm.nn.Dense(2))
    with pytest.raises(TypeError, match=rf"{name!r}; give it to the constructor: Trainer.*{name}="):
        trainer.fit(np.zeros((4, 3)), np.zeros(4), **{name: None})  # type: ignore[misc]
    assert name in signature(mm.train.Trainer).parameters
    with pytest.raises(TypeError, match=r"'beta1'; give it to the constructor: Adam\(…, beta1=…\)"):
        mm.optim.Adam().minimize(mm.asarray(1.0), [], beta1=0.5)  # type: ignore[call-arg]
