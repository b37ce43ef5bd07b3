import numpy as np


def main():
    rng = np.random.default_rng(0)
    points = rng.uniform(-1.0, 1.0, size=(40_000, 2))
    inside = (points**2).sum(axis=1) <= 1.0
    estimate = 4.0 * inside.mean()
    error = 4.0 * inside.std(ddof=1) / np.sqrt(len(points))
    walks = np.cumsum(rng.choice([-1, 1], size=(500, 100)), axis=1)
    spread = np.sqrt(np.mean(walks[:, -1] ** 2.0))
    return round(float(estimate), 0), abs(estimate - np.pi) < 6 * error, abs(spread - 10) < 2
