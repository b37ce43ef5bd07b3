"""Compile a function: traced once for each combination of shapes and layouts, then a program.

python examples/compile_function.py --workers 2
"""

from __future__ import annotations

import argparse

import magmath as mm


@mm.compile
def swing(position: mm.Array, velocity: mm.Array, seconds: float) -> tuple[mm.Array, mm.Array]:
    """One time step of springs (symplectic Euler). Python runs this body only when it is traced."""
    print("  tracing for shape", position.shape)
    velocity = velocity - seconds * position
    return position + seconds * velocity, velocity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers):
        position, velocity = mm.linspace(0.0, 1.0, 1000), mm.zeros(1000)
        steps = 1000
        for _ in range(steps):  # a full period; one trace serves all the steps
            position, velocity = swing(position, velocity, 2 * mm.pi / steps)
        print(f"after one period: {float(position[-1]):.4f} (began at 1)")

        position, velocity = swing(position, velocity, 0.001)  # a number is a scalar: no new trace
        print(f"a little later: {float(position[-1]):.6f}")

        swing(mm.ones((10, 10)), mm.zeros((10, 10)), 0.1)  # another shape: another trace


if __name__ == "__main__":
    main()
