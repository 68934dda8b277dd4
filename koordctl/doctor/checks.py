"""Lists the checks in the order of the report, and says why Koord must not be installed on a node.

What Koord cannot work without comes first. Where Koord only does less, that is no reason against an installation.
Invariant: what Koord needs in order to work is a check of the table, and is not worded again; the functions below it
word only what the installation itself needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from koordctl.doctor import CheckResult, CheckStatus, Judgement, kernel, koord, kubernetes
from koordctl.node.facts import Facts

Check = Callable[[Facts], Judgement]

CHECKS: Mapping[str, Check] = {
    "kernel": kernel.kernel,
    "cgroup-version": kernel.cgroup_version,
    "controllers": kernel.controllers,
    "kubelet": kubernetes.kubelet,
    "kubelet-version": kubernetes.kubelet_version,
    "kubelet-restart": kubernetes.kubelet_restart,
    "kubelet-tree": kernel.kubelet_tree,
    "cgroup-driver": kubernetes.cgroup_driver,
    "cpu-manager": kubernetes.cpu_manager,
    "in-place-resize": kubernetes.in_place_resize,
    "kubelet-memory-qos": kubernetes.kubelet_memory_qos,
    "swap": kernel.swap,
    "runtime": kubernetes.runtime,
    "runtime-config": kubernetes.runtime_config,
    "cri-events": kubernetes.cri_events,
    "nri": kubernetes.nri,
    "other-agents": kubernetes.other_agents,
    "leftovers": kubernetes.leftovers,
    "psi": kernel.psi,
    "cpu-idle": kernel.cpu_idle,
    "cpu-burst": kernel.cpu_burst,
    "task-slices": kernel.task_slices,
    "group-identity": kernel.group_identity,
    "memory-qos": kernel.memory_qos,
    "memory-reclaim": kernel.memory_reclaim,
    "memory-throttle": kernel.memory_throttle,
    "cpuset-partition": kernel.cpuset_partition,
    "isolated-cpus": kernel.isolated_cpus,
    "resctrl": kernel.resctrl,
    "perf": kernel.perf,
    "daemon": koord.daemon,
    "systemd-unit": koord.unit,
    "slice-memory": koord.slice_memory,
    "kubelet-drop-in": koord.kubelet_drop_in,
    "open-files": koord.open_files,
    "grants": koord.grants,
    "rules": koord.rules,
    "policy": koord.policy,
    "warnings": koord.warnings,
    "hook-file": koord.hook_file,
    "bypass": koord.bypass,
    "front-end": koord.front_end,
    "loops": koord.loops,
    "contested": koord.contested,
    "journal-space": koord.journal_space,
    "journal-drops": koord.journal_drops,
    "undo-record": koord.undo_record,
}
DECISIVE = (
    "kernel",
    "cgroup-version",
    "controllers",
    "kubelet-version",
    "cgroup-driver",
    "runtime",
    "other-agents",
)
"""The checks whose failure forbids an installation."""


def examine(facts: Facts) -> tuple[CheckResult, ...]:
    """Returns one finding per check."""
    return tuple(CheckResult(name, *check(facts)) for name, check in CHECKS.items())


def blockers(facts: Facts) -> tuple[CheckResult, ...]:
    """Returns every reason against an installation, each with its remedy, status FAIL.

    Empty: Koord may be installed, or is here as a pod.
    """
    if facts.in_pod:
        return ()
    found = [*_of_installation(facts), *(CheckResult(name, *CHECKS[name](facts)) for name in DECISIVE)]
    return tuple(finding for finding in found if finding.status is CheckStatus.FAIL)


def reason(check: str, sentence: str, remedy: str) -> CheckResult:
    """Returns a reason against an installation."""
    return CheckResult(check, CheckStatus.FAIL, sentence, remedy)


def _of_installation(facts: Facts) -> Iterator[CheckResult]:
    if not facts.systemd:
        who = "process 1 is not systemd" if facts.systemd is False else "process 1 is not known"
        remedy = "run koord-qosd as a DaemonSet, or start koord-runtime-proxy and koord-qosd by other means"
        yield reason("systemd", f"{who}, so nothing would start Koord before kubelet", remedy)
    yield from _of_kubelet(facts)
    runtime = facts.runtime
    if runtime.socket_exists and runtime.can_be_asked and not runtime.version:
        text = f"the runtime at {runtime.socket} does not answer"
        yield reason("runtime-answer", text, "start it, look at its log, and try as root")


def _of_kubelet(facts: Facts) -> Iterator[CheckResult]:
    inside = facts.others.kubelet_inside
    if inside:
        text = f"kubelet is part of {inside}, whose runtime endpoint Koord cannot change"
        yield reason("kubelet-found", text, "run kubelet as a systemd service of its own")
    elif not facts.kubelet.running:
        yield reason("kubelet-found", "no kubelet is running, so its flags cannot be read", "start kubelet")
    elif not facts.kubelet.unit:
        text = "kubelet is run by no systemd unit, so its runtime endpoint cannot be changed"
        yield reason("kubelet-found", text, "run kubelet as kubelet.service")
    elif facts.kubelet.config_problem:
        yield reason("kubelet-found", facts.kubelet.config_problem, "let root read it, or correct it")
    elif not facts.cgroup.kube_root_exists and facts.cgroup.version is not None:
        where = f" at {facts.cgroup.kube_root}" if facts.cgroup.kube_root else ""
        yield reason("kubelet-tree", f"kubelet has made no cgroup for pods{where}", "wait until kubelet is ready")
