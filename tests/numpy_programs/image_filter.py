import numpy as np


def main():
    y, x = np.mgrid[0:40, 0:60]
    image = np.sin(x / 5.0) * np.cos(y / 7.0) + ((x - 30) ** 2 + (y - 20) ** 2 < 100)
    kernel = np.outer(np.hanning(5), np.hanning(5))
    kernel /= kernel.sum()
    padded = np.pad(image, 2, mode="edge")
    blurred = np.zeros_like(image)
    for i in range(5):
        for j in range(5):
            blurred += kernel[i, j] * padded[i : i + 40, j : j + 60]
    gy, gx = np.gradient(blurred)
    edges = np.hypot(gx, gy)
    threshold = np.percentile(edges, 90)
    mask = edges > threshold
    return blurred, mask.sum(), np.argwhere(mask)[:5], np.unravel_index(edges.argmax(), edges.shape)
