import numpy as np


def main():
    n = 41
    x = np.linspace(0, 1, n)
    dx = x[1] - x[0]
    u = np.where(np.abs(x - 0.5) < 0.2, 1.0, 0.0)
    dt = 0.4 * dx**2
    for _ in range(60):
        u[1:-1] = u[1:-1] + dt / dx**2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[0] = u[-1] = 0.0
    matrix = (
        np.diag(2.0 * np.ones(n - 2)) - np.diag(np.ones(n - 3), 1) - np.diag(np.ones(n - 3), -1)
    )
    steady = np.linalg.solve(matrix / dx**2, np.ones(n - 2))
    return u, np.trapezoid(u, x), steady.max(), np.interp(0.33, x, u)
