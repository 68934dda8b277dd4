"""The plan: from facts to steps, or to the reasons why not. Pure.

Order: files, koord-qosd, the proxy, a sandbox through it, and only then kubelet. Undoing runs the other way round, so
kubelet is back on the runtime before anything that serves it stops. Without koord-qosd (``with_daemon``), which is then
a pod's, its unit is in place but not started, and what a koord-qosd keeps on the node and in the kernel is not ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import msgspec

from koord.model.slices import SLICE
from koordctl.doctor import grants, kubernetes, settings
from koordctl.doctor.finding import Finding, Status
from koordctl.doctor.preflight import blockers
from koordctl.host import kubelet_unit
from koordctl.host.kubelet_unit import PROXY_SOCKET, PROXY_UNITS
from koordctl.host.unitfile import Unit, UnitFile
from koordctl.install import kubelet
from koordctl.install.facts import PROGRAMS, UNIT_FILES, UNITS, VENV_UNITS, Flavour, NodeFacts
from koordctl.install.files import File, Gone, Link, Place
from koordctl.install.steps import QOSD, Files, Kernel, Kubelet, Leavings, Resume, Sandbox, Start, Step

_SOCKET_UNIT, _PROXY = PROXY_UNITS
_DROP_IN = "50-koord-node.conf"
_SERVED_BY_DEFAULT = ("/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock")
_RUNTIME_UNITS = {"crio.sock": "crio.service", "cri-dockerd.sock": "cri-docker.service"}
_KUBELET_FINDINGS = ("kubelet-found", "kubelet-tree")
_PROXYS_TREES = ("/run/koord-runtimeproxy", "/run/koord/runtime-proxy-metrics.sock", "/run/koord/bypass")
_SHARED = "/run/koord"
_TREES = (_SHARED, "/run/koord-runtimeproxy", settings.HOOK_FILE)
_DIRECTORIES = ("/etc/runtime", "/etc/runtime/hookserver.d", "/etc/koord")


def refusals(facts: NodeFacts, with_kubelet: bool, in_the_way: Sequence[str]) -> tuple[Finding, ...]:
    """Every reason not to install; ``in_the_way``: paths of ours where somebody else's file is."""
    reasons = [each for each in blockers(facts.doctor) if with_kubelet or each.check not in _KUBELET_FINDINGS]
    if facts.user != 0:
        reasons.append(_reason("root", "only root can install", "use sudo"))
    if facts.programs.problem:
        reasons.append(_reason("programs", facts.programs.problem, "see 'Install it on a node' in the README"))
    for path in in_the_way:
        reasons.append(_reason("files", f"{path} is there and is not Koord's to replace", "remove what put it there"))
    return (*reasons, *(_of_kubelet(facts) if with_kubelet else ()))


def of_the_daemon(facts: NodeFacts, wished: bool | None, recorded: bool | None) -> Iterator[Finding]:
    """Why koord-qosd.service can be neither started nor left out; ``wished`` None: nobody said.

    ``recorded``: is it part of the installation that is there; None: there is none.
    """
    if recorded is None:
        if wished is None and facts.acts_besides:
            text = f"a koord-qosd acts on this node that is not {QOSD}: the chart's DaemonSet, or one started by hand"
            yield _reason("daemon", text, "install with --no-daemon, or with --daemon to have the unit stand by")
    elif wished is not None and wished != recorded:
        text = f"Koord is installed {'with' if recorded else 'without'} {QOSD}"
        alone = " while no other koord-qosd is on this node" if recorded else ""
        remedy = f"run koordctl uninstall{alone}, then koordctl install --{'no-' if recorded else ''}daemon"
        yield _reason("daemon", text, remedy)


def of_the_restart(facts: NodeFacts, steps: Sequence[Step]) -> Iterator[Finding]:
    """Why kubelet is not to be restarted, if ``steps`` do that."""
    finding = kubernetes.kubelet_restart(facts.doctor)
    if finding.status is Status.WARN and any(isinstance(step, Kubelet) for step in steps):
        yield _reason(finding.check, finding.sentence, f"{finding.remedy}; or have it so with --force")


def places(facts: NodeFacts, with_kubelet: bool, with_daemon: bool = True) -> tuple[Place, ...]:
    """Every file and link of the plan."""
    files = [*_programs(facts), *_units(facts, with_daemon), *_configuration(facts)]
    return (*files, _kubelet(facts).place) if with_kubelet and facts.kubelet_unit else tuple(files)


