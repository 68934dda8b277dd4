"""Pods that are left alone: marked ones, whole namespaces, and the hook servers' own.

Why the last: a hook server under policy Fail that runs as a pod (koordlet does, as a DaemonSet) could never come
back. Its restart is a RunPodSandbox, which would have to ask the server that is not there. So the proxy learns from
the socket's peer process which pod it lives in (its cgroup path holds the pod's uid), remembers that pod's namespace
and labels, and leaves every pod alone that looks like it: the same namespace and the same labels, less those that
differ between two generations of one workload. A pod without labels of its own is recognised by its uid only.
What was learned of a server is kept while its file exists, also when the server is down. A proxy that starts while
the server is down has learned nothing; there the mark helps (``--runtime-hook-server-key``), which koordlet's own
manifests carry. Invariant: nothing here waits; a /proc file that vanished teaches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runtimeproxy.hooks.guards import KUBELET_PREFIX
from runtimeproxy.hooks.server import HookServer

GENERATION_LABELS = frozenset({"pod-template-hash", "controller-revision-hash", "pod-template-generation"})
_UID = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}|[0-9a-fA-F]{32}"  # the latter: static pods
_POD_IN_CGROUP = re.compile(rf"pod({_UID})(?:\.slice)?/")


@dataclass(frozen=True, slots=True)
class PodTraits:
    """What decides whether a pod is left alone."""

    uid: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _OwnPod:
    """``pid`` listens in the pod ``uid`` ("": in none); ``traits`` once that pod is known."""

    pid: int
    uid: str
    traits: PodTraits | None


class Exemptions:
    """``proc``: the root of procfs."""

    def __init__(self, proc: str) -> None:
        self._proc = Path(proc)
        self._own: dict[str, _OwnPod] = {}
        self.knows_own_pods = False  # does any hook server live in a pod, as far as is known?

    def reason(self, pod: PodTraits, mark: tuple[str, str], namespaces: Collection[str]) -> str | None:
        """Why ``pod`` is left alone: mark (key and value of a label or annotation), namespace or own_pod."""
        key, value = mark
        if key and value in (pod.labels.get(key), pod.annotations.get(key)):
            return "mark"
        if pod.namespace in namespaces:
            return "namespace"
        return "own_pod" if any(_same_workload(own, pod) for own in self._own.values()) else None

    def learn(self, servers: Iterable[HookServer], find: Callable[[str], PodTraits | None]) -> None:
        """See which pods the servers live in. ``find``: a pod by uid, None if it is not known (yet)."""
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
    """The labels that all pods of one workload share."""
    return {
        key: value
        for key, value in labels.items()
        if key not in GENERATION_LABELS and not key.startswith(KUBELET_PREFIX)
    }


def _same_workload(own: _OwnPod, pod: PodTraits) -> bool:
    if own.uid and pod.uid.lower() == own.uid:
        return True
    if own.traits is None or own.traits.namespace != pod.namespace:
        return False
    shared = workload_labels(own.traits.labels)
    return bool(shared) and shared == workload_labels(pod.labels)
