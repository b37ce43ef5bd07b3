"""Prices of an Asian and a European option by Monte Carlo."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (1_040, 104_000, 4_170_000)
"""Paths."""
STEPS = 12
JAX = DASK = True


def data(n: int) -> tuple[Any, ...]:
    """Return normal numbers of shape (12, n), the same for every library."""
    return (numpy.random.default_rng(1).standard_normal((STEPS, n)),)


def main(np: Any, normal: Any) -> Any:
    """Return the price of the Asian option, its standard error, and the price of the European
    one."""
    spot, strike, rate, volatility, years = 100.0, 105.0, 0.03, 0.25, 1.0
    dt = years / STEPS
    drift = (rate - 0.5 * volatility**2) * dt
    logs = np.cumsum(drift + volatility * dt**0.5 * normal, axis=0)
    paths = spot * np.exp(logs)
    asian = np.exp(-rate * years) * np.maximum(paths.mean(axis=0) - strike, 0.0)
    european = np.exp(-rate * years) * np.maximum(paths[-1] - strike, 0.0)
    return asian.mean(), asian.std() / normal.shape[1] ** 0.5, european.mean()


def with_numexpr(np: Any, normal: Any) -> Any:
    """Return the same with the paths by numexpr."""
    import numexpr

    spot, strike, rate, volatility, years = 100.0, 105.0, 0.03, 0.25, 1.0
    dt = years / STEPS
    drift, spread = (rate - 0.5 * volatility**2) * dt, volatility * dt**0.5
    names = {"drift": drift, "spread": spread, "normal": normal, "spot": spot}
    steps = np.cumsum(numexpr.evaluate("drift + spread * normal", local_dict=names), axis=0)
    paths = numexpr.evaluate("spot * exp(steps)", local_dict={"spot": spot, "steps": steps})
    asian = np.exp(-rate * years) * np.maximum(paths.mean(axis=0) - strike, 0.0)
    european = np.exp(-rate * years) * np.maximum(paths[-1] - strike, 0.0)
    return asian.mean(), asian.std() / normal.shape[1] ** 0.5, european.mean()
