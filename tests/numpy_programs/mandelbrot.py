import numpy as np


def steps_until_divergence(height, width, most=20, radius=2):
    x = np.linspace(-2.5, 1.5, 4 * height + 1)
    y = np.linspace(-1.5, 1.5, 3 * width + 1)
    a, b = np.meshgrid(x, y)
    c = a + b * 1j
    z = np.zeros_like(c)
    steps = most + np.zeros(z.shape, dtype=int)
    for i in range(most):
        z = z**2 + c
        diverge = z * np.conj(z) > radius**2
        now = diverge & (steps == most)
        steps[now] = i
        z[diverge] = radius
    return steps


def main():
    steps = steps_until_divergence(8, 6)
    return steps, np.bincount(steps.ravel())
