import numpy as np


def main():
    x = np.linspace(-2, 2, 50)
    y = 1.5 * x**3 - 2 * x + 0.3 + 0.1 * np.sin(25 * x)
    coefficients = np.polyfit(x, y, deg=3)
    fitted = np.polyval(coefficients, x)
    residuals = y - fitted
    r2 = 1 - np.sum(residuals**2) / np.sum((y - y.mean()) ** 2)
    slope = np.polyder(coefficients)
    extrema = np.sort(np.roots(slope))
    return coefficients, r2, extrema, np.polyval(np.polyint(slope), 1.0)
