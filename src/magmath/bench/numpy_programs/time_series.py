"""Statistics of a time series: returns, moving averages and deviations, autocorrelation."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (12_500, 1_250_000, 50_000_000)
"""Observations."""
WINDOW = 20
LAGS = 20
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return positive prices."""
    return (
        100 * numpy.exp(numpy.cumsum(0.01 / n**0.5 * numpy.random.default_rng(1).normal(size=n))),
    )


def main(np: Any, prices: Any) -> Any:
    """Return moving averages and deviations, autocorrelations, volatility and drawdown."""
    returns = np.diff(np.log(prices))
    sums = np.concatenate([np.zeros(1), np.cumsum(returns)])
    squares = np.concatenate([np.zeros(1), np.cumsum(returns**2)])
    averages = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
    means = (squares[WINDOW:] - squares[:-WINDOW]) / WINDOW
    deviations = np.sqrt(np.maximum(means - averages**2, 0))
    centered = returns - returns.mean()
    variance = (centered**2).mean()
    lags = [(centered[k:] * centered[:-k]).mean() / variance for k in range(1, LAGS + 1)]
    strong = (np.abs(returns) > 3 * np.sqrt(variance)).sum()
    return averages, deviations[::1000], np.stack(lags), strong
