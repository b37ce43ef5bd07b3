"""First steps: arrays, when they are computed, NumPy on both sides, and a gradient.

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

        # The functions of the array API, on arrays that the workers hold. Nothing is computed here.
        angles = mm.linspace(0.0, 2.0 * mm.pi, 100_000)
        waves = mm.sin(angles) * mm.exp(-angles) + 1.0

        # A value is wanted: the whole expression is computed at once, in one program.
        print(f"mean {float(mm.mean(waves)):.4f}, largest {float(mm.max(waves)):.4f}")

        # NumPy arrays go in, NumPy arrays come out.
        table = mm.asarray(np.arange(6.0).reshape(2, 3))
        print(np.asarray(table @ table.T))

        # Random numbers belong to the elements: the same for every number of workers.
        noise = mm.random.normal(shape=(1000, 1000))
        print(f"deviation of a million random numbers {float(mm.std(noise)):.4f}")

        # The gradient of an expression is an expression.
        x = mm.variable("x", [1.0, 2.0, 3.0])
        cubes = mm.sum(x**3)
        slope = mm.grad(cubes, x)
        print("3x²:", np.asarray(slope), " 6x:", np.asarray(mm.grad(mm.sum(slope), x)))


if __name__ == "__main__":
    main()
