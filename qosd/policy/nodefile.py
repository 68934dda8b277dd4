"""The section ``node`` of the rules file: the settings that NodeSLO does not carry, checked value by value.

The section is ours alone, so an unknown key is an error: a typing error never silently means "default". But feature
gates are upstream's, and grow: an unknown one is told, and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from koord.model import cfs, featuregates, quantity, schema
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.priority import CPU, EXTENDED_RESOURCES, RENAMED
from koord.model.problem import Bad
from koord.model.quantity import Quantity
from koord.model.schema import SchemaError
from koord.model.slo_extensions import CPUSuppressSettings
from qosd.hooks.table import HOOK_NAMES
from qosd.model.policy import CPUManagerPolicy, NodeSettings, Pool

_Number = Annotated[int, Meta(ge=0)]


class _GuaranteedAs(StrEnum):
    LS = "LS"
    LSR = "LSR"


class _Pool(msgspec.Struct, frozen=True):
    cpuset: CPUSet
    socket: _Number = 0
    node: _Number = 0


class _SharedPools(msgspec.Struct, frozen=True):
    ls: tuple[_Pool, ...] = ()
    be: tuple[_Pool, ...] = ()


class _SystemQOS(msgspec.Struct, frozen=True, rename="camel"):
    """As in annotation ``node.koordinator.sh/system-qos-resource``."""

    cpuset: CPUSet = EMPTY
    cpuset_exclusive: bool = True


class _ApplyPolicy(StrEnum):
    """The part that the scheduler subtracts; CPUs are reserved either way."""

    DEFAULT = "Default"
    RESERVED_CPUS_ONLY = "ReservedCPUsOnly"


class _Reservation(msgspec.Struct, frozen=True, rename="camel"):
    """As in annotation ``node.koordinator.sh/reservation``."""

    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    reserved_cpus: CPUSet = msgspec.field(default=EMPTY, name="reservedCPUs")
    apply_policy: _ApplyPolicy = _ApplyPolicy.DEFAULT


class _Resctrl(msgspec.Struct, frozen=True, rename="camel"):
    runtime_verified: bool = False


class _Node(msgspec.Struct, frozen=True, rename="camel"):
    """The section's shape; field names are the file's in snake case."""

    cpu_manager_policy: CPUManagerPolicy = CPUManagerPolicy.NONE
    shared_pools: _SharedPools = _SharedPools()
    be_cpu_manager: bool = msgspec.field(default=False, name="beCPUManager")
    system_qos: _SystemQOS = msgspec.field(default=_SystemQOS(), name="systemQOS")
    reservation: _Reservation = _Reservation()
    cpu_normalization_ratio: Any = -1
    guaranteed_as: _GuaranteedAs = _GuaranteedAs.LS
    disable_unset_cpu_quota: bool = msgspec.field(default=False, name="disableUnsetCPUQuota")
    limits_in_cri: bool | None = msgspec.field(default=None, name="limitsInCRI")
    resctrl: _Resctrl = _Resctrl()
    sandbox_sizing_handlers: tuple[str, ...] = ()
    cpu_suppress: CPUSuppressSettings = CPUSuppressSettings()
    allocatable_memory: Quantity | None = None
    allocatable: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    eviction_dry_run: bool = False
    hooks: Mapping[str, bool] = msgspec.field(default_factory=dict)
    features: Mapping[str, bool] = msgspec.field(default_factory=dict)


def read(section: object, bad: Bad | None = None) -> NodeSettings:
    """Returns the node's settings from the document under ``node``, and tells ``bad`` what does not count. Raises
    SchemaError.
    """
    node = schema.read(_Node, section, "node", _refuse)
    for name in node.hooks:
        if name not in HOOK_NAMES:
            raise SchemaError("node.hooks", name, f"is no hook; there are {', '.join(HOOK_NAMES)}")
    return NodeSettings(
        cpu_manager_policy=node.cpu_manager_policy,
        ls_pools=_pools(node.shared_pools.ls),
        be_pools=_pools(node.shared_pools.be),
        be_cpu_manager=node.be_cpu_manager,
        system_cpuset=str(node.system_qos.cpuset),
        system_exclusive=node.system_qos.cpuset_exclusive,
        reserved_cpus=str(node.reservation.reserved_cpus),
        reserved_cpu_milli=_reserved_milli(node.reservation),
        cpu_normalization_ratio=_ratio(node.cpu_normalization_ratio),
        guaranteed_is_lsr=node.guaranteed_as is _GuaranteedAs.LSR,
        unset_cpu_quota=not node.disable_unset_cpu_quota,
        limits_in_cri=node.limits_in_cri,
        rdt_verified=node.resctrl.runtime_verified,
        sandbox_sizing_handlers=frozenset(node.sandbox_sizing_handlers),
        cpu_suppress=node.cpu_suppress,
        allocatable_memory_bytes=_memory(node.allocatable_memory),
        allocatable=_allocatable(node.allocatable),
        eviction_dry_run=node.eviction_dry_run,
        hooks=dict(node.hooks),
        features=_features(node.features, bad),
    )


def _features(settings: Mapping[str, bool], bad: Bad | None) -> Mapping[str, bool]:
    for name in settings:
        if not featuregates.is_name(name):
            error = SchemaError("node.features", name, "is no feature gate")
            if bad is None:
                raise error
            bad(error.problem)
    return {name: is_on for name, is_on in settings.items() if featuregates.is_name(name)}


def _refuse(path: str) -> None:
    raise SchemaError(path, path.rpartition(".")[2], "is no key of this section")


def _pools(pools: tuple[_Pool, ...]) -> tuple[Pool, ...]:
    return tuple(sorted(Pool(pool.socket, pool.node, str(pool.cpuset)) for pool in pools))


def _ratio(value: object) -> Fraction | None:
    """Returns the ratio; None for -1, which is upstream's "off"."""
    if value == -1:
        return None
    try:
        return cfs.parse_ratio(str(value))
    except cfs.RatioError as error:
        raise SchemaError("node.cpuNormalizationRatio", value, "is neither -1 (off) nor a positive number") from error


def _reserved_milli(reservation: _Reservation) -> int:
    amount = reservation.resources.get(CPU)
    try:
        return 0 if amount is None else quantity.cpu_milli(amount)
    except quantity.QuantityError as error:
        raise SchemaError("node.reservation.resources.cpu", str(amount), error.why) from error


def _allocatable(amounts: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Returns the amounts by today's names of the extended resources."""
    found = {RENAMED.get(name, name): amount for name, amount in amounts.items()}
    for name, amount in found.items():
        if name not in EXTENDED_RESOURCES:
            there_are = ", ".join(EXTENDED_RESOURCES)
            raise SchemaError("node.allocatable", name, f"is no extended resource; there are {there_are}")
        if amount.nano < 0:
            raise SchemaError(f"node.allocatable[{name}]", str(amount), "is negative")
    return found


def _memory(amount: Quantity | None) -> int | None:
    try:
        return None if amount is None else quantity.memory_bytes(amount)
    except quantity.QuantityError as error:
        raise SchemaError("node.allocatableMemory", str(amount), error.why) from error
