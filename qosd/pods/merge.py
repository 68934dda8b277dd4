"""The node's pods, made of the runtime's lists, kubelet's list and the cgroup tree; pure, with a memory.

The runtime says which pods run. kubelet adds those it has admitted but not started (their directory exists already),
and stands in for a runtime that is not asked or has told nothing yet. Invariant: the same tuple and the same views as
last time where nothing changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set

from msgspec.structs import replace

from koord.model import cfs, cgroup_parent
from koord.model.qos import DerivationRules
from qosd.model.snapshot import PodView
from qosd.pods.cri import CONTAINER_RUNNING, Container, Detail, RuntimeVersion
from qosd.pods.kubelet import KubeletContainer, KubeletPod
from qosd.pods.lists import RuntimeLists
from qosd.pods.views import PodInputs, build

_ID = re.compile(r"(?:^|-)([0-9a-f]{16,})(?:\.scope)?$", re.ASCII)
_STATES = {"running": CONTAINER_RUNNING, "terminated": "CONTAINER_EXITED"}
_NO_VERSION = RuntimeVersion("", "")


class Merger:
    """Remembers the inputs of each view. ``period_us``: the CFS period that a cgroup has; None = it is not there.

    Where only kubelet tells of a container, no source says with which period it was made, so the file does.
    """

    def __init__(self, period_us: Callable[[str], int | None] = lambda cgroup: None) -> None:
        self._period_us = period_us
        self._periods_us: dict[str, int] = {}
        self._built: dict[str, tuple[PodInputs, PodView]] = {}
        self._pods: tuple[PodView, ...] = ()

    def merge(
        self,
        lists: RuntimeLists | None,
        kubelet: Mapping[str, KubeletPod],
        pod_cgroups: Set[str],
        container_cgroups: Set[str],
        derivation: DerivationRules,
        version: RuntimeVersion | None,
    ) -> tuple[PodView, ...]:
        """Returns all pods by namespace and name. ``lists`` None: the runtime has told nothing; ``kubelet`` by UID."""
        by_uid = _cgroups_by_uid(pod_cgroups)
        prefix = (version or _NO_VERSION).scope_prefix
        inputs = {} if lists is None else _of_runtime(lists, kubelet, by_uid, derivation, prefix)
        known = {one.sandbox.uid for one in inputs.values() if one.sandbox is not None}
        ids = _cgroups_by_id(container_cgroups) if lists is None else {}
        self._look_at(ids)
        for uid, pod in kubelet.items():
            if uid not in known and not pod.ended and (lists is None or uid in by_uid):
                inputs[uid] = _of_kubelet(pod, by_uid.get(uid, ""), ids, self._periods_us, derivation, prefix)
        self._built = {key: (one, build(one, self._built.get(key))) for key, one in inputs.items()}
        views = sorted([view for _, view in self._built.values()], key=lambda pod: (pod.namespace, pod.name, pod.uid))
        if len(views) != len(self._pods) or any(new is not old for new, old in zip(views, self._pods, strict=True)):
            self._pods = tuple(views)
        return self._pods

    def _look_at(self, ids: Mapping[str, str]) -> None:
        """Reads the period of each container's cgroup once: only the kernel changes it, by doubling."""
        known = {id_: self._periods_us[id_] for id_ in ids if id_ in self._periods_us}
        found = {id_: self._period_us(cgroup) for id_, cgroup in ids.items() if id_ not in known}
        made_with = {id_: us // cfs.stretch(us, cfs.PERIOD_US) for id_, us in found.items() if us}
        self._periods_us = {**known, **made_with}


def unknown_to(kubelet: Mapping[str, KubeletPod], pods: Iterable[PodView], pod_cgroups: Set[str]) -> set[str]:
    """Returns the UIDs of pods that exist here and are not in kubelet's list as last read."""
    return ({pod.uid for pod in pods if pod.uid} | set(_cgroups_by_uid(pod_cgroups))) - kubelet.keys()


def _of_runtime(
    lists: RuntimeLists,
    kubelet: Mapping[str, KubeletPod],
    by_uid: Mapping[str, str],
    derivation: DerivationRules,
    prefix: str,
) -> dict[str, PodInputs]:
    found = {}
    for sandbox in lists.sandboxes.values():
        containers = lists.containers.get(sandbox.id, ())
        ids = (sandbox.id, *[one.id for one in containers])
        found[sandbox.uid or sandbox.id] = PodInputs(
            sandbox=sandbox,
            containers=containers,
            details={id_: lists.details[id_] for id_ in ids if id_ in lists.details},
            kubelet=_facts(kubelet.get(sandbox.uid)),
            cgroup=by_uid.get(sandbox.uid, ""),
            derivation=derivation,
            scope_prefix=prefix,
        )
    return found


def _of_kubelet(
    pod: KubeletPod,
    cgroup: str,
    ids: Mapping[str, str],
    periods_us: Mapping[str, int],
    derivation: DerivationRules,
    prefix: str,
) -> PodInputs:
    """Returns the inputs of a pod without a sandbox, with those of its containers whose cgroups are found by id."""
    present = [one for one in pod.containers if one.id in ids]
    return PodInputs(
        sandbox=None,
        containers=tuple([_container(one) for one in present]),
        details={one.id: Detail(ids[one.id], "", one.requested.at_period(periods_us.get(one.id))) for one in present},
        kubelet=_facts(pod),
        cgroup=cgroup,
        derivation=derivation,
        scope_prefix=prefix,
    )


def _facts(pod: KubeletPod | None) -> KubeletPod | None:
    """Returns the pod without what no view shows, so that a change of that makes no new view."""
    return None if pod is None else replace(pod, containers=())


def _container(status: KubeletContainer) -> Container:
    return Container(status.id, "", status.name, status.restarts, _STATES.get(status.state, "CONTAINER_CREATED"), 0, {})


def _cgroups_by_uid(cgroups: Set[str]) -> dict[str, str]:
    parsed = [(cgroup_parent.parse(cgroup), cgroup) for cgroup in cgroups]
    return {pod.uid: cgroup for pod, cgroup in parsed if pod is not None}


def _cgroups_by_id(cgroups: Set[str]) -> dict[str, str]:
    found = [(_ID.search(cgroup.rpartition("/")[2]), cgroup) for cgroup in cgroups]
    return {match[1]: cgroup for match, cgroup in found if match is not None}
