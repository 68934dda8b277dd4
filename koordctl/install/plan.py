"""Makes the plan of an installation from facts, or the reasons why there is none. Pure.

Order: files, koord-qosd, the proxy, a sandbox through it, and only then kubelet. Undoing runs the other way round, so
kubelet is back on the runtime before anything that serves it stops. Without koord-qosd (``with_daemon``), which is then
a pod's, its unit is in place but not started, and what a koord-qosd keeps on the node and in the kernel is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from koord.model.locations import (
    BYPASS_FILE,
    CONFIGURATION_DIRECTORY,
    CONTAINERD_SOCKET,
    HOOK_SERVER_DIRECTORY,
    HOOK_SERVER_FILE,
    PROXY_DIRECTORY,
    PROXY_SOCKET,
    PROXY_STATUS_SOCKET,
    RULES_FILE,
    RUN_DIRECTORY,
)
from koord.model.slices import SLICE
from koordctl.doctor import CheckResult, CheckStatus, kubernetes
from koordctl.doctor.checks import blockers, reason
from koordctl.install.disk import Place, PlacedFile, PlacedLink, UnwantedFile
from koordctl.install.steps import (
    CheckSandbox,
    PointKubelet,
    PutFiles,
    RemoveLeavings,
    RestoreKernel,
    ResumeUnits,
    StartUnits,
    Step,
)
from koordctl.node import grants, settings, units
from koordctl.node.facts import Facts
from koordctl.node.units import LOCAL, PROXY_UNITS, QOSD, UNIT_FILES, UNITS, Unit, UnitFile

PROGRAMS = ("koord-runtime-proxy", "koord-qosd", "koordctl")
_SOCKET_UNIT, _PROXY = PROXY_UNITS
_DROP_IN = "50-koord-node.conf"
_SERVED_BY_DEFAULT = (CONTAINERD_SOCKET, f"/var{CONTAINERD_SOCKET}")
_RUNTIME_UNITS = {"crio.sock": "crio.service", "cri-dockerd.sock": "cri-docker.service"}
_KUBELET_FINDINGS = ("kubelet-found", "kubelet-tree")
_PROXYS_TREES = (PROXY_DIRECTORY, PROXY_STATUS_SOCKET, BYPASS_FILE)
_TREES = (RUN_DIRECTORY, PROXY_DIRECTORY, HOOK_SERVER_FILE)
_DIRECTORIES = (HOOK_SERVER_DIRECTORY.rpartition("/")[0], HOOK_SERVER_DIRECTORY, CONFIGURATION_DIRECTORY)


class Flavour(StrEnum):
    """How the programs came here, by which Koord decides which files are its own to make and to remove."""

    VENV = "virtual environment"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Programs:
    """``directory`` has the programs; ``units``: the text of each unit by its name; ``problem``: why it cannot be."""

    flavour: Flavour
    directory: str
    units_directory: str
    units: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def unit(self, name: str) -> Unit:
        return Unit(name, (UnitFile(name, self.units.get(name, "")),))


@dataclass(frozen=True, slots=True)
class InstallFacts:
    """The facts for a plan: the node, Koord's own programs, and what is installed of Koord.

    ``running``: Koord's active units. ``acts_besides``: a koord-qosd that is not the unit's acts here. ``ours``: paths
    that the record says we made. ``uid``: of the pod that the installation verifies with. ``user``: who runs this.
    """

    node: Facts
    programs: Programs
    running: frozenset[str] = frozenset()
    acts_besides: bool = False
    ours: frozenset[str] = frozenset()
    uid: str = ""
    user: int = 0


def refusals(facts: InstallFacts, with_kubelet: bool, in_the_way: Sequence[str]) -> tuple[CheckResult, ...]:
    """Returns every reason not to install; ``in_the_way``: paths of ours where another's file is."""
    reasons = [each for each in blockers(facts.node) if with_kubelet or each.check not in _KUBELET_FINDINGS]
    if facts.user != 0:
        reasons.append(reason("root", "only root can install", "use sudo"))
    if facts.programs.problem:
        reasons.append(reason("programs", facts.programs.problem, "see 'Install it on a node' in the README"))
    for path in in_the_way:
        reasons.append(reason("files", f"{path} is there and is not Koord's to replace", "remove what put it there"))
    return (*reasons, *(_kubelet_refusals(facts) if with_kubelet else ()))


