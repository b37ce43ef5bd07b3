"""Minimize an expression of variables: x² + c, and a straight line through points.

python examples/minimize.py --workers 2
"""

from __future__ import annotations

import argparse

import numpy as np

import magmath as mm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers):
        x = mm.variable("x", 3.0)
        c = mm.constant(5.0)
        expression = x**2 + c
        optimizer = mm.optim.GradientDescent(0.1)
        for steps in (1, 10, 40):
            before = optimizer.minimize(expression, [x], steps=steps)
            print(f"{steps:3} steps: x² + c was {before:.4f} before the last, x is {float(x):.5f}")

        # A million points about a line, divided over the workers; the fitted variables are small.
        positions = mm.random.uniform(-1.0, 1.0, shape=(1_000_000, 1))
        heights = 2.0 * positions + 0.5 + mm.random.normal(0.0, 0.1, shape=(1_000_000, 1))
        mm.evaluate(positions, heights)
        slope, offset = (
            mm.variable("slope", np.zeros((1, 1), "float32")),
            mm.variable("offset", 0.0),
        )
        error = mm.mean(mm.square(positions @ slope + offset - heights))
        mm.optim.Momentum(0.1).minimize(error, [slope, offset], steps=200)
        print(f"line: {slope.numpy().item():.3f}·x + {float(offset):.3f}, drawn about 2·x + 0.5")


if __name__ == "__main__":
    main()
