"""Layouts: which worker stores which part of an array. They affect the cost and never the result.

python examples/layouts.py --workers 2
"""

from __future__ import annotations

import argparse

import numpy as np

import magmath as mm
from magmath import Layout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: compute in this one")
    with mm.init(workers=parser.parse_args().workers) as pool:
        values = np.arange(48, dtype=np.float32).reshape(6, 8)
        last = pool.workers - 1
        rules = [
            Layout.replicated(),
            Layout.split(0),
            Layout.split(1, cuts=[0, 5, 8] if pool.workers > 1 else [0, 8]),
            Layout.cyclic(0),
            Layout.block_cyclic((2, 2), (pool.workers, 1)),
            Layout.on(last),
            Layout.blocks([((slice(0, 6), slice(0, 3)), 0), ((slice(0, 6), slice(3, 8)), last)]),
        ]
        a = mm.asarray(values)
        total = a + a
        for rule in rules:
            b = a.redistribute(rule)
            shapes = [b.layout.local_shape(worker) for worker in pool.mesh.workers]
            print(f"{rule!s:32} {b.layout!s:28} tiles {shapes}")
            # Operands may have any two layouts: the cheapest transfer is planned.
            np.testing.assert_array_equal(np.asarray(b + a), np.asarray(total))

        # What an expression will do, before it does it.
        columns = mm.asarray(values, layout=Layout.split(1))
        print("\nthe sum of a row-split and a column-split array:")
        print((mm.asarray(values, layout=Layout.split(0)) + columns).explain())


if __name__ == "__main__":
    main()