def daemon_refusals(facts: InstallFacts, wished: bool | None, recorded: bool | None) -> Iterator[CheckResult]:
    """Yields why koord-qosd.service can be neither started nor left out; ``wished`` None: the operator did not say.

    ``recorded``: it is part of the installation that is there; None: there is none.
    """
    if recorded is None:
        if wished is None and facts.acts_besides:
            text = f"a koord-qosd acts on this node that is not {QOSD}: the chart's DaemonSet, or one started by hand"
            yield reason("daemon", text, "install with --no-daemon, or with --daemon to have the unit stand by")
    elif wished is not None and wished != recorded:
        text = f"Koord is installed {'with' if recorded else 'without'} {QOSD}"
        alone = " while no other koord-qosd is on this node" if recorded else ""
        remedy = f"run koordctl uninstall{alone}, then koordctl install --{'no-' if recorded else ''}daemon"
        yield reason("daemon", text, remedy)


def restart_refusals(facts: InstallFacts, steps: Sequence[Step]) -> Iterator[CheckResult]:
    """Yields the reason not to restart kubelet, where ``steps`` do and pods would end by it."""
    found = kubernetes.kubelet_restart(facts.node)
    if found.status is CheckStatus.WARN and any(isinstance(step, PointKubelet) for step in steps):
        yield reason("kubelet-restart", found.sentence, f"{found.remedy}; or restart kubelet all the same with --force")


def steps(facts: InstallFacts, with_kubelet: bool, with_daemon: bool = True) -> tuple[Step, ...]:
    """Returns all steps on a node without Koord; where kubelet has no unit, those without kubelet."""
    units = (*_units(facts, with_daemon), *_configuration(facts))
    programs = _programs(facts)
    daemon = StartUnits("Start the node daemon, so that the first pod already meets its hooks", (QOSD,))
    node_steps: list[Step] = [
        _leavings(with_daemon),
        *([PutFiles("Link the programs to where the units look for them", programs)] if programs else []),
        PutFiles("Put the units and their settings in place, to be started at boot", units, units=UNITS),
        *((RestoreKernel(facts.node.runtime.socket), daemon) if with_daemon else ()),
        StartUnits("Start the runtime proxy, its socket first", PROXY_UNITS, serves_kubelet=True),
        _sandbox(facts),
    ]
    return (*node_steps, *_kubelet(facts)) if with_kubelet else tuple(node_steps)


def places(steps: Sequence[Step]) -> tuple[Place, ...]:
    """Returns every file and link of the steps."""
    return tuple(place for step in steps for place in step.places)


def grant_steps(facts: InstallFacts) -> tuple[Step, ...]:
    """Returns the steps that bring the grants of an installed koord-qosd up to date; one that is stopped stays so."""
    places = grant_places(facts)
    runs = QOSD in facts.running
    start = StartUnits("Restart the node daemon with what it may do now", (QOSD,), restart=(QOSD,), repair=True)
    return (
        *([ResumeUnits((QOSD,))] if runs else ()),
        PutFiles("Let the node daemon do what the features that are on need, and no more", places, units=(QOSD,)),
        *([start] if runs else ()),
    )


def changes(all_steps: Sequence[Step], differing: Set[str], facts: InstallFacts) -> tuple[Step, ...]:
    """Returns those of ``all_steps`` that are left to do where Koord is installed.

    ``differing``: places that are not as they should. If anything is left, a sandbox verifies it. What is started or
    restarted with other files goes back with them.
    """
    pairs = [(step, _due(step, differing, facts)) for step in all_steps]
    due = [each for _, each in pairs if each]
    starts = [step for step in due if isinstance(step, StartUnits)]
    touched = tuple(unit for step in starts for unit in step.units if unit in step.restart or unit not in facts.running)
    resume = (ResumeUnits(touched),) if touched and any(isinstance(step, PutFiles) for step in due) else ()
    return (*resume, *(each or step for step, each in pairs if each or (due and isinstance(step, CheckSandbox))))


