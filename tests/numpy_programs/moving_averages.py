import numpy as np


def main():
    t = np.arange(250)
    prices = 100 + 5 * np.sin(t / 9.0) + 0.1 * t + np.cos(t * 1.3)
    window = 10
    simple = np.convolve(prices, np.ones(window) / window, mode="valid")
    sums = np.cumsum(np.insert(prices, 0, 0))
    assert np.allclose(simple, (sums[window:] - sums[:-window]) / window, atol=1e-3)
    exponential = np.empty_like(prices)
    exponential[0] = prices[0]
    for i in range(1, 40):
        exponential[i] = 0.2 * prices[i] + 0.8 * exponential[i - 1]
    returns = np.diff(prices) / prices[:-1]
    peak = np.maximum.accumulate(prices)
    drawdown = ((peak - prices) / peak).max()
    crossings = np.where(np.diff(np.sign(prices[window - 1 :] - simple)) != 0)[0]
    missing = np.where(t % 7 == 0, np.nan, prices)
    return (
        simple,
        exponential[:40],
        returns.std() * np.sqrt(252),
        drawdown,
        crossings,
        np.nanmean(missing),
    )
