"""Train a network whose weights are rounded to eighths: the gradient passes straight through.

python examples/custom_gradient.py --workers 2
"""

from __future__ import annotations

import argparse

import magmath as mm


@mm.custom_gradient
def rounded(weight, steps):
    """Return multiples of 1 / steps, with the derivative 1 instead of 0."""
    return mm.round(weight * steps) / steps, lambda gradient: (gradient, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers, seed=1):
        x = mm.random.normal(shape=(1000, 20))
        labels = mm.argmax(x @ mm.random.normal(shape=(20, 3)), axis=1)
        weight = mm.variable("weight", mm.nn.initializers.glorot, shape=(20, 3))
        adam = mm.optim.Adam(0.02)

        @mm.compile
        def step(x, labels):
            loss = mm.nn.cross_entropy(x @ rounded(weight, 8), labels)
            adam.update({weight: mm.grad(loss, weight)})
            return loss

        losses = [step(x, labels) for _ in range(200)]
        accuracy = mm.nn.metrics.accuracy(x @ rounded(weight, 8), labels)
        print(f"loss {float(losses[0]):.2f}, after 200 steps {float(losses[-1]):.2f}")
        print(f"accuracy with weights in eighths {float(accuracy):.1%}")


if __name__ == "__main__":
    main()
