"""Finds the node's cgroup tree, kubelet's place in it, the CPUs, and how the runtime maps shares to weights.

The layout is looked for until it is found, and again when pods appear outside it: kubelet may start after us, or be
given another cgroup root. Invariant: what was handed out never changes; a new finding is a new object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from koord.host import kubelet, layout, topology
from koord.host.cgroup import ReadError, Tree, effective_value, read_text, tree_at
from koord.host.claims import Claims, of_runtime_driver
from koord.host.files import ParseError, Target
from koord.host.layout import Layout
from koord.host.topology import Topology
from koord.host.weights import Weights, mapping_of
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from koord.service.config import ConfigError
from qosd.model.snapshot import PodView
from qosd.options import Options
from qosd.pods.cri import CONTAINER_RUNNING

USUAL = ("/kubepods", "/kubepods.slice")
"""The cgroups of all pods where kubelet has no cgroup root of its own, by the two drivers."""
_log = logging.getLogger(__name__)


class CgroupLocator:
    """Facts of the host, looked up from the roots that ``options`` name, and from configuration below ``root``.

    Raises ConfigError if the sysfs that the options name shows no CPU.
    """

    def __init__(self, options: Options, root: Path = Path("/")) -> None:
        self._root = root
        self.tree = tree_at(options.cgroup_root, options.proc_root, options.sys_root, options.resctrl_root)
        self.topology = _topology(options.sys_root)
        self._online = _online(options.sys_root)
        self.layout = Layout()
        self.runtime_driver = ""
        """The cgroup driver that the runtime itself named, which kubelet 1.31 and newer take over; "" = none."""
        self._say_problems()
        self.find(())

    @property
    def tiers(self) -> Mapping[KubeQoS, str]:
        """The cgroups of kubelet's tiers by QoS class, Guaranteed's being the root of all; empty while unknown."""
        return self.layout.tiers

    def find(self, pod_cgroups: Iterable[str]) -> bool:
        """Looks for kubelet's layout anew. Has it changed? ``pod_cgroups``: cgroups or cgroup parents of pods."""
        running = kubelet.find(self.tree.proc, self._root)
        files = [self._root / file.lstrip("/") for file in kubelet.RUNTIME_CONFIGS]
        of_runtime = of_runtime_driver("the runtime", self.runtime_driver) if self.runtime_driver else Claims()
        claims = of_runtime + kubelet.claims(running, files)
        found = layout.detect(self.tree, claims, [cgroup for cgroup in pod_cgroups if cgroup])
        changed = (found.kubepods, found.tiers) != (self.layout.kubepods, self.layout.tiers)
        self.layout = found
        return changed

    def count_cpus(self) -> bool:
        """Reads the topology anew if CPUs went on- or offline. Did they? A failed read changes nothing."""
        online = _online(self.tree.sys)
        if online == self._online:
            return False
        try:
            self.topology = _topology(self.tree.sys)
        except ConfigError as error:
            _log.warning("the CPUs that are online changed, but: %s", error)
            return False
        self._online = online
        self._say_problems()
        return True

    def _say_problems(self) -> None:
        for problem in self.topology.problems:
            _log.warning("%s", problem)

    def holds(self, pods: Iterable[PodView]) -> bool:
        """Are all pods with a known cgroup below the layout's kubepods?"""
        above = f"{self.layout.kubepods}/"
        return bool(self.layout.kubepods) and all(pod.cgroup.startswith(above) for pod in pods if pod.cgroup)

    def explains(self, cgroup_parent: str) -> bool:
        """Is a pod with this cgroup parent below the layout's kubepods? True as well if it is no pod of kubelet's."""
        return layout.kubepods_above(cgroup_parent) in ("", self.layout.kubepods)

    @property
    def watched(self) -> tuple[str, ...]:
        """The cgroups in which pods appear; empty while they are unknown."""
        return tuple(dict.fromkeys((self.layout.kubepods, *self.layout.tiers.values()))) if self.layout.kubepods else ()

    def watched_roots(self) -> tuple[Path, ...]:
        """Returns the hierarchies in which values are written: on v1 that of cpu first, which also shows pods."""
        if self.tree.version == 2:
            return (self.tree.root,)
        named = (self.tree.directory("/", controller) for controller in ("cpu", "cpuset", "memory"))
        return tuple(dict.fromkeys(path for path in named if path.is_dir()))


def weights_of(writer: Writer, pods: Iterable[PodView]) -> Weights | None:
    """Returns how the runtime maps shares to weights, as containers with known shares show; None: unknown, or v1.

    Only running containers count: before, a cgroup may have the kernel's own weight, the same as that of 1024 shares.
    """
    if writer.version != 2:
        return None
    seen = []
    for pod in pods:
        for container in pod.containers:
            is_made = container.state == CONTAINER_RUNNING and not container.is_sandbox
            shares = container.requested.cpu_shares if is_made else None
            weight = _weight(writer.tree, container.cgroup) if shares else None
            if shares and weight:
                seen.append((shares, weight))
    return mapping_of(seen)


def cfs_period_in(tree: Tree, cgroup: str) -> int | None:
    """Returns the CFS period of ``cgroup`` in µs; None if it cannot be read."""
    period_us = effective_value(tree, Target(cgroup, "cpu_period"))
    return period_us if isinstance(period_us, int) and period_us > 0 else None


def _weight(tree: Tree, cgroup: str) -> int | None:
    """Returns the value of cpu.weight of ``cgroup``; None if it cannot be read."""
    try:
        text = read_text(tree.directory(cgroup) / "cpu.weight")
    except (ReadError, ValueError):
        return None
    return int(text) if text and text.isdigit() else None


def _online(sys: Path) -> str | None:
    try:
        return read_text(sys / "devices/system/cpu/online")
    except ReadError:
        return None


def _topology(sys: Path) -> Topology:
    try:
        return topology.read(sys)
    except (ParseError, ReadError) as error:
        raise ConfigError("options", "sys-root", str(sys), str(error)) from error
