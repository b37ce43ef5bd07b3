"""The passes, one per file: functions from graphs to graphs, or to descriptions of graphs.

`pipeline.py` runs the passes from a user's graph to a planned one. Others run before it:

subgraphs, loop_layouts                 divide a function at its loops, and choose their layouts
hoisting, fold_scales, freeze_filters   divide a compiled function into what depends on variables
                                        and captured arrays alone, and the rest
parameter_layouts, layer_blocks         choose the layouts of parameters for strategy "auto"
expand                                  the first part of `simplify`; interpreters run it alone

The other modules are parts of passes: `place` is the largest, with the candidates of a node, their
costs, decisions and hints, and `environment.py` describes the machine.
"""
