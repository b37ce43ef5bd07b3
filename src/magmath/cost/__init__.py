"""The cost model: one description of the machine, and predictions of the time for arithmetic and
messages."""

from __future__ import annotations

from magmath.cost.collective_costs import Group, Level
from magmath.cost.link import (
    ETHERNET,
    Link,
    Network,
    redistribution_seconds,
    redistribution_traffic,
)
from magmath.cost.machine import (
    DEFAULT_MACHINE,
    GemmRate,
    Machine,
    calibration_remark,
    current_machine,
    store_machine,
)
from magmath.cost.machine_file import known_machines, load_machine
from magmath.cost.operation_rate import OperationRate

__all__ = [
    "DEFAULT_MACHINE",
    "ETHERNET",
    "GemmRate",
    "Group",
    "Level",
    "Link",
    "Machine",
    "Network",
    "OperationRate",
    "calibration_remark",
    "current_machine",
    "known_machines",
    "load_machine",
    "redistribution_seconds",
    "redistribution_traffic",
    "store_machine",
]
