import numpy as np


def step(board):
    neighbours = sum(
        np.roll(np.roll(board, dy, axis=0), dx, axis=1)
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    )
    return ((neighbours == 3) | ((board == 1) & (neighbours == 2))).astype(int)


def main():
    board = np.zeros((16, 16), dtype=int)
    board[1:4, 1:4] = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1]])
    board[8, 5:8] = 1
    population = []
    for _ in range(12):
        board = step(board)
        population.append(int(board.sum()))
    return board, population, np.flatnonzero(board.any(axis=1))
