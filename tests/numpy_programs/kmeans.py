import numpy as np


def main():
    i = np.arange(600)
    points = np.stack([np.sin(i * 1.7) + 3 * (i % 3), np.cos(i * 2.3) - 2 * (i % 3)], axis=1)
    centers = points[:3].copy()
    for _ in range(8):
        distances = np.linalg.norm(points[:, None, :] - centers[None, :, :], axis=2)
        labels = np.argmin(distances, axis=1)
        for k in range(3):
            members = points[labels == k]
            if len(members) > 0:
                centers[k] = members.mean(axis=0)
    return centers, np.bincount(labels, minlength=3)
