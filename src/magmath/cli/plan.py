"""`magmath plan`: the fastest division of a network over the workers of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveFloat, PositiveInt

from magmath.core.json_text import json_text
from magmath.errors import OptionError


def plan(
    network: str | None = None,
    /,
    *,
    machine: str = "here",
    workers: PositiveInt = 1,
    batch: PositiveInt | None = None,
    strategy: Literal["auto", "data", "model", "hybrid"] = "auto",
    memory: PositiveFloat | None = None,
    picture: Path | None = None,
    timeline: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Plan how to train a network on a machine; without NETWORK, list the networks and machines.

    For each layer and each axis of a mesh of workers, the plan chooses the dimension that the
    workers divide: samples (batch), outputs, inputs, space, or none (replicated). Time, bytes and
    memory are predicted from the description of the machine. Nothing is trained.

    For example:

        magmath plan

        magmath plan alexnet --machine k80-fdr --workers 64 --batch 1024

        magmath plan resnet50 --machine dgx-h200 --workers 16 --picture plan.svg

        magmath plan googlenet --machine m40-fdr --workers 8 --timeline step.json

        magmath plan vgg16 --machine mine.toml --workers 8 --json

    Parameters
    ----------
    network
        A network of the model zoo.
    machine
        "here" is this machine as `magmath calibrate` has measured it, before that a typical server;
        otherwise the name of a description, or a TOML file of your own.
    workers
        Number of workers.
    batch
        Samples per step, of all workers in total; default 32 for each worker.
    strategy
        "auto" chooses the fastest plan; "data" divides the samples in all layers, "model" the
        outputs, "hybrid" the samples in convolutions and the outputs in dense layers.
    memory
        Gigabytes that a worker may use; default those of the machine.
    picture
        Draw the plan into this SVG file.
    timeline
        Write a simulated timeline: SVG, or JSON for ui.perfetto.dev. One worker represents all if
        they are more than 1,024.
    json
        Print one JSON object.
    """
    from magmath.cost import known_machines
    from magmath.nn.zoo import NETWORKS
    from magmath.parallel.planner import plan as make_plan

    if network is None:
        known = {"networks": [*NETWORKS], "machines": known_machines()}
        lines = (f"{kind}: {', '.join(names)}" for kind, names in known.items())
        print(json_text(known) if json else "\n".join(lines))
        return
    if network not in NETWORKS:
        raise OptionError(f"plan: unknown network {network!r}; known are {', '.join(NETWORKS)}")
    architecture = NETWORKS[network]
    shape = (batch or 32 * workers, *architecture.image)
    limit = None if memory is None else memory * 1e9
    result = make_plan(architecture(), shape, machine, workers, strategy=strategy, memory=limit)
    if picture is not None:
        result.save_svg(picture)
    if timeline is not None:
        result.save_timeline(timeline)
    print(json_text({"network": network, **result.as_data()}) if json else result)
