"""The numbers of outputs and inputs of layers, which model parallelism divides."""

import magmath as mm
from magmath.parallel.parameter_axes import LayerAxes, ParameterAxes


class _Training:
    """Dense layers of different widths, whose parameters are counted as they are listed."""

    def __init__(self, layers):
        self.listed = 0
        self.parameters = [
            (str(i), v)
            for i in range(layers)
            for v in (mm.nn.Parameter(0.0, (3, 4 + i)), mm.nn.Parameter(0.0, (4 + i,)))
        ]

    def named_parameters(self):
        self.listed += len(self.parameters)
        return self.parameters


def _axes(training):
    axes = LayerAxes(training, lambda: None)
    weight, bias = ParameterAxes(1, 0, True), ParameterAxes(0)
    vars(axes)["_axes"] = {v.leaf: weight if v.ndim == 2 else bias for _, v in training.parameters}
    return axes


def test_parameters_are_listed_once_for_all_layers():
    with mm.init(workers=0):
        for layers in (2, 40):
            training = _Training(layers)
            axes = _axes(training)
            for i in range(layers):
                assert axes.extent(str(i), "output") == 4 + i
                assert axes.extent(str(i), "input") == 3
                assert axes.possible(str(i), "input", 4) == "data"
            assert axes.extent("none", "output") == 0
            assert training.listed == 2 * layers
