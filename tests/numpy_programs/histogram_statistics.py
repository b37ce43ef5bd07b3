import numpy as np


def main():
    i = np.arange(1, 1001)
    values = np.log(i) * np.sin(i) ** 2 * 3
    counts, edges = np.histogram(values, bins=12)
    centers = 0.5 * (edges[1:] + edges[:-1])
    mode = centers[np.argmax(counts)]
    quartiles = np.percentile(values, [25, 50, 75])
    outliers = values[values > quartiles[2] + 1.0 * (quartiles[2] - quartiles[0])]
    standardized = (values - values.mean()) / values.std()
    skew = (standardized**3).mean()
    labels = np.digitize(values, edges[1:-1])
    means = [float(values[labels == k].mean()) for k in range(12) if np.any(labels == k)]
    unique, times = np.unique(np.round(values), return_counts=True)
    return counts, mode, quartiles, len(outliers), skew, means, unique, times
