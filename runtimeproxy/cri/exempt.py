"""Leaves pods alone: marked ones, whole namespaces, the hook servers' own; by option static and critical ones.

Every user who may create a pod can mark it, also a pod whose limits a hook server sets. So while a server is under
policy Fail, the mark counts only in namespaces that the operator names.

Why the hook servers' own: a hook server under policy Fail that runs as a pod (koordlet does, as a DaemonSet) could
never come back. Its restart is a RunPodSandbox, which would have to ask the server that is not there. So the proxy
learns from the socket's peer process which pod it lives in (its cgroup path holds the pod's uid), remembers that pod's
namespace and labels, and leaves every pod alone that looks like it: the same namespace and the same labels, less those
that differ between two generations of one workload. A pod without labels of its own is recognised by its uid only. The
proxy remembers a server's pod while the server's file exists, also when the server is down. A proxy that starts while
the server is down has learned nothing; there the mark helps (``--runtime-hook-server-key``), which koordlet's own
manifests carry. Invariant: nothing here waits; a /proc file that vanished teaches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from koord.model.locations import NAMESPACE
from runtimeproxy.hooks.client import HookClient
from runtimeproxy.hooks.edits import KUBELET_PREFIX

GENERATION_LABELS = frozenset({"pod-template-hash", "controller-revision-hash", "pod-template-generation"})
_UID = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-fA-F]{32}"  # the latter: static pods
_POD_IN_CGROUP = re.compile(rf"pod({_UID})(?:\.slice)?/")


SOURCE = "kubernetes.io/config.source"  # kubelet's own annotation, which it overwrites in pods of the API server
STATIC_SOURCES = frozenset({"file", "http"})
PRIORITY_CLASS = "koordinator.sh/priority-class"
CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
CRITICAL_POD = "scheduler.alpha.kubernetes.io/critical-pod"  # before there were priority classes
ALL_NAMESPACES = "*"


@dataclass(frozen=True, slots=True)
class SkipRules:
    """The operator's rules for pods that are left alone.

    ``mark_key`` and ``mark_value``: of the label or annotation, "" for none; ``privileged_namespaces``: in which a pod
    may say of itself that it is critical and, under policy Fail, that it is to be left alone ("*": in all).
    """

    mark_key: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    mark_value: str = "true"
    privileged_namespaces: tuple[str, ...] = ("kube-system", NAMESPACE)
    namespaces: tuple[str, ...] = ()
    static_pods: bool = False
    critical_pods: bool = False

    def could_apply(self, mentions: Callable[[bytes], bool]) -> bool:
        """Returns whether a rule but ``namespaces`` could apply to a pod that ``mentions`` certain texts."""
        return any(mentions(key.encode()) for key in self._keys())

    def is_privileged(self, namespace: str) -> bool:
        return namespace in self.privileged_namespaces or ALL_NAMESPACES in self.privileged_namespaces

    def _keys(self) -> Iterator[str]:
        if self.mark_key:
            yield self.mark_key
        if self.static_pods:
            yield SOURCE
        if self.critical_pods:
            yield from (PRIORITY_CLASS, CRITICAL_POD)


@dataclass(frozen=True, slots=True)
class PodTraits:
    """The fields that decide whether a pod is left alone."""

    uid: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def says(self, key: str, values: Collection[str]) -> bool:
        """Returns whether a label or an annotation ``key`` is one of ``values``."""
        return self.labels.get(key) in values or self.annotations.get(key) in values


@dataclass(frozen=True, slots=True)
class _OwnPod:
    """A hook server's pod: ``pid`` listens in the pod ``uid`` ("": in none); ``traits`` once that pod is known."""

    pid: int
    uid: str
    traits: PodTraits | None


class Exemptions:
    """Decides which pods are left alone. ``proc``: the root of procfs."""

    def __init__(self, proc: str) -> None:
        self._proc = Path(proc)
        self._own: dict[str, _OwnPod] = {}
        self.knows_own_pods = False  # whether a hook server is known to run in a pod

    def reason(self, pod: PodTraits, rules: SkipRules, *, fail_closed: bool) -> str | None:
        """Returns why ``pod`` is exempt: mark, namespace, static_pod, critical_pod or own_pod; None if it is not.

        ``fail_closed``: a hook server is under policy Fail.
        """
        privileged = rules.is_privileged(pod.namespace)
        if rules.mark_key and pod.says(rules.mark_key, (rules.mark_value,)) and (privileged or not fail_closed):
            return "mark"
        if pod.namespace in rules.namespaces:
            return "namespace"
        if rules.static_pods and pod.annotations.get(SOURCE) in STATIC_SOURCES:
            return "static_pod"
        if rules.critical_pods and privileged and _is_critical(pod):
            return "critical_pod"
        return "own_pod" if any(_same_workload(own, pod) for own in self._own.values()) else None

    def learn(self, servers: Iterable[HookClient], find: Callable[[str], PodTraits | None]) -> None:
        """Learns which pods the servers live in. ``find``: a pod by uid, None if it is not known (yet)."""
        own_before, self._own = self._own, {}
        self.knows_own_pods = False
        for server in servers:
            own, pid = own_before.get(server.spec.file), server.peer_pid
            if pid is not None and (own is None or own.pid != pid):
                own = _OwnPod(pid, self._pod_of(pid), None)
            if own is not None:
                known = own.traits is not None or not own.uid
                self._own[server.spec.file] = own if known else _OwnPod(own.pid, own.uid, find(own.uid))
                self.knows_own_pods = self.knows_own_pods or bool(own.uid)

    def _pod_of(self, pid: int) -> str:
        try:
            text = (self._proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:
            return ""
        match = _POD_IN_CGROUP.search(text)
        return match[1].replace("_", "-").lower() if match else ""


def workload_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels that all pods of one workload share."""
    return {
        key: value
        for key, value in labels.items()
        if key not in GENERATION_LABELS and not key.startswith(KUBELET_PREFIX)
    }


def _is_critical(pod: PodTraits) -> bool:
    return CRITICAL_POD in pod.annotations or pod.says(PRIORITY_CLASS, CRITICAL_CLASSES)


def _same_workload(own: _OwnPod, pod: PodTraits) -> bool:
    if own.uid and pod.uid.lower() == own.uid:
        return True
    if own.traits is None or own.traits.namespace != pod.namespace:
        return False
    shared = workload_labels(own.traits.labels)
    return bool(shared) and shared == workload_labels(pod.labels)
