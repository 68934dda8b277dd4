"""The steps of an installation, as values that a record can hold.

They are undone in reverse order, so a step that only undoes stands before those whose traces it removes. ``apply`` and
``undo`` may be repeated, and ``undo`` copes with an ``apply`` that was cut off anywhere.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from koord.model.locations import PROXY_SOCKET
from koordctl.install import disk, probes
from koordctl.install.disk import Before, Content, Place, PlacedFile
from koordctl.install.machine import InstallError, Machine
from koordctl.node.units import QOSD

_RESTORE_PAUSES_S = (0.0, 1.0, 5.0)  # systemd or the runtime may be busy with what was stopped just before


class _Step(msgspec.Struct, frozen=True):
    """A step whose ``apply`` changes nothing: it is there to be undone."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Returns the files and links that ``apply`` puts in place."""
        return ()

    def lines(self) -> tuple[str, ...]:
        """Returns what ``apply`` changes, for people."""
        return ()

    def look(self, machine: Machine) -> Before:
        """Returns what is there before ``apply``: all that ``undo`` will know."""
        return Before()

    def apply(self, machine: Machine, before: Before) -> None:
        """Does the step."""

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        """Takes the step back, and returns a sentence for each thing that stays.

        ``rest``: the steps that are undone after it; what one of those does for the same unit is not done twice.
        ``purge``: remove edited files as well.
        """
        return ()


class RemoveLeavings(_Step, frozen=True, tag="leavings"):
    """Files and directories that Koord's processes, and systemd for them, make while they run.

    ``trees`` go as a whole, ``directories`` only if they are empty; with purge ``own``, some of them, as a whole too.
    """

    trees: tuple[str, ...]
    directories: tuple[str, ...]
    own: tuple[str, ...] = ()

    sentence: ClassVar = "Note which of Koord's run-time directories are there, so that no other is left behind one day"
    undoing: ClassVar = "Remove what Koord made while it ran"

    def look(self, machine: Machine) -> Before:
        return Before(missing=tuple(path for path in (*self.directories, *self.trees) if not machine.disk.exists(path)))

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        there = [path for path in self.trees if path not in before.missing and machine.disk.exists(path)]
        for path in (*self.trees, *(self.own if purge else ())):
            if path in before.missing:
                machine.disk.remove_tree(path)
        directories = [path for path in self.directories if path in before.missing]
        notes = disk.remove_directories(machine.disk, directories)
        return (*(f"{path} stays: it was there before" for path in there), *notes)


class PutFiles(_Step, frozen=True, tag="files"):
    """Puts files and links in place, and lets systemd read the files of ``units``."""

    sentence: str
    places: tuple[Place, ...]
    units: tuple[str, ...] = ()

    @property
    def undoing(self) -> str:
        return f"Put back what was in the place of {len(self.places)} files and links"

    def lines(self) -> tuple[str, ...]:
        return ("systemctl daemon-reload",) if self.units else ()

    def look(self, machine: Machine) -> Before:
        return disk.before(machine.disk, self.places)

    def apply(self, machine: Machine, before: Before) -> None:
        disk.put_places(machine.disk, self.places)
        if self.units:
            machine.systemd.reload()

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        notes = disk.put_back(machine.disk, self.places, before, purge)
        if self.units:
            machine.systemd.reload()
        for unit in self.units:
            machine.systemd.forget_failure(unit)
        return notes


