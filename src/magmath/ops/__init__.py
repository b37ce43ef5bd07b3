"""The operations: one record for each, in one file per family.

The table `OPERATIONS` contains all records by name.
"""

from magmath.graph import Operation
from magmath.ops import (
    argreduce,
    bits,
    block_reduction,
    concatenation,
    creation,
    custom_gradients,
    elementwise,
    gradient_results,
    joint_sums,
    leaves,
    manipulation,
    masking,
    normalization,
    predication,
    realignment,
    recomputation,
    redistribute,
    reductions,
    samplers,
    scans,
    slicing,
    summands,
)
from magmath.ops.conv import convolution, pooling
from magmath.ops.fft import four_step_fft, fourier
from magmath.ops.indexing import along_axis, dynamic_slice, gather_scatter
from magmath.ops.linalg import (
    cholesky,
    determinants,
    eigen,
    least_squares,
    lu,
    matrix_algebra,
    qr,
    solvers,
    svd,
    triangular,
)
from magmath.ops.product import contraction, gemm
from magmath.ops.sort import order_statistics, searchsorted, sorting

OPERATIONS: dict[str, Operation] = {
    **leaves.OPERATIONS,
    **elementwise.OPERATIONS,
    **reductions.OPERATIONS,
    **block_reduction.OPERATIONS,
    **argreduce.OPERATIONS,
    **bits.OPERATIONS,
    **scans.OPERATIONS,
    **manipulation.OPERATIONS,
    **concatenation.OPERATIONS,
    **contraction.OPERATIONS,
    **slicing.OPERATIONS,
    **dynamic_slice.OPERATIONS,
    **gather_scatter.OPERATIONS,
    **along_axis.OPERATIONS,
    **masking.OPERATIONS,
    **sorting.OPERATIONS,
    **searchsorted.OPERATIONS,
    **order_statistics.OPERATIONS,
    **gemm.OPERATIONS,
    **creation.OPERATIONS,
    **samplers.OPERATIONS,
    **four_step_fft.OPERATIONS,
    **fourier.OPERATIONS,
    **matrix_algebra.OPERATIONS,
    **cholesky.OPERATIONS,
    **triangular.OPERATIONS,
    **lu.OPERATIONS,
    **qr.OPERATIONS,
    **solvers.OPERATIONS,
    **determinants.OPERATIONS,
    **eigen.OPERATIONS,
    **svd.OPERATIONS,
    **least_squares.OPERATIONS,
    **convolution.OPERATIONS,
    **realignment.OPERATIONS,
    **pooling.OPERATIONS,
    **normalization.OPERATIONS,
    **joint_sums.OPERATIONS,
    **redistribute.OPERATIONS,
    **recomputation.OPERATIONS,
    **predication.OPERATIONS,
    **custom_gradients.OPERATIONS,
    **gradient_results.OPERATIONS,
    **summands.OPERATIONS,
}
