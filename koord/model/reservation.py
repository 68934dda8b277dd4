"""What kubelet keeps of a node: by its configuration (KubeletConfiguration v1beta1), as its allocatable leaves it out.

    allocatable = capacity - kubeReserved - systemReserved - evictionHard["memory.available"]

``reservedSystemCPUs`` takes the place of both reservations of CPU. Pure. A value that cannot be read is a
ReservationError that names its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from koord.model import cpuset, quantity
from koord.model.cpuset import CPUSetError
from koord.model.quantity import QuantityError

_CLASSES = ("kubeReserved", "systemReserved")
_CPUS, _EVICTION, _AVAILABLE = "reservedSystemCPUs", "evictionHard", "memory.available"


class ReservationError(ValueError):
    """``field`` of the configuration holds ``value``, which is none."""

    def __init__(self, field: str, value: object, why: object) -> None:
        super().__init__(f"kubelet's {field}: {value!r}: {why}")


class Reserved(msgspec.Struct, frozen=True):
    """Kept for kubelet, the system and the hard eviction threshold."""

    cpu_milli: int = 0
    memory_bytes: int = 0


NOTHING_RESERVED = Reserved()


def of_config(config: Mapping[str, Any], memory_total_bytes: int) -> Reserved:
    """Reads ``config``, as ``/configz`` answers it; ``memory_total_bytes``: a threshold in percent is of this."""
    cpu_milli = sum(_amount(config, name, "cpu") for name in _CLASSES)
    if config.get(_CPUS):
        cpu_milli = 1000 * len(_cpus(config[_CPUS]))
    memory_bytes = sum(_amount(config, name, "memory") for name in _CLASSES)
    return Reserved(cpu_milli, memory_bytes + _threshold(config, memory_total_bytes))


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name) or {}
    if not isinstance(section, Mapping):
        raise ReservationError(name, section, "is no object")
    return section


def _amount(config: Mapping[str, Any], name: str, resource: str) -> int:
    value = _section(config, name).get(resource)
    if value is None:
        return 0
    try:
        found = quantity.from_json(value)
        return quantity.cpu_milli(found) if resource == "cpu" else quantity.memory_bytes(found)
    except QuantityError as error:
        raise ReservationError(f"{name}.{resource}", value, error.why) from error


def _cpus(value: object) -> cpuset.CPUSet:
    try:
        return cpuset.parse(str(value))
    except CPUSetError as error:
        raise ReservationError(_CPUS, value, error) from error


def _threshold(config: Mapping[str, Any], memory_total_bytes: int) -> int:
    """A quantity, or a percentage of the node's memory."""
    value, field = _section(config, _EVICTION).get(_AVAILABLE), f"{_EVICTION}[{_AVAILABLE}]"
    if value is None:
        return 0
    try:
        if str(value).endswith("%"):
            percent = Decimal(str(value)[:-1])
            if not 0 <= percent <= 100:
                raise ReservationError(field, value, "is no percentage")
            return int(memory_total_bytes * percent / 100)
        return quantity.memory_bytes(quantity.from_json(value))
    except InvalidOperation as error:
        raise ReservationError(field, value, "is no percentage") from error
    except QuantityError as error:
        raise ReservationError(field, value, error.why) from error
