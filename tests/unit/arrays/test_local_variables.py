"""Variables that a traced function makes: each run of Python makes new ones, a program does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.errors import TracingError


def counting(x: Any) -> Any:
    """A function that makes a variable and assigns it."""
    v = mm.variable("v", [1.0, 2.0])
    v += x
    return mm.sum(v)


CALLS: dict[str, Callable[[mm.Array], Any]] = {
    "compile": mm.compile(counting),
    "fori_loop": lambda x: mm.fori_loop(0, 3, lambda i, c: c + counting(c), x),
    "scan": lambda x: mm.scan(lambda c, r: (c + counting(r), c), x, mm.arange(3.0)),
    "while_loop": lambda x: mm.while_loop(lambda c: c < 20, lambda c: c + counting(c), x),
    "loop in compile": mm.compile(lambda x: mm.fori_loop(0, 3, lambda i, c: counting(c), x)),
    "remat in compile": mm.compile(mm.remat(counting)),
    "vmap in compile": mm.compile(lambda x: mm.vmap(lambda y: counting(1.0) + y)(x + mm.ones(3))),
    "cond in compile": mm.compile(lambda x: mm.cond(x > 0, counting, counting, x)),
    "grad in compile": mm.compile(mm.grad(counting)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_variable_that_a_program_would_keep_is_an_error(name: str) -> None:
    with current("inline"):
        x = mm.asarray(1.0)
        for _ in range(2):  # also after the failure
            with pytest.raises(TracingError, match=r"makes variable v and assigns|reads variable"):
                CALLS[name](x)
        assert float(counting(x)) == 5


def test_a_loss_of_fit_that_makes_a_variable_is_an_error() -> None:
    def loss(outputs: Any, targets: Any) -> Any:
        return mm.mean((outputs - targets) ** 2) + counting(1.0)

    with current("inline"):
        trainer = mm.train.Trainer(mm.nn.Dense(1), loss=loss)
        with pytest.raises(TracingError, match="fit: the function makes variable v and assigns it"):
            trainer.fit(np.ones((4, 2), np.float32), np.ones((4, 1), np.float32))


def test_variables_that_others_refer_to_or_that_keep_their_value_are_made() -> None:
    with current("inline"):
        norm, kept = mm.nn.Sequential(mm.nn.Dense(3), mm.nn.BatchNorm()), []

        @mm.compile
        def built(x: Any) -> Any:
            return norm(x)

        @mm.compile
        def stored(x: Any) -> Any:
            if not kept:
                kept.append(mm.variable("v", 1.0))
            kept[0].assign(kept[0] + x)
            return kept[0] * 1

        @mm.compile
        def differentiated(x: Any) -> Any:
            w = mm.variable("w", [3.0, 4.0])
            return mm.grad(mm.sum(w * w * x), w)

        x = mm.asarray(np.random.default_rng(0).normal(size=(5, 2)))
        built(x)
        before = norm[1].running_mean.numpy()
        built(x)
        assert (norm[1].running_mean.numpy() != before).all()
        assert [float(stored(mm.asarray(1.0))) for _ in range(3)] == [2, 3, 4]
        assert differentiated(mm.asarray(1.0)).tolist() == [6, 8]
