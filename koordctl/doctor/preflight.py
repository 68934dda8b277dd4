"""Why Koord must not be installed on a node: whatever would not work there, or do harm.

What merely works less is no reason and stays among the ordinary checks. Invariant: a check that fails for Koord's work
as such is asked here as well, never worded twice; only what an installation alone needs is worded here.
"""

from __future__ import annotations

from collections.abc import Iterator

from koordctl.doctor import kernel, kubernetes
from koordctl.doctor.checks import Check
from koordctl.doctor.facts import Facts
from koordctl.doctor.finding import Finding, Status

DECISIVE: tuple[Check, ...] = (
    kernel.kernel,
    kernel.cgroup_version,
    kernel.controllers,
    kubernetes.kubelet_version,
    kubernetes.cgroup_driver,
    kubernetes.in_place_resize,
    kubernetes.runtime,
    kubernetes.other_agents,
)
"""The ordinary checks whose failure forbids an installation."""


def blockers(facts: Facts) -> tuple[Finding, ...]:
    """Every reason, each with its remedy, status FAIL; empty: Koord may be installed, or is here as a pod."""
    if facts.in_pod:
        return ()
    found = [*_of_installation(facts), *(check(facts) for check in DECISIVE)]
    return tuple(finding for finding in found if finding.status is Status.FAIL)


def _of_installation(facts: Facts) -> Iterator[Finding]:
    if not facts.systemd:
        who = "process 1 is not systemd" if facts.systemd is False else "process 1 cannot be told"
        remedy = "run koord-qosd as a DaemonSet, or start koord-runtime-proxy and koord-qosd by other means"
        yield _reason("systemd", f"{who}, so nobody would start Koord before kubelet", remedy)
    yield from _of_kubelet(facts)
    runtime = facts.runtime
    if runtime.socket_exists and runtime.can_be_asked and not runtime.version:
        text = f"the runtime at {runtime.socket} does not answer"
        yield _reason("runtime-answer", text, "start it, look at its log, and try as root")


def _of_kubelet(facts: Facts) -> Iterator[Finding]:
    inside = facts.others.kubelet_inside
    if inside:
        text = f"kubelet is part of {inside}, whose runtime endpoint Koord cannot change"
        yield _reason("kubelet-found", text, "run kubelet as a systemd service of its own")
    elif not facts.kubelet.running:
        yield _reason("kubelet-found", "no kubelet is running, so its flags cannot be read", "start kubelet")
    elif not facts.kubelet.unit:
        text = "kubelet is run by no systemd unit, so its runtime endpoint cannot be changed"
        yield _reason("kubelet-found", text, "run kubelet as kubelet.service")
    elif facts.kubelet.config_problem:
        yield _reason("kubelet-found", facts.kubelet.config_problem, "let root read it, or correct it")
    elif not facts.cgroup.kube_root_exists and facts.cgroup.version is not None:
        where = f" at {facts.cgroup.kube_root}" if facts.cgroup.kube_root else ""
        yield _reason("kubelet-tree", f"kubelet has made no cgroup for pods{where}", "wait until kubelet is ready")


def _reason(check: str, sentence: str, remedy: str) -> Finding:
    return Finding(check, Status.FAIL, sentence, remedy)
