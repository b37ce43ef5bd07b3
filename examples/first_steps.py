"""First steps: arrays, when they are computed, conversion from and to NumPy, and a gradient.

python examples/first_steps.py --workers 2
"""

from __future__ import annotations

import argparse

import numpy as np

import magmath as mm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers) as pool:
        print(pool)

        # Functions of the array API on arrays that the workers store. Nothing is computed here.
        angles = mm.linspace(0.0, 2.0 * mm.pi, 100_000)
        waves = mm.sin(angles) * mm.exp(-angles) + 1.0

        # A value is needed: the whole expression is computed in one program.
        print(f"mean {float(mm.mean(waves)):.4f}, largest {float(mm.max(waves)):.4f}")

        # Conversion from and to NumPy.
        table = mm.asarray(np.arange(6.0).reshape(2, 3))
        print(np.asarray(table @ table.T))

        # Random numbers depend on the index of the element: the same for every number of workers.
        noise = mm.random.normal(shape=(1000, 1000))
        print(f"deviation of a million random numbers {float(mm.std(noise)):.4f}")

        # The gradient of an expression is an expression.
        x = mm.variable("x", [1.0, 2.0, 3.0])
        cubes = mm.sum(x**3)
        gradient = mm.grad(cubes, x)
        print("3x²:", np.asarray(gradient), " 6x:", np.asarray(mm.grad(mm.sum(gradient), x)))


if __name__ == "__main__":
    main()
