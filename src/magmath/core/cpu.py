"""What the processor is, as measurements and messages name it."""

from __future__ import annotations

import platform

_CPU_FILE = "/proc/cpuinfo"


def cpu_name(path: str = _CPU_FILE) -> str:
    """The processor's name, with family and model where the system gives them."""
    fields = _fields(path)
    name = fields.get("model name") or platform.processor() or platform.machine()
    family = f" (family {fields.get('cpu family')}, model {fields.get('model')})"
    return name + family if "cpu family" in fields else name


def _fields(path: str) -> dict[str, str]:
    """The lines of the system's description of the first processor."""
    fields: dict[str, str] = {}
    try:
        with open(path) as file:
            for line in file:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                fields[name.strip()] = value.strip()
    except OSError:
        pass
    return fields
