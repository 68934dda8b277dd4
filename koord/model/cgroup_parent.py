"""What kubelet's name for a pod's cgroup says: the Kubernetes QoS tier, the pod's UID, and the driver's style.

kubelet names a pod ``/kubepods/burstable/pod<uid>`` (cgroupfs) or
``/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice`` (systemd); with ``--cgroup-root``
both gain a prefix (``/root/kubepods/…``, ``/root.slice/root-kubepods.slice/…``). The tier is always the Kubernetes
QoS class, never the label's. A path that is not of that form gives None: it is no pod of kubelet's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from koord.model.qos import KubeQoS
from koord.model.slices import SLICE

MAX_PATH = 4096
_KEPT_PATHS = 256
_TIERS = {None: KubeQoS.GUARANTEED, "burstable": KubeQoS.BURSTABLE, "besteffort": KubeQoS.BEST_EFFORT}
_UID = r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}"
_UID_SYSTEMD = r"[0-9A-Za-z][0-9A-Za-z_]{0,127}"
_SYSTEMD = re.compile(rf"(?:[^/]*-)?kubepods(?:-(burstable|besteffort))?-pod({_UID_SYSTEMD})\.slice", re.ASCII)
_CGROUPFS = re.compile(rf"(?:.*/)?kubepods/(?:(burstable|besteffort)/)?pod({_UID})", re.ASCII)


class CgroupStyle(StrEnum):
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """What a pod's cgroup path says about the pod. ``uid`` is spelled with dashes again."""

    kube_qos: KubeQoS
    uid: str
    style: CgroupStyle


def parse(path: str) -> PodCgroup | None:
    """Read ``path``, the cgroup parent CRI carries for a pod; a trailing slash or ``:prefix:id`` is fine."""
    found = _match(path)
    if found is None:
        return None
    kube_qos, uid = _TIERS[found.group(1)], found.group(2)
    if found.re is _SYSTEMD:
        return PodCgroup(kube_qos, uid.replace("_", "-"), CgroupStyle.SYSTEMD)
    return PodCgroup(kube_qos, uid, CgroupStyle.CGROUPFS)


@lru_cache(_KEPT_PATHS)
def kube_qos(path: str) -> KubeQoS | None:
    """The Kubernetes QoS class of the pod at ``path``; None when it is no pod of kubelet's."""
    found = _match(path)
    return None if found is None else _TIERS[found.group(1)]


def _match(path: str) -> re.Match[str] | None:
    if len(path) > MAX_PATH:
        return None
    pod = path.partition(":")[0].rstrip("/")
    if ".." in pod.split("/"):
        return None
    return _SYSTEMD.fullmatch(pod.rpartition("/")[2]) if pod.endswith(SLICE) else _CGROUPFS.fullmatch(pod)
