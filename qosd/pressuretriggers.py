"""Arms the pressure triggers of the strategies that are on in the kernel, and hears them in the event loop.

The triggers' descriptors are in an epoll of their own, because event loops know nothing of EPOLLPRI; the event loop
reads that epoll when any of them fires. A cgroup v1 tier has no PSI: there ``memory.pressure_level`` stands in for
memory (medium for ``some``, critical for ``full``), and the other resources have none. Invariant: a trigger that
ended, or cannot be armed, costs itself only: ``problems`` names it, and ``arm`` tries it again.
"""

from __future__ import annotations

import os
import select
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from koord.host import pressuretrigger
from koord.host.cgroup import Tree
from koord.host.files import Target
from koord.model.qos import KubeQoS
from qosd.model.snapshot import PressureTrigger

_LEVELS = {"some": "medium", "full": "critical"}
_ENDED = select.EPOLLERR | select.EPOLLHUP


@dataclass(frozen=True, slots=True)
class _Armed:
    """``file``: the pressure file. ``is_event``: the descriptor is an eventfd, which must be read."""

    descriptor: int
    file: Path
    is_event: bool


class PressureTriggers:
    """Calls ``urge`` when a trigger fires. ``watch`` and ``arm`` cost nothing where nothing is new."""

    def __init__(self, event_loop: AbstractEventLoop, tree: Tree, urge: Callable[[], None]) -> None:
        self._event_loop, self._tree, self._urge = event_loop, tree, urge
        self._triggers: tuple[PressureTrigger, ...] = ()
        self._armed: dict[PressureTrigger, _Armed] = {}
        self._problems: dict[PressureTrigger, str] = {}
        self._epoll: select.epoll | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each trigger that is not armed."""
        return tuple(f"no urgent wake-up on {trigger}: {problem}" for trigger, problem in self._problems.items())

    def watch(self, triggers: tuple[PressureTrigger, ...], tiers: Mapping[KubeQoS, str]) -> None:
        """Watches these triggers and no others from now on; ``tiers``: their cgroups."""
        if triggers == self._triggers:
            return
        self._triggers = triggers
        for trigger in self._armed.keys() - triggers:
            self._end(trigger)
        self._problems = {trigger: why for trigger, why in self._problems.items() if trigger in triggers}
        if self._epoll is None:
            self._epoll = select.epoll()
            self._event_loop.add_reader(self._epoll.fileno(), self._hear, self._epoll)
        self.arm(tiers)

    def arm(self, tiers: Mapping[KubeQoS, str]) -> None:
        """Arms the triggers that are not armed yet, in the cgroups that the tiers have now."""
        for trigger in self._triggers:
            try:
                self._arm(trigger, tiers)
            except OSError as error:
                self._problems[trigger] = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            else:
                self._problems.pop(trigger, None)

    def close(self) -> None:
        for trigger in tuple(self._armed):
            self._end(trigger)
        if self._epoll is not None:
            self._event_loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
        self._epoll, self._triggers = None, ()

    def _arm(self, trigger: PressureTrigger, tiers: Mapping[KubeQoS, str]) -> None:
        file = self._file(trigger, tiers)
        before = self._armed.get(trigger)
        if before is not None and before.file == file:
            return
        if before is not None:
            self._end(trigger)
        if file is None:
            raise OSError("the tier's cgroup is not known yet")
        armed, event_mask = _opened(trigger, file)
        assert self._epoll is not None
        try:
            self._epoll.register(armed.descriptor, event_mask)
        except OSError as error:
            os.close(armed.descriptor)
            raise OSError(error.errno, f"is not a pressure file: {error.strerror}", str(file.parent)) from error
        self._armed[trigger] = armed

    def _file(self, trigger: PressureTrigger, tiers: Mapping[KubeQoS, str]) -> Path | None:
        """Returns the file to arm the trigger on; None while the tier's cgroup is unknown."""
        if trigger.tier is None:
            return self._tree.proc / "pressure" / trigger.resource
        cgroup = tiers.get(trigger.tier, "")
        if not cgroup:
            return None
        psi = self._tree.path(Target(cgroup, f"{trigger.resource}.pressure"))
        assert psi is not None, "both cgroup versions have a row for it"
        level = self._tree.directory(cgroup, "memory") / pressuretrigger.LEVEL
        return level if trigger.resource == "memory" and not psi.exists() and level.exists() else psi

    def _hear(self, epoll: select.epoll) -> None:
        """Ends the triggers that have ended, which epoll would report without end, and urges the loop for a stall.

        The kernel reports a stall once, and may have reported it to the event loop's own poll: so an epoll that
        reports nothing means a stall.
        """
        events = dict(epoll.poll(0))
        ended = [
            trigger for trigger, armed in self._armed.items() if _has_ended(armed, events.get(armed.descriptor, 0))
        ]
        for trigger in ended:
            self._end(trigger)
            self._problems[trigger] = "its cgroup is gone"
        if not events or len(ended) < len(events):
            self._urge()

    def _end(self, trigger: PressureTrigger) -> None:
        armed = self._armed.pop(trigger)
        assert self._epoll is not None
        self._epoll.unregister(armed.descriptor)
        os.close(armed.descriptor)


def _opened(trigger: PressureTrigger, file: Path) -> tuple[_Armed, int]:
    if file.name == pressuretrigger.LEVEL:
        event = pressuretrigger.memory_level(file.parent, _LEVELS[trigger.degree])
        return _Armed(event, file, is_event=True), select.EPOLLIN
    descriptor, _ = pressuretrigger.psi(file, trigger.degree, trigger.stall_us, trigger.window_us)
    return _Armed(descriptor, file, is_event=False), select.EPOLLPRI


def _has_ended(armed: _Armed, event: int) -> bool:
    """Has the trigger's cgroup gone? Reads an eventfd, which stays readable otherwise; a removal is an event there."""
    if not event or not armed.is_event:
        return bool(event & _ENDED)
    with suppress(BlockingIOError):
        os.eventfd_read(armed.descriptor)
    return not armed.file.exists()
