"""kubelet's configuration (KubeletConfiguration v1beta1) as ``/configz`` answers it, as far as Koord goes by it.

Pure. Fails with ConfigError or ReservationError, which name the field and the value; members that Koord has
no use for are skipped unread. What is absent has kubelet's own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

import msgspec

from koord.model import cpuset, reservation
from koord.model.cpuset import CPUSet
from koord.model.reservation import Reserved

NONE, STATIC = "none", "static"
MEMORY_QOS = "MemoryQoS"
RESERVATION_POLICY, THROTTLING_FACTOR, NO_RESERVATION = "memoryReservationPolicy", "memoryThrottlingFactor", "None"


class KubeletConfigError(ValueError):
    """kubelet's answer is no configuration."""


class KubeletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``reserved``: what kubelet keeps of the node; ``reserved_system_cpus``: the CPUs that it names for that."""

    cpu_manager_policy: str = NONE
    cpu_manager_policy_options: Mapping[str, str] = {}
    reserved_system_cpus: CPUSet = cpuset.EMPTY
    topology_manager_policy: str = NONE
    topology_manager_scope: str = "container"
    reserved: Reserved = reservation.NOTHING_RESERVED
    writes_memory_protection: bool | None = False
    """Does it write memory.min, memory.low or memory.high on cgroup v2? None: that is not certain."""

    @property
    def reserved_cpu_count(self) -> int:
        """The number of whole CPUs that a static CPU manager gives to no container exclusively."""
        return len(self.reserved_system_cpus) or ceil(self.reserved.cpu_milli / 1000)


class _Document(msgspec.Struct, rename="camel"):
    cpu_manager_policy: str = NONE
    cpu_manager_policy_options: dict[str, str] = {}
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    topology_manager_policy: str = NONE
    topology_manager_scope: str = "container"
    feature_gates: dict[str, Any] = {}


def cpu_manager_policy(config: Mapping[str, Any]) -> str:
    """The policy alone, which hangs on no other member; "" if it cannot be read."""
    policy = config.get("cpuManagerPolicy") or NONE
    return policy if isinstance(policy, str) else ""


def writes_memory_protection(config: Mapping[str, Any], gates: Mapping[str, Any]) -> bool | None:
    """Returns whether kubelet writes memory.min, memory.low or memory.high on cgroup v2. None: that is not certain.

    ``config`` with kubelet's defaults, ``gates`` only as far as they were set. Its feature MemoryQoS is off by default
    up to 1.36 and on from 1.37 on, where policy and factor say what it does. The policy is there from 1.36 on; up to
    then the factor has a default, whether the feature is on or off.
    """
    if MEMORY_QOS in gates:
        named = gates[MEMORY_QOS]
        return named if isinstance(named, bool) else None
    policy = config.get(RESERVATION_POLICY)
    if gates.get("AllAlpha") is True or policy not in (None, "", NO_RESERVATION):
        return True
    return None if policy and config.get(THROTTLING_FACTOR) is not None else False


def read(config: Mapping[str, Any], memory_total_bytes: int) -> KubeletConfig:
    """Reads the configuration. ``memory_total_bytes``: a threshold in percent is of this. Raises ConfigError or
    ReservationError.
    """
    stated = {name: value for name, value in config.items() if value is not None}
    try:
        document = msgspec.convert(stated, _Document)
    except msgspec.ValidationError as error:
        raise KubeletConfigError(f"kubelet's configuration: {error}") from error
    reserved = reservation.of_config(config, memory_total_bytes)  # refuses CPUs that are no list
    return KubeletConfig(
        cpu_manager_policy=document.cpu_manager_policy or NONE,
        cpu_manager_policy_options=document.cpu_manager_policy_options,
        reserved_system_cpus=cpuset.parse(document.reserved_system_cpus),
        topology_manager_policy=document.topology_manager_policy or NONE,
        topology_manager_scope=document.topology_manager_scope or "container",
        reserved=reserved,
        writes_memory_protection=writes_memory_protection(stated, document.feature_gates),
    )
