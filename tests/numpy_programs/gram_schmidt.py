import numpy as np


def gram_schmidt(vectors):
    basis = []
    for v in vectors:
        w = v - sum(np.dot(v, b) * b for b in basis)
        if np.linalg.norm(w) > 1e-10:
            basis.append(w / np.linalg.norm(w))
    return np.array(basis)


def main():
    vectors = np.array([[3.0, 1, 0, 2], [2, 2, 1, 0], [1, 3, 2, -2], [0.5, 0, 4, 1]])
    basis = gram_schmidt(vectors)
    identity = basis @ basis.T
    assert np.allclose(identity, np.identity(len(basis)), atol=1e-6)
    projection = basis.T.dot(basis)
    return basis, np.trace(projection), np.max(np.abs(identity - np.eye(len(basis)))) < 1e-6
