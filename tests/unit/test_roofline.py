"""The work of the busiest worker, in any layout: that of the worker with the largest part."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts import draw_layout, draw_pieces
from magmath.core.dtypes import float64
from magmath.cost.roofline import local_work
from magmath.layout import Layout, Mesh
from magmath.layout.split import Split
from magmath.ops import elementwise as e
from magmath.ops.leaves import input_leaf
from magmath.ops.product.gemm import gemm


def _leaf(layout):
    return input_leaf(layout.shape, float64, layout, None)


@settings(max_examples=200)
@given(st.data())
def test_element_wise_work_is_that_of_the_largest_part(data):
    layout = draw_layout(data.draw, data.draw(st.lists(st.integers(0, 7), max_size=3).map(tuple)))
    x = _leaf(layout)
    flops, nbytes = local_work(e.negative(x), [layout], layout)
    largest = max(layout.local_size(worker) for worker in layout.mesh.workers)
    assert flops == pytest.approx(largest)
    assert nbytes == 2 * 8 * largest


@settings(max_examples=200)
@given(st.data())
def test_work_of_a_product_is_that_of_the_largest_parts_of_rows_and_sums(data):
    grid = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)]))
    m, k, n = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4)))
    mesh = Mesh(grid)
    rows, sums = Split(0, draw_pieces(data.draw, m, grid[0])), draw_pieces(data.draw, k, grid[1])
    a = Layout((m, k), mesh, (rows, Split(1, sums)))
    b = Layout((k, n), mesh, (Split(1, sums), None))
    result = Layout((m, n), mesh, (rows, None), (None, "sum"))
    flops, _ = local_work(gemm(_leaf(a), _leaf(b)), [a, b], result)
    busiest = max(math.prod(a.local_shape(worker)) for worker in mesh.workers)
    assert flops == pytest.approx(2 * n * busiest)


def test_uneven_parts():
    """With 99 of 100 rows on a worker, and with two of five."""
    for shape, rule, workers, rows in (
        ((100, 3), Layout.split(0, cuts=[0, 1, 100]), 2, 99),
        ((5, 3), Layout.split(0), 4, 2),
        ((4, 3), Layout.blocks([((slice(0, 1), slice(0, 3)), 0), ((slice(1, 4), slice(0, 3)), 1)]), 2, 3),
    ):  # fmt: skip
        layout = rule.bind(shape, Mesh((workers,)))
        assert local_work(e.negative(_leaf(layout)), [layout], layout)[0] == pytest.approx(3 * rows)
