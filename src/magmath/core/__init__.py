"""Definitions that several packages share; of magmath they import only `errors`.

The values of arrays (data types, promotion, shapes, index sets), the processor, memory and caches
of the machine, checks of arguments, the names of other libraries for error messages, and the sizes
on which plans and kernels agree (`block_cyclic`, `request_batching`, `svd_workspace`,
`tall_skinny`).
"""
