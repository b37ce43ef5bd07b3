"""Train a network on handwritten digits, score it, save it, and load it into another.

python examples/train_digits.py --workers 2
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import magmath as mm


def network() -> mm.nn.NeuralNetwork:
    """Two hidden layers; the loss takes scores, so the last layer has no activation."""
    return mm.nn.NeuralNetwork(
        [
            mm.nn.Flatten(),
            mm.nn.Dense(128, activation="relu"),
            mm.nn.Dropout(0.1),
            mm.nn.Dense(64, activation="relu"),
            mm.nn.Dense(10),
        ],
        loss="cross_entropy",
        optimizer=mm.optim.Adam(2e-3),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    with mm.init(workers=options.workers, seed=1):
        digits = mm.data.load("digits")
        print(digits)
        net = network()
        net.fit(
            digits.train_images,
            digits.train_labels,
            batch_size=64,
            epochs=options.epochs,
            validation=(digits.test_images, digits.test_labels),
            verbose=True,
        )
        print(net.summary())
        scores = net.evaluate(digits.test_images, digits.test_labels)
        print(f"test accuracy {scores['accuracy']:.2%}")

        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder) / "digits.safetensors"
            net.save(weights)
            other = network()
            other.load(weights)
        guesses = mm.argmax(other.predict(digits.test_images[:10]), axis=1)
        print("guessed", guesses.tolist())
        print("truth  ", digits.test_labels[:10].tolist())


if __name__ == "__main__":
    main()
