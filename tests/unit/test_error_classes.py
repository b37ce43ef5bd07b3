"""Every error has a class that says its cause, is a built-in exception too, and is documented."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath import errors

ROOT = Path(__file__).parents[2]
CLASSES = [getattr(errors, name) for name in errors.__all__ if name != "MagmathError"]


def test_the_base_class_is_never_raised_itself() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "src/magmath").rglob("*.py")
        if "MagmathError" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Call, ast.Raise))
        and ast.unparse(node.func if isinstance(node, ast.Call) else node.exc or ast.Constant(0))
        in ("MagmathError", "errors.MagmathError")
    ]
    assert calls == [], "raise a derived class, such as OptionError or StateError"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_classes_derive_from_a_built_in_exception_and_are_documented(
    kind: type[Exception],
) -> None:
    assert issubclass(kind, errors.MagmathError)
    built_in = [base for base in kind.__mro__ if base.__module__ == "builtins"]
    assert set(built_in) - {Exception, BaseException, object}
    assert f"`{kind.__name__}`" in (ROOT / "docs/arrays.md").read_text(encoding="utf-8")


def _net() -> Any:
    return mm.nn.NeuralNetwork([mm.nn.Dense(2)])


def _frozen() -> Any:
    layer = mm.nn.Dense(2).build((1, 3))
    layer.freeze()
    return layer


X, Y = np.zeros((4, 3)), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: _net().fit(X, Y, resume=True), errors.OptionError),
        (lambda: _net().fit(X, Y, restarts=1), errors.OptionError),
        (lambda: _net().fit(X, Y, strategy=mm.parallel.Auto), errors.OptionError),
        (lambda: mm.nn.NeuralNetwork([mm.nn.Dense(2)], optimizer=mm.optim.Adam), errors.OptionError),
        (lambda: mm.vmap(mm.sin, in_axes=(0, 0))(mm.ones(3)), errors.OptionError),
        (lambda: mm.scan(lambda c, x: (c, x), mm.ones(3)), errors.OptionError),
        (lambda: mm.compile(lambda x: {1, 2})(mm.ones(3)), errors.OptionError),
        (lambda: _net().summary(), errors.StateError),
        (lambda: _net().explain(), errors.StateError),
        (lambda: mm.compile(mm.sin).explain(), errors.StateError),
        (lambda: mm.nn.Dense(2).parameters(), errors.StateError),
        (lambda: mm.train.Trainer(_frozen()).fit(X, Y), errors.StateError),
        (lambda: mm.grad(lambda x: mm.sum(mm.linalg.qr(x, "complete")[0]))(mm.ones((3, 2))),
         errors.GradientError),
    ],
)  # fmt: skip
def test_mistakes_have_the_class_of_their_cause(
    call: Callable[[], object], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert raised.type is kind
