"""The annotations of a NodeResourceTopology in which a node's agent says what zones cannot: CPUs, and who has them.

Each is a document in JSON. Field names and order are upstream's; what is at its default is left out, as Go's
``omitempty`` does, but for members that a reader counts on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord.model.core import Amounts
from koord.model.schema import json_name

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
CPU_SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
BE_CPU_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
RESERVATION = "node.koordinator.sh/reservation"
"""Of Nodes as well, from where it comes."""
SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"
"""As ``RESERVATION``."""

LABEL_MANAGED_BY, MANAGED_BY = "app.kubernetes.io/managed-by", "Koordinator"
LABEL_NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
""" "true" on a Node: what kubelet keeps is missing from the zones, too."""


class _Document(msgspec.Struct, frozen=True, omit_defaults=True, rename=json_name):
    pass


class LogicalCPU(_Document, frozen=True):
    """One CPU. ``core``: a number that no core of another socket has."""

    id: int
    core: int
    socket: int
    node: int


class CPUTopology(_Document, frozen=True):
    detail: tuple[LogicalCPU, ...] = ()
    """By id."""


class CPUBasicInfo(_Document, frozen=True, kw_only=True):
    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    cat_l3_cbm_mask: str = ""
    """The L3 cache's ways that CAT can give, in hexadecimal; "" without CAT."""
    vendor_id: str = ""


class PodCPUAlloc(_Document, frozen=True, kw_only=True):
    """The CPUs that a pod has to itself. Of pods that the node's agent does not know: no namespace and no name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class CPUSharedPool(_Document, frozen=True):
    """The shared CPUs of one NUMA node."""

    socket: int
    node: int
    cpuset: str = ""


class KubeletCPUManagerPolicy(_Document, frozen=True):
    """kubelet's: ``policy`` is "none" or "static"; ``reserved_cpus`` are those that it gives to no pod exclusively."""

    policy: str = ""
    options: Mapping[str, str] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")


class ReservationAnnotation(_Document, frozen=True):
    """What is kept from pods. ``apply_policy``: "Default" or "ReservedCPUsOnly"."""

    resources: Amounts = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""


class SystemQOSAnnotation(_Document, frozen=True):
    """The CPUs of pods and processes of the class SYSTEM."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None
    """None: no other pod's, as true."""