def steps(facts: NodeFacts, with_kubelet: bool, with_daemon: bool = True) -> tuple[Step, ...]:
    """All steps on a node without Koord."""
    units = (*_units(facts, with_daemon), *_configuration(facts))
    programs = _programs(facts)
    node_steps: list[Step] = [
        _leavings(with_daemon),
        *([Files("Link the programs to where the units look for them", programs)] if programs else []),
        Files("Put the units and their settings in place, to be started at boot", units, units=UNITS),
        *(_daemon(facts) if with_daemon else ()),
        Start("Start the runtime proxy, its socket first", PROXY_UNITS, serves_kubelet=True),
        _sandbox(facts),
    ]
    return (*node_steps, _kubelet(facts)) if with_kubelet else tuple(node_steps)


def grant_steps(facts: NodeFacts) -> tuple[Step, ...]:
    """Only what brings the grants of an installed koord-qosd up to date; it is not started if it does not run."""
    places = grant_places(facts)
    runs = QOSD in facts.running
    start = Start("Restart the node daemon with what it may do now", (QOSD,), restart=(QOSD,), repair=True)
    return (
        *([Resume((QOSD,))] if runs else ()),
        Files("Let the node daemon do what the features that are on need, and no more", places, units=(QOSD,)),
        *([start] if runs else ()),
    )


def changes(all_steps: Sequence[Step], differing: Set[str], facts: NodeFacts) -> tuple[Step, ...]:
    """What of ``all_steps`` is left to do where Koord is installed; ``differing``: places that are not as they should.

    If anything is, a sandbox verifies it. What is started or restarted with other files goes back with them.
    """
    pairs = [(step, _due(step, differing, facts)) for step in all_steps]
    due = [each for _, each in pairs if each]
    touched = tuple(unit for step in due if isinstance(step, Start) for unit in _touched(step, facts))
    resume = (Resume(touched),) if touched and any(isinstance(step, Files) for step in due) else ()
    return (*resume, *(each or step for step, each in pairs if each or (due and isinstance(step, Sandbox))))


def _due(step: Step, differing: Set[str], facts: NodeFacts) -> Step | None:
    match step:
        case Files():
            return step if any(place.path in differing for place in step.places) else None
        case Start():
            older = tuple(unit for unit in step.units if unit in facts.running and _has_changed(unit, differing))
            stopped = any(unit not in facts.running for unit in step.units)
            return msgspec.structs.replace(step, restart=older, repair=True) if older or stopped else None
        case Kernel():  # the runtime is said in this drop-in, or in none
            return msgspec.structs.replace(step, moved=True) if _drop_in_path(QOSD) in differing else None
        case Kubelet():
            off = facts.doctor.kubelet.running and not kubelet.is_proxy(facts.doctor.kubelet.runtime_endpoint)
            return step if off or step.place.path in differing else None
        case _:
            return None


def _touched(step: Start, facts: NodeFacts) -> Iterator[str]:
    return (unit for unit in step.units if unit in step.restart or unit not in facts.running)


def _has_changed(unit: str, differing: Set[str]) -> bool:
    return any(path.endswith(f"/{unit}") or f"/{unit}.d/" in path for path in differing)


def _leavings(with_daemon: bool) -> Leavings:
    """The proxy alone shares a directory with whoever's koord-qosd runs, and leaves it empty."""
    if with_daemon:
        return Leavings(_TREES, _DIRECTORIES, own=("/etc/koord",))
    return Leavings(_PROXYS_TREES, (*_DIRECTORIES, _SHARED), own=("/etc/koord",))


def _daemon(facts: NodeFacts) -> tuple[Step, ...]:
    start = Start("Start the node daemon, so that the first pod already meets its hooks", (QOSD,))
    return (Kernel(facts.doctor.runtime.socket), start)


def _programs(facts: NodeFacts) -> tuple[Place, ...]:
    if facts.programs.flavour is Flavour.PACKAGE:
        return ()
    return tuple(Link(f"/usr/bin/{name}", f"{facts.programs.directory}/{name}") for name in PROGRAMS)


def _units(facts: NodeFacts, with_daemon: bool) -> tuple[Place, ...]:
    """The units, if they are not the package's, and the links that enabling makes."""
    where, texts = facts.programs.units_directory, facts.programs.units
    written = [File(f"{where}/{name}", texts[name]) for name in UNIT_FILES if facts.programs.flavour is Flavour.VENV]
    enabled = [
        Link(f"{VENV_UNITS}/{target}.wants/{name}", f"{where}/{name}")
        for name in (UNITS if with_daemon else PROXY_UNITS)
        for target in " ".join(_unit(facts, name).values("Install", "WantedBy")).split()
    ]
    return (*written, *_drop_ins(facts), *_former_drop_ins(facts), *grant_places(facts), *enabled)