class RestoreKernel(_Step, frozen=True, tag="kernel"):
    """Puts back the kernel files that koord-qosd has recorded, after it has stopped.

    ``runtime`` is the runtime's own socket. ``moved``: the node may have another runtime since the installation, whose
    own step is to undo it with that one.
    """

    runtime: str
    moved: bool = False

    sentence: ClassVar = "Note that kernel files are to be put back once koord-qosd has gone"

    @property
    def undoing(self) -> str:
        return "Leave the kernel files as they are" if self.moved else "Put back every kernel file that Koord holds"

    def look(self, machine: Machine) -> Before:
        return Before(active=_active(machine, (QOSD,)))

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        if self.moved:
            return ()
        failed: tuple[str, ...] = ()
        for pause_s in () if before.active else _RESTORE_PAUSES_S:
            machine.sleep(pause_s)
            failed = machine.restore_kernel(self.runtime)
            if not failed:
                break
        if failed:
            raise InstallError(f"not put back: {'; '.join(failed)}")
        return ()


class ResumeUnits(_Step, frozen=True, tag="resume"):
    """Lets units run with their former files, if a change is undone that starts or restarts them.

    Those that ran before run again, whatever the change made of them; the others only if they run by now.
    """

    units: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"Note that {', '.join(self.units)} must run with what is there now, should this change fail"

    @property
    def undoing(self) -> str:
        return f"Let {', '.join(self.units)} run with what was put back"

    def look(self, machine: Machine) -> Before:
        return Before(active=_active(machine, self.units))

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        notes = []
        for unit in self.units:
            runs = unit in before.active or machine.systemd.state(unit) == "active"
            if runs and not _stopped_by(rest, unit):
                try:
                    machine.systemd.restart(unit)
                except InstallError as error:
                    notes.append(f"{unit} does not run with its former files: {error}")
        return tuple(notes)


class StartUnits(_Step, frozen=True, tag="start"):
    """Starts units, in order. ``restart``: those that run with older files. ``serves_kubelet``: kubelet is off first.

    ``repair``: of an installation that is there already, so it is not for this step to stop them.
    """

    sentence: str
    units: tuple[str, ...]
    restart: tuple[str, ...] = ()
    serves_kubelet: bool = False
    repair: bool = False

    @property
    def undoing(self) -> str:
        return f"{'Leave' if self.repair else 'Stop'} {', '.join(self.units)}"

    def lines(self) -> tuple[str, ...]:
        return tuple(f"systemctl {'restart' if unit in self.restart else 'start'} {unit}" for unit in self.units)

    def look(self, machine: Machine) -> Before:
        return Before(active=_active(machine, self.units))

    def apply(self, machine: Machine, before: Before) -> None:
        for unit in self.units:
            if unit in self.restart and unit in before.active:
                machine.systemd.restart(unit)
            else:
                machine.systemd.start(unit)

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        if self.repair:
            return ()
        ours = [unit for unit in self.units if unit not in before.active and not _stopped_by(rest, unit)]
        if ours and self.serves_kubelet and probes.on_proxy(machine.disk.root):
            raise InstallError(
                f"kubelet still reaches the runtime by {PROXY_SOCKET}: set its endpoint back and restart it"
            )
        for unit in ours:
            if self.serves_kubelet and unit.endswith(".service") and machine.systemd.state(unit) == "active":
                machine.systemd.terminate(unit)  # a process that only drains is not systemd's main one
        for unit in ours:
            machine.systemd.stop(unit)
        return ()


class CheckSandbox(_Step, frozen=True, tag="sandbox"):
    """Makes and removes a sandbox. ``parent``: its cgroup's name for the runtime; ``cgroup``: its path."""

    proxy: str
    runtime: str
    uid: str
    parent: str
    cgroup: str

    @property
    def sentence(self) -> str:
        return f"Verify: a pod sandbox through {self.proxy}, in cgroup {self.cgroup}, is made and removed again"

    undoing: ClassVar = "Remove what is left of the sandbox"

    def lines(self) -> tuple[str, ...]:
        calls = ("Version", "Status", "RunPodSandbox", "PodSandboxStatus", "StopPodSandbox", "RemovePodSandbox")
        return (f"CRI {', '.join(calls)}",)

    def apply(self, machine: Machine, before: Before) -> None:
        socket = machine.disk.at(self.proxy)
        machine.say(f"  {probes.check_runtime(socket)} answers through the proxy")
        probes.check_sandbox(machine, socket, self.uid, self.parent, self.cgroup)

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        try:
            probes.remove_all(machine, machine.disk.at(self.runtime), self.uid, self.cgroup)
        except InstallError as error:
            return (f"whether a sandbox labelled {probes.LABEL}={self.uid} is left is not known: {error}",)
        return ()


