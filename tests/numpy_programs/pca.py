import numpy as np


def main():
    t = np.linspace(0, 10, 200)
    data = np.column_stack([np.sin(t), 2 * np.sin(t) + 0.1 * np.cos(5 * t), np.cos(t), t / 10])
    centered = data - data.mean(axis=0)
    covariance = np.cov(centered, rowvar=False)
    values, vectors = np.linalg.eigh(covariance)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    vectors = vectors * np.sign(vectors[np.argmax(np.abs(vectors), axis=0), np.arange(4)])
    projected = centered @ vectors[:, :2]
    explained = values / np.sum(values)
    return explained, projected, np.allclose(vectors.T @ vectors, np.eye(4))
