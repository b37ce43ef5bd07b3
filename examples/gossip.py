"""Define a strategy: replicas that average their weights with their neighbours on a ring.

Gossip needs no exchange among all replicas: each computes the mean of its own weights and those of
two neighbours, so that a change spreads along the ring. Source: Jin, Yuan, Iandola and Keutzer
(2016), How to scale distributed deep learning?

python examples/gossip.py --workers 2
"""

from __future__ import annotations

import argparse

import magmath as mm


class Gossip(mm.parallel.Replicas):
    """Average the weights of each replica with those of the next and the previous one."""

    def exchange(self, weights: mm.Array) -> mm.Array:  # (replicas, …)
        previous, following = mm.roll(weights, 1, axis=0), mm.roll(weights, -1, axis=0)
        return (previous + weights + following) / 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers, seed=1):
        digits = mm.data.load("digits")
        count = 22 * 64  # whole batches, each of which the 8 replicas divide equally
        images, labels = digits.train_images[:count], digits.train_labels[:count]
        layers = [mm.nn.Flatten(), mm.nn.Dense(32, activation="relu"), mm.nn.Dense(10)]
        net = mm.nn.NeuralNetwork(layers)
        history = net.fit(images, labels, batch_size=64, epochs=4, strategy=Gossip(8, every=2))
        print(f"loss of 8 gossiping replicas: {history.loss[0]:.2f}, then {history.loss[-1]:.2f}")


if __name__ == "__main__":
    main()