def _due(step: Step, differing: Set[str], facts: InstallFacts) -> Step | None:
    match step:
        case PutFiles():
            return step if any(place.path in differing for place in step.places) else None
        case StartUnits():
            older = tuple(unit for unit in step.units if unit in facts.running and _has_changed(unit, differing))
            stopped = any(unit not in facts.running for unit in step.units)
            return msgspec.structs.replace(step, restart=older, repair=True) if older or stopped else None
        case RestoreKernel():  # the runtime is said in this drop-in, or in none
            return msgspec.structs.replace(step, moved=True) if _drop_in_path(QOSD) in differing else None
        case PointKubelet():
            off = facts.node.kubelet.running and not settings.is_proxy(facts.node.kubelet.runtime_endpoint)
            return step if off or step.place.path in differing else None
        case _:
            return None


def _has_changed(unit: str, differing: Set[str]) -> bool:
    return any(path.endswith(f"/{unit}") or f"/{unit}.d/" in path for path in differing)


def _leavings(with_daemon: bool) -> RemoveLeavings:
    """Without the daemon, the proxy shares the run directory with another koord-qosd: it goes only if it is empty."""
    if with_daemon:
        return RemoveLeavings(_TREES, _DIRECTORIES, own=(CONFIGURATION_DIRECTORY,))
    return RemoveLeavings(_PROXYS_TREES, (*_DIRECTORIES, RUN_DIRECTORY), own=(CONFIGURATION_DIRECTORY,))


def _programs(facts: InstallFacts) -> tuple[Place, ...]:
    if facts.programs.flavour is Flavour.PACKAGE:
        return ()
    return tuple(PlacedLink(f"/usr/bin/{name}", f"{facts.programs.directory}/{name}") for name in PROGRAMS)


def _units(facts: InstallFacts, with_daemon: bool) -> tuple[Place, ...]:
    """Returns the units, if they are not the package's, and the links that enabling makes."""
    where, texts = facts.programs.units_directory, facts.programs.units
    written = [
        PlacedFile(f"{where}/{name}", texts[name]) for name in UNIT_FILES if facts.programs.flavour is Flavour.VENV
    ]
    enabled = [
        PlacedLink(f"{LOCAL}/{target}.wants/{name}", f"{where}/{name}")
        for name in (UNITS if with_daemon else PROXY_UNITS)
        for target in " ".join(facts.programs.unit(name).values("Install", "WantedBy")).split()
    ]
    return (*written, *_drop_ins(facts), *_former_drop_ins(facts), *grant_places(facts), *enabled)


def _drop_ins(facts: InstallFacts) -> Iterator[PlacedFile]:
    """Yields drop-ins with what the units do not know: another runtime's socket, its group, kubelet's directory."""
    runtime = facts.node.runtime.socket
    proxy, daemon, after = [], [], ""
    if runtime not in _SERVED_BY_DEFAULT:
        proxy, daemon = [f"--remote-runtime-service-endpoint={runtime}"], [f"--runtime-endpoint=unix://{runtime}"]
        after = _RUNTIME_UNITS.get(runtime.rpartition("/")[2], "")
    if settings.runtime_kind(runtime) == settings.DOCKER:
        proxy.append("--backend-runtime-mode=Docker")
    if facts.node.kubelet.root_dir:
        daemon.append(f"--kubelet-state-dir={facts.node.kubelet.root_dir}")
    for name, flags in ((_PROXY, proxy), (QOSD, daemon)):
        if flags:
            command = facts.programs.unit(name).values("Service", "ExecStart")[-1]
            ordered = f"[Unit]\nAfter={after}\n\n" if after else ""
            yield _drop_in(name, f"{ordered}[Service]\nExecStart=\nExecStart={' '.join((command, *flags))}\n")
    if facts.node.runtime.socket_group:
        yield _drop_in(_SOCKET_UNIT, f"[Socket]\nSocketGroup={facts.node.runtime.socket_group}\n")


