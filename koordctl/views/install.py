"""Shows what installing or uninstalling will do: the node as it was found, each step with its files and commands."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence

from koord.host.support import Support
from koord.model.locations import PROXY_SOCKET
from koordctl.doctor import CheckResult, kubernetes
from koordctl.install.disk import Absent, Content, Place, PlacedFile, PlacedLink, Symlink, UnwantedFile, Was
from koordctl.install.plan import InstallFacts
from koordctl.install.record import Begun
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
from koordctl.node.units import QOSD
from koordctl.table import align
from koordctl.views import doctor

Look = Callable[[str], Was]
_FEATURES = ("cpu.idle", "cpu.max.burst", "memory.high", "memory.low", "memory.min", "cpuset.cpus.partition")
NO_KUBELET = (
    "kubelet is left alone (--no-kubelet). To put it on the proxy, set both in its configuration file and restart it:\n"
    f"  containerRuntimeEndpoint: unix://{PROXY_SOCKET}\n"
    f"  imageServiceEndpoint: unix://{PROXY_SOCKET}\n"
    "Before uninstalling, set them back."
)

NO_DAEMON = (
    f"{QOSD} is not started, now or at boot (--no-daemon): the chart's DaemonSet is to be the node daemon.\n"
    "Until its pod runs, the proxy passes everything on as it comes."
)


def head(facts: InstallFacts) -> str:
    """Renders what was detected, one line each."""
    return align(("NODE", ""), list(_detected(facts)))


def plan(steps: Sequence[Step], look: Look, full: bool) -> str:
    """Renders the steps in order; ``full``: with every file's new content, as a difference to what is there."""
    return "\n".join(line for number, step in enumerate(steps, start=1) for line in _step(number, step, look, full))


def undoing(begun: Sequence[Begun], look: Look) -> str:
    """Renders what undoing the steps of a record does, in order."""
    shown = ["\n   ".join(lines) for each in reversed(begun) if (lines := list(_undo(each, look)))]
    return "\n".join(f"{number}. {lines}" for number, lines in enumerate(shown, start=1))


def reasons(findings: Sequence[CheckResult]) -> str:
    """Renders why this node is left as it is."""
    return "\n".join(f"{each.check}: {doctor.sentence(each)}" for each in findings)


def _detected(facts: InstallFacts) -> Iterator[tuple[str, str]]:
    node = facts.node
    cgroup, kubelet, runtime = node.cgroup, node.kubelet, node.runtime
    if node.recorded:
        yield "source", doctor.RECORDED
    yield "kernel", node.kernel_release
    version = f"v{cgroup.version}{' with a v2 tree beside it' if cgroup.hybrid else ''}" if cgroup.version else "none"
    yield "cgroup", f"{version}, driver {cgroup.driver or 'unknown'}, pods in {cgroup.kube_root or 'unknown'}"
    state = "running" if kubelet.running else "not running"
    yield "kubelet", _joined(kubelet.version, state, kubelet.unit, f"configured by {kubelet.config_file or 'flags'}")
    yield "  cgroupRoot", kubelet.cgroup_root or "/"
    yield "  endpoint", kubelet.own_endpoint or "the default"
    if node.restart is not None:
        yield "  restart", kubernetes.kubelet_restart(node).sentence
    yield "  CPU manager", kubelet.cpu_manager_policy or "none"
    group = f"group {runtime.socket_group}" if runtime.socket_group else ""
    yield "runtime", _joined(f"{runtime.name} {runtime.version}".strip(), runtime.socket, group)
    yield "PSI", "yes" if node.psi else "no"
    yield "resctrl", "mounted" if node.resctrl_mounted else "no"
    has = [name for name in _FEATURES if cgroup.support.get(name) is Support.PRESENT]
    yield "kernel files", ", ".join(has) or "none of the optional ones"
    yield "programs", f"{facts.programs.flavour}, in {facts.programs.directory}"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _step(number: int, step: Step, look: Look, full: bool) -> Iterator[str]:
    yield f"{number}. {step.sentence}"
    for place in step.places:
        yield from _place_lines(place, look(place.path), full)
    for line in step.lines():
        yield f"   $ {line}" if line.startswith("systemctl") else f"   {line}"


def _place_lines(place: Place, was: Was, full: bool) -> Iterator[str]:
    verb = "keep" if place.holds(was) else "make" if isinstance(was, Absent) else "replace"
    verb = "remove" if isinstance(place, UnwantedFile) else verb
    target = f" -> {place.target}" if isinstance(place, PlacedLink) else ""
    yield f"   {verb} {place.path}{target}"
    if full and isinstance(place, PlacedFile) and verb != "keep":
        old = was.content.decode("utf-8", "replace") if isinstance(was, Content) else ""
        name = place.path if old else "/dev/null"
        lines = difflib.unified_diff(old.splitlines(), place.text.splitlines(), name, place.path, lineterm="")
        yield from (f"   | {line}".rstrip() for line in lines)


def _undo(each: Begun, look: Look) -> Iterator[str]:
    """Yields the step's sentence and what it does; nothing if there is nothing to do."""
    step, before = each.step, each.before
    match step:
        case PutFiles() | PointKubelet():
            changed = [place for place in step.places if look(place.path) != before.was[place.path]]
            lines = [_back(place, before.was[place.path]) for place in changed]
        case StartUnits():
            ours = [] if step.repair else [unit for unit in step.units if unit not in before.active]
            lines = [f"$ systemctl stop {unit}" for unit in ours]
        case RestoreKernel():
            lines = [] if before.active or step.moved else ["as koordctl restore does"]
        case RemoveLeavings():
            lines = [f"remove {path}" for path in step.trees if path in before.missing]
            lines += [f"remove {path}, if it is empty" for path in step.directories if path in before.missing]
        case CheckSandbox() | ResumeUnits():
            lines = []
    yield from (step.undoing, *lines) if lines else ()


def _back(place: Place, was: Was) -> str:
    match was:
        case Absent():
            return f"remove {place.path}"
        case Symlink():
            return f"put back {place.path} -> {was.target}"
        case _:
            return f"put back {place.path}"
