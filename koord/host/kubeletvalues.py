"""The values that kubelet writes into its cgroups' files, by place and Kubernetes QoS class.

An agent that stops leaves its values behind: a tier's quota, a burst, a CPU set. A comparison with kubelet's value
tells such a leftover. So a value is given here only where kubelet's is certain; None = it is not, and then the file
stays as it is found. Pure. Sources: kubelet's ``pkg/kubelet/cm`` (the QoS, pod and CPU managers) and
``kuberuntime_container_linux.go``. Files that kubelet never writes hold the value of a new cgroup.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from koord.host import files
from koord.host.files import Value
from koord.host.order import BURST, CPUS, IDENTITY, IDLE, MEMORY, QUOTA, SHARES, SWAP
from koord.model.cfs import MIN_SHARES, UNLIMITED
from koord.model.qos import KubeQoS


class Place(StrEnum):
    """Where in kubelet's tree a cgroup is."""

    ROOT = "the pods' root"
    TIER = "a tier"
    POD = "a pod"
    CONTAINER = "a container"


_OOM = ("memory.priority", "memory.use_priority_oom")
_WATERMARKS = ("memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj")
_PAGE_CACHE = tuple(f"memory.pagecache_limit.{name}" for name in ("enable", "size", "sync"))
_PROTECTION = ("memory.min", "memory.low")
MEMORY_QOS = frozenset({*_PROTECTION, "memory.high"})
"""The files that kubelet writes as well with its feature MemoryQoS."""
FILES: Mapping[Place, tuple[str, ...]] = {
    Place.ROOT: (IDENTITY, *_PROTECTION, *_OOM),
    Place.TIER: (QUOTA, CPUS, IDLE, IDENTITY, *_PROTECTION, *_OOM, "memory.oom.group"),
    Place.POD: (
        QUOTA, BURST, CPUS, MEMORY, IDLE, SHARES, IDENTITY, *MEMORY_QOS, *_OOM, "memory.oom.group", *_WATERMARKS,
        *_PAGE_CACHE,
    ),
    Place.CONTAINER: (
        QUOTA, BURST, CPUS, MEMORY, SWAP, SHARES, IDENTITY, *MEMORY_QOS, *_OOM, *_WATERMARKS,
    ),
}  # fmt: skip
"""The files that a QoS agent writes, by place. Shares change along with ``cpu.idle``, whichever process writes that."""


class Asked(msgspec.Struct, frozen=True):
    """What decides kubelet's values for one pod or container, by its spec; None = not certain."""

    quota_us: int | None = None
    shares: int | None = None
    memory_bytes: int | None = None


OF_BEST_EFFORT = Asked(UNLIMITED, MIN_SHARES, UNLIMITED)
"""No container of the Kubernetes class BestEffort has native requests or limits."""
NOT_CERTAIN = Asked()


class KubeletInputs(msgspec.Struct, frozen=True):
    """``pods_cpus``: the CPU set of the pods' root, which all cgroups below it have on cgroup v1; "" on v2, where the
    kernel passes it on; None: it cannot be read. ``shared_cpus``: the CPUs of containers without CPUs of their own,
    None where they are not known. ``has_memory_qos``: is the feature on? None: kubelet has not told."""

    version: int
    pods_cpus: str | None = None
    shared_cpus: str | None = None
    has_memory_qos: bool | None = None


def value(row: str, place: Place, qos: KubeQoS, asked: Asked, kubelet: KubeletInputs) -> Value | None:
    """Returns the value that kubelet's file holds; None if that is not certain."""
    if row == CPUS:
        if place is not Place.CONTAINER:
            return kubelet.pods_cpus
        may_be_exclusive = qos is KubeQoS.GUARANTEED and kubelet.shared_cpus != kubelet.pods_cpus
        return None if may_be_exclusive else kubelet.shared_cpus
    if row in MEMORY_QOS and kubelet.version == 2 and kubelet.has_memory_qos is not False:
        return None
    if place in (Place.POD, Place.CONTAINER):
        by_spec = {QUOTA: asked.quota_us, SHARES: asked.shares, MEMORY: asked.memory_bytes, SWAP: asked.memory_bytes}
    else:
        by_spec = {QUOTA: UNLIMITED, SHARES: MIN_SHARES if qos is KubeQoS.BEST_EFFORT else None}
    if row in by_spec:
        return by_spec[row]
    if row == IDLE and by_spec[SHARES] is None:
        return None  # clearing it makes the kernel forget the shares
    return files.row(row).default