def _former_drop_ins(facts: InstallFacts) -> Iterator[UnwantedFile]:
    """Yields the drop-ins that we made when the node was another: they would still say what it was."""
    desired = {file.path for file in _drop_ins(facts)}
    return (UnwantedFile(path) for path in map(_drop_in_path, UNITS) if path in facts.ours and path not in desired)


def grant_places(facts: InstallFacts) -> tuple[Place, ...]:
    """Returns the drop-in with what the features that are on need; one that we made goes where none needs anything."""
    if facts.node.koord.grants:
        return (PlacedFile(grants.DROP_IN, facts.node.koord.grants),)
    return (UnwantedFile(grants.DROP_IN),) if grants.DROP_IN in facts.ours else ()


def _drop_in_path(unit: str) -> str:
    return f"{LOCAL}/{unit}.d/{_DROP_IN}"


def _drop_in(unit: str, text: str) -> PlacedFile:
    return PlacedFile(_drop_in_path(unit), f"# Written by koordctl install for this node.\n{text}")


def _configuration(facts: InstallFacts) -> tuple[Place, ...]:
    """Returns the rules if they must say something for kubelet and are not there: they are the operator's."""
    policy = facts.node.kubelet.cpu_manager_policy
    if facts.node.koord.rules_file or policy in ("", "none"):
        return ()
    return (PlacedFile(RULES_FILE, f"node:\n  cpuManagerPolicy: {policy}\n", keep=True),)


def _sandbox(facts: InstallFacts) -> CheckSandbox:
    """Returns the check; its cgroup is beside those of BestEffort pods, or at the top where kubelet has made none yet.

    It is not named as a pod's: kubelet kills what it finds in the cgroup of a pod that it does not know.
    """
    node, tier, uid = facts.node, facts.node.cgroup.best_effort, facts.uid
    if (node.cgroup.driver or node.runtime.cgroup_driver) == "systemd":
        above = tier.rpartition("/")[2].removesuffix(SLICE)
        parent = "-".join(part for part in (above, f"koord_check_{uid.replace('-', '_')}{SLICE}") if part)
        cgroup = f"{tier}/{parent}"
    else:
        parent = cgroup = f"{tier}/koord-check-{uid}"
    return CheckSandbox(PROXY_SOCKET, node.runtime.socket, uid, parent, cgroup)


def _kubelet(facts: InstallFacts) -> Iterator[PointKubelet]:
    unit = facts.node.kubelet.unit_files
    if unit is not None:
        drop_in = PlacedFile(units.kubelet_drop_in_path(unit.name), units.kubelet_drop_in(units.own_command(unit)))
        yield PointKubelet(unit.name, drop_in, facts.node.kubelet.healthz)


def _kubelet_refusals(facts: InstallFacts) -> Iterator[CheckResult]:
    kubelet = facts.node.kubelet
    if kubelet.unit_files is None:
        if kubelet.unit:
            yield reason("kubelet-unit", f"there is no unit {kubelet.unit}", "name another: --kubelet-unit")
    elif why := units.refusal(kubelet.unit_files):
        hint = "set kubelet's endpoints yourself, and install with --no-kubelet"
        yield reason("kubelet-unit", f"{why}, so its endpoints cannot be set in a drop-in", hint)
    if settings.is_proxy(kubelet.own_endpoint):
        where = f" and {kubelet.config_file}" if kubelet.config_file else ""
        text = f"kubelet is pointed at {PROXY_SOCKET} already, not by a drop-in of Koord's: see its flags{where}"
        yield reason("kubelet-endpoint", text, "set it back to the runtime, else it could not go back there")
