"""The motion of bodies that attract each other, all pairs, by leapfrog steps."""

from __future__ import annotations

from typing import Any

import numpy

SIZES = (113, 1118, 7071)
"""Bodies: arrays of all pairs have their squares."""
STEPS = 5
JAX = True


def data(n: int) -> tuple[Any, ...]:
    """Return positions and velocities of shape (n, 3), and masses."""
    random = numpy.random.default_rng(1)
    return (
        random.standard_normal((n, 3)),
        0.1 * random.standard_normal((n, 3)),
        random.uniform(0.5, 1.5, n) / n,
    )


def accelerations(np: Any, positions: Any, masses: Any) -> Any:
    """Return the acceleration of each body, softened, of shape (n, 3)."""
    x, y, z = positions[:, 0], positions[:, 1], positions[:, 2]
    dx, dy, dz = x[None, :] - x[:, None], y[None, :] - y[:, None], z[None, :] - z[:, None]
    inverse = (dx**2 + dy**2 + dz**2 + 0.01) ** -1.5
    pull = masses * inverse
    return np.stack([(pull * dx).sum(axis=1), (pull * dy).sum(axis=1), (pull * dz).sum(axis=1)], 1)


def main(np: Any, positions: Any, velocities: Any, masses: Any) -> Any:
    """Return positions, velocities and kinetic energy after the steps."""
    dt = 0.01
    a = accelerations(np, positions, masses)
    for _ in range(STEPS):
        velocities = velocities + 0.5 * dt * a
        positions = positions + dt * velocities
        a = accelerations(np, positions, masses)
        velocities = velocities + 0.5 * dt * a
    return positions, velocities, 0.5 * (masses[:, None] * velocities**2).sum()