def _drop_ins(facts: NodeFacts) -> Iterator[File]:
    """What the units do not know of this node: another runtime's socket, its group, kubelet's directory."""
    runtime = facts.doctor.runtime.socket
    proxy, daemon, after = [], [], ""
    if runtime not in _SERVED_BY_DEFAULT:
        proxy, daemon = [f"--remote-runtime-service-endpoint={runtime}"], [f"--runtime-endpoint=unix://{runtime}"]
        after = _RUNTIME_UNITS.get(runtime.rpartition("/")[2], "")
    if settings.runtime_kind(runtime) == settings.DOCKER:
        proxy.append("--backend-runtime-mode=Docker")
    if facts.root_dir:
        daemon.append(f"--kubelet-state-dir={facts.root_dir}")
    for name, flags in ((_PROXY, proxy), (QOSD, daemon)):
        if flags:
            command = _unit(facts, name).values("Service", "ExecStart")[-1]
            ordered = f"[Unit]\nAfter={after}\n\n" if after else ""
            yield _drop_in(name, f"{ordered}[Service]\nExecStart=\nExecStart={' '.join((command, *flags))}\n")
    if facts.socket_group:
        yield _drop_in(_SOCKET_UNIT, f"[Socket]\nSocketGroup={facts.socket_group}\n")


def _former_drop_ins(facts: NodeFacts) -> Iterator[Gone]:
    """Those that we made when the node was another: they would still say what it was."""
    desired = {file.path for file in _drop_ins(facts)}
    return (Gone(path) for path in map(_drop_in_path, UNITS) if path in facts.ours and path not in desired)


def grant_places(facts: NodeFacts) -> tuple[Place, ...]:
    """The drop-in with what the features that are on need; one that we made is taken away where none needs anything."""
    if facts.grants:
        return (File(grants.DROP_IN, facts.grants),)
    return (Gone(grants.DROP_IN),) if grants.DROP_IN in facts.ours else ()


def _drop_in_path(unit: str) -> str:
    return f"{VENV_UNITS}/{unit}.d/{_DROP_IN}"


def _drop_in(unit: str, text: str) -> File:
    return File(_drop_in_path(unit), f"# Written by koordctl install for this node.\n{text}")


def _configuration(facts: NodeFacts) -> tuple[Place, ...]:
    """Rules are the operator's; without any, the one that must agree with kubelet is written."""
    policy = facts.doctor.kubelet.cpu_manager_policy
    if facts.doctor.koord.rules_file or policy in ("", "none"):
        return ()
    return (File(settings.RULES_FILE, f"node:\n  cpuManagerPolicy: {policy}\n", keep=True),)


def _unit(facts: NodeFacts, name: str) -> Unit:
    return Unit(name, (UnitFile(name, facts.programs.units.get(name, "")),))


def _sandbox(facts: NodeFacts) -> Sandbox:
    """Its cgroup is beside those of BestEffort pods; where kubelet has made none yet, at the top.

    It is not named as a pod's: kubelet kills what it finds in the cgroup of a pod that it does not know.
    """
    doctor, uid = facts.doctor, facts.uid
    if (doctor.cgroup.driver or doctor.runtime.cgroup_driver) == "systemd":
        above = facts.tier.rpartition("/")[2].removesuffix(SLICE)
        parent = "-".join(part for part in (above, f"koord_check_{uid.replace('-', '_')}{SLICE}") if part)
        cgroup = f"{facts.tier}/{parent}"
    else:
        parent = cgroup = f"{facts.tier}/koord-check-{uid}"
    return Sandbox(PROXY_SOCKET, doctor.runtime.socket, uid, parent, cgroup)


def _kubelet(facts: NodeFacts) -> Kubelet:
    assert facts.kubelet_unit is not None
    name = facts.kubelet_unit.name
    text = kubelet_unit.drop_in(kubelet_unit.own_command(facts.kubelet_unit))
    return Kubelet(name, File(kubelet_unit.drop_in_path(name), text), facts.healthz)


def _of_kubelet(facts: NodeFacts) -> Iterator[Finding]:
    unit = facts.kubelet_unit
    hint = "set kubelet's endpoints yourself, and install with --no-kubelet"
    if unit is None:
        if facts.kubelet_name:
            yield _reason("kubelet-unit", f"there is no unit {facts.kubelet_name}", "name another: --kubelet-unit")
    elif why := kubelet_unit.refusal(unit):
        yield _reason("kubelet-unit", f"{why}, so its endpoints cannot be set in a drop-in", hint)
    if kubelet.is_proxy(facts.endpoint):
        where = f" and {facts.doctor.kubelet.config_file}" if facts.doctor.kubelet.config_file else ""
        text = f"kubelet is pointed at {PROXY_SOCKET} already, not by a drop-in of Koord's: see its flags{where}"
        yield _reason("kubelet-endpoint", text, "set it back to the runtime, else it could not go back there")


def _reason(check: str, sentence: str, remedy: str) -> Finding:
    return Finding(check, Status.FAIL, sentence, remedy)