class PointKubelet(_Step, frozen=True, tag="kubelet"):
    """Puts kubelet's drop-in in place. A kubelet that runs is restarted and must be well again; no other is started.

    ``healthz``: where it says that it is well (``host:port``), "" if it does not. Where the rest has an older step of
    the same unit, undoing puts back the older drop-in and no more: its command may work no longer, and the older step
    restarts kubelet without any.
    """

    unit: str
    place: PlacedFile
    healthz: str

    @property
    def sentence(self) -> str:
        return f"Point kubelet ({self.unit}) at the proxy, restart it if it runs, and wait until it is well"

    @property
    def undoing(self) -> str:
        return f"Put kubelet ({self.unit}) back on the runtime, restart it if it runs, and wait until it is well"

    def lines(self) -> tuple[str, ...]:
        return "systemctl daemon-reload", f"systemctl restart {self.unit}"

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,)

    def look(self, machine: Machine) -> Before:
        return Before(
            **{**msgspec.structs.asdict(disk.before(machine.disk, self.places)), "active": self._active(machine)}
        )

    def apply(self, machine: Machine, before: Before) -> None:
        changed = disk.put_places(machine.disk, self.places)
        machine.systemd.reload()
        if not self._active(machine):
            machine.say(f"  {self.unit} does not run; it will use the proxy when it is started")
            return
        older: frozenset[str] = frozenset()
        if changed or not probes.on_proxy(machine.disk.root):
            older = probes.connections(machine.disk.root)
            machine.systemd.restart(self.unit)
        probes.wait_for_kubelet(machine, self.unit, self.healthz, proxied=True, older=older)

    def undo(self, machine: Machine, before: Before, purge: bool, rest: Steps = ()) -> tuple[str, ...]:
        held = machine.disk.look(self.place.path)
        notes = disk.put_back(machine.disk, self.places, before, purge)
        if any(isinstance(step, PointKubelet) and step.unit == self.unit for step in rest):
            return notes
        machine.systemd.reload()
        now = machine.disk.look(self.place.path)
        proxied = isinstance(now, Content) and PROXY_SOCKET.encode() in now.content  # an older one of ours
        if not self._to_restart(machine, before, proxied, held != now):
            return notes
        machine.systemd.restart(self.unit)
        try:
            probes.wait_for_kubelet(machine, self.unit, self.healthz, proxied)
        except InstallError as error:
            if probes.on_proxy(machine.disk.root) != proxied:
                raise
            return (*notes, str(error))
        return notes

    def _active(self, machine: Machine) -> tuple[str, ...]:
        return _active(machine, (self.unit,))

    def _to_restart(self, machine: Machine, before: Before, proxied: bool, changed: bool) -> bool:
        """Returns whether it runs with our drop-in, or failed with it; one that was stopped was meant to be."""
        state = machine.systemd.state(self.unit)
        if state == "active":
            return changed if proxied else probes.on_proxy(machine.disk.root)
        return state != "inactive" and bool(before.active)


Step = RemoveLeavings | PutFiles | RestoreKernel | ResumeUnits | StartUnits | CheckSandbox | PointKubelet
Steps = tuple[Step, ...]


def _stopped_by(steps: Steps, unit: str) -> bool:
    """Returns whether one of ``steps`` stops ``unit`` when it is undone."""
    return any(isinstance(step, StartUnits) and not step.repair and unit in step.units for step in steps)


def _active(machine: Machine, units: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(unit for unit in units if machine.systemd.state(unit) == "active")
