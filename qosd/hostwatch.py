"""What of the host may change under the daemon: where pods are, which CPUs are online, which resctrl groups exist.

Lives in the event loop. What the kernel tells of is watched; for the rest one small file is read every ten seconds.
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
    """Keeps ``locator``, and what ``policy`` knows of the host, in step with the host.

    ``pods`` and ``files`` hear of what happens below kubelet's cgroups; ``pressure_triggers`` are armed in the tiers.
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
        """Read what is there and begin to follow it."""
        self._cpu_manager.start()
        self._resctrl = ResctrlWatch(self._event_loop, self._locator.tree.resctrl, self._host_changed)
        self._follow()

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be followed, one sentence each."""
        return (*self._locator.topology.problems, *self._locator.layout.problems, *self._pressure_triggers.problems)

    def close(self) -> None:
        self._pressure_triggers.close()
        for watch in self._watches:
            watch.close()
        self._cpu_manager.close()
        if self._resctrl is not None:
            self._resctrl.close()

    def watch_pressure(self, triggers: tuple[PressureTrigger, ...]) -> None:
        """What the newest tick wants to be woken by."""
        self._pressure_triggers.watch(triggers, self._locator.tiers)

    def look_again(self) -> None:
        """At each tick: look where that is due."""
        self._look_for_layout()
        self._count_cpus()

    def _count_cpus(self) -> None:
        """No event tells of a CPU that went on- or offline, so one small file is read every ten seconds.

        kubelet's CPU manager's is looked at with it, resctrl's mount, and triggers that have ended, which costs nothing
        where those are watched.
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
        """``announced``: the cgroup parents of pods that are about to be made."""
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
        """Watch the directories in which pods appear, and those in which values are written; arm the triggers."""
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
