"""Follows what changes on the host: where pods' cgroups are, which CPUs are online, which resctrl groups exist.

Runs in the event loop. Events of the kernel are watched; without an event, one small file is read every ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from qosd.act.fileactor import FileActor
from qosd.locator import USUAL, CgroupLocator
from qosd.model.snapshot import PressureTrigger
from qosd.pods.cpumanager import CPUManagerFile
from qosd.pods.source import PodSource
from qosd.pods.watch import CgroupWatch
from qosd.policy.resctrlwatch import ResctrlWatch
from qosd.policy.source import PolicySource
from qosd.pressuretriggers import PressureTriggers
from qosd.tickscheduler import TickScheduler

_LOOK_AGAIN_S = 10.0
_NEVER_S = float("-inf")
_log = logging.getLogger(__name__)


class HostWatch:
    """Keeps ``locator`` and the host facts of ``policy`` up to date.

    Tells ``pods`` and ``files`` of changes below kubelet's cgroups, and arms ``pressure_triggers`` in the tiers.
    """

    def __init__(
        self,
        locator: CgroupLocator,
        policy: PolicySource,
        cpu_manager: CPUManagerFile,
        pods: PodSource,
        files: FileActor,
        scheduler: TickScheduler,
        pressure_triggers: PressureTriggers,
    ) -> None:
        self._locator, self._policy, self._cpu_manager = locator, policy, cpu_manager
        self._pods, self._files, self._scheduler, self._pressure_triggers = pods, files, scheduler, pressure_triggers
        self._event_loop = asyncio.get_running_loop()
        self._looked_s = self._counted_s = _NEVER_S
        self._resctrl: ResctrlWatch | None = None
        self._watches: list[CgroupWatch] = []

    def start(self) -> None:
        """Reads what is there and begins to follow it."""
        self._cpu_manager.start()
        self._resctrl = ResctrlWatch(self._event_loop, self._locator.tree.resctrl, self._host_changed)
        self._follow()

    @property
    def problems(self) -> tuple[str, ...]:
        """The things that cannot be followed, one sentence each."""
        return (*self._locator.topology.problems, *self._locator.layout.problems, *self._pressure_triggers.problems)

    def close(self) -> None:
        self._pressure_triggers.close()
        for watch in self._watches:
            watch.close()
        self._cpu_manager.close()
        if self._resctrl is not None:
            self._resctrl.close()

    def watch_pressure(self, triggers: tuple[PressureTrigger, ...]) -> None:
        """Arms the triggers that the newest tick wants to be woken by."""
        self._pressure_triggers.watch(triggers, self._locator.tiers)

    def look_again(self) -> None:
        """Looks, at a tick, for those changes for which a look is due."""
        self._look_for_layout()
        self._count_cpus()

    def _count_cpus(self) -> None:
        """Reads which CPUs are online, every ten seconds: no event tells of one that went on- or offline.

        Looks then, too, at the file of kubelet's CPU manager, at resctrl's mount and at triggers that have ended; where
        these are watched, that costs nothing.
        """
        if time.monotonic() - self._counted_s >= _LOOK_AGAIN_S:
            self._counted_s = time.monotonic()
            self._cpu_manager.look_again()
            self._pressure_triggers.arm(self._locator.tiers)
            if self._resctrl is not None:
                self._resctrl.look_again()
            if self._locator.count_cpus():
                _log.info("the node's CPUs are %s now", self._locator.topology.online)

    def _look_for_layout(self) -> None:
        waited = time.monotonic() - self._looked_s >= _LOOK_AGAIN_S
        news = self._pods.cgroup_driver != self._locator.runtime_driver
        if news or (waited and not self._locator.holds(self._pods.current)):
            self._locator.runtime_driver = self._pods.cgroup_driver
            self.look()

    def look(self, announced: Sequence[str] = ()) -> None:
        """Looks for kubelet's layout. ``announced``: the cgroup parents of pods that are about to be created."""
        self._looked_s = time.monotonic()
        if self._locator.find((*announced, *(pod.cgroup for pod in self._pods.current))):
            self._follow()
            self._policy.look_at_host()  # what the host supports shows below kubelet's cgroups

    def _host_changed(self) -> None:
        if self._policy.look_at_host():
            self._scheduler.wake()

    def _look_soon(self) -> None:
        self._looked_s = _NEVER_S
        self._scheduler.wake()

    def _follow(self) -> None:
        """Watches the directories in which pods appear, and those in which values are written; arms the triggers."""
        self._pressure_triggers.arm(self._locator.tiers)
        for problem in self._locator.layout.problems:
            _log.warning("%s", problem)
        for watch in self._watches:
            watch.close()
        self._watches.clear()
        roots = self._locator.watched_roots()
        if not roots:
            _log.warning(
                "%s: no cgroups are mounted there: no pod is measured and nothing is written", self._locator.tree.root
            )
        elif not self._locator.watched:
            self._watch(CgroupWatch(self._event_loop, roots[0], USUAL, self._look_soon))
        else:
            self._pods.follow(roots[0], self._locator.watched)
            for root in roots[1:]:
                self._watch(
                    CgroupWatch(self._event_loop, root, self._locator.watched, lambda: None, self._files.touched)
                )
            _log.info("pods are below %s (%s)", self._locator.layout.kubepods, roots[0])

    def _watch(self, watch: CgroupWatch) -> None:
        watch.start()
        self._watches.append(watch)
