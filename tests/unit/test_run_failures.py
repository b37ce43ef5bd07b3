"""Failures of runs: those of calls, and those that kernels report in the memory of their device."""

from __future__ import annotations

import pytest
import torch

from magmath.executor.run_failures import RunFailures
from magmath.program.instructions import Call

CALL = Call("gather", {}, (0,), 1, ("file.py", 3))


def index_error(number: int) -> Exception:
    return IndexError(f"index {number}")


def reporting(failures: RunFailures, check: int = 0) -> torch.Tensor:
    record = failures.record_of(CALL, index_error, check)
    assert record is not None
    return record


def test_the_first_failure_is_raised_once_with_its_line() -> None:
    failures = RunFailures(torch.device("cpu"))
    failures.begin()
    reporting(failures, 1).copy_(torch.tensor([1, 8]))
    reporting(failures).copy_(torch.tensor([1, 7]))
    failures.errors.append(ValueError("of a call"))
    with pytest.raises(ValueError, match="of a call") as caught:
        failures.raise_first()
    assert caught.value.is_in_step  # type: ignore[attr-defined]
    failures.raise_first()
    reporting(failures).copy_(torch.tensor([1, 7]))
    with pytest.raises(IndexError, match="index 7") as reported:
        failures.raise_first()
    assert reported.value.user_line == "file.py:3"  # type: ignore[attr-defined]
    failures.raise_first()


def test_no_run_raises_what_an_earlier_one_has_left() -> None:
    """A run that ends with another exception reads no reports."""
    failures = RunFailures(torch.device("cpu"))
    failures.begin()
    reporting(failures).copy_(torch.tensor([1, 7]))
    failures.errors.append(ValueError("of a call"))
    failures.begin()
    failures.raise_first()


def test_kernels_without_a_device_raise_their_errors() -> None:
    assert RunFailures().record_of(CALL, index_error, 0) is None
