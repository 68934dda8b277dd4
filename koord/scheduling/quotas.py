"""Which quota each pod is in, and what its quota may use: ElasticQuotas and pods as `koord.quota.forest` counts them.

A pod is in the quota that its label names, else in the one with the name of the pod's namespace in that namespace,
else in one that lists the namespace, else in that of all others; so it is, too, where the label names none that there
is. Every pod that has not ended counts as requested, whoever schedules it, and as used from the decision for a node on.

Names are unique in the whole cluster. Of several objects of one name the oldest counts, and ``problems`` says so of the
others.

Invariant: what is counted equals what a new count of the same objects, pods and nodes comes to, in any order. Without
``follow`` nothing is counted, and no pod is in a quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koord.model.elasticquota import ElasticQuota
from koord.model.problem import Problem
from koord.quota import names, spec
from koord.quota.forest import Forest, Quota, QuotaRules
from koord.quota.spec import QuotaSpec
from koord.scheduling.nodecolumns import NodeColumns
from koord.scheduling.podinfo import PodInfo

_Pods = dict[str, tuple[PodInfo, str]]
"""By uid: a pod, and the quota that it is counted in."""
_Place = tuple[str, str]
"""What decides which quota a pod is in: its label and "", or "" and its namespace."""


class Quotas:
    """``forest``: the quotas with what they come to; None: nobody follows them."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.forest: Forest | None = None
        self.problems: dict[tuple[str, str], str] = {}
        """By namespace and name, of objects of which something counts for nothing."""
        self._objects: dict[str, dict[str, ElasticQuota]] = {}
        self._specs: dict[str, QuotaSpec] = {}
        self._listing: dict[str, dict[str, None]] = {}
        """By namespace: the quotas that list it."""
        self._requesting, self._placed = _Pods(), _Pods()
        self._places: dict[str, _Place] = {}
        self._uids: dict[_Place, dict[str, None]] = {}
        self._by_quota: dict[str, dict[str, PodInfo]] = {}
        self._are_nodes_counted = False

    def follow(self, rules: QuotaRules) -> None:
        """Counts from now on; of nothing so far."""
        self.forest = Forest(rules)

    # what plugins read

    def of(self, pod: PodInfo) -> Quota | None:
        """Returns the quota that the pod is in."""
        return None if self.forest is None else self.get(self.name_for(pod))

    def get(self, name: str) -> Quota | None:
        """Returns the quota of that name; None: there is none."""
        forest = self.up_to_date()
        return None if forest is None else forest.get(name)

    def up_to_date(self) -> Forest | None:
        """Returns the forest with the nodes as they are now."""
        if self.forest is not None and not self._are_nodes_counted:
            self._are_nodes_counted = True
            self.forest.put_cluster(self._nodes.total_allocatable())
        return self.forest

    def name_for(self, pod: PodInfo) -> str:
        listing = min(self._listing.get(pod.namespace, ()), default=names.DEFAULT)
        return spec.name_for(pod.labels.get(names.LABEL_NAME), pod.namespace, self._specs, listing)

    def placed_in(self, name: str) -> Mapping[str, PodInfo]:
        """Returns the quota's own pods that are on nodes, by uid."""
        return self._by_quota.get(name, {})

    def counts(self) -> dict[str, int]:
        """How many quotas and pods are counted: for those who look for leaks."""
        return {"quotas": len(self._specs), "requesting": len(self._requesting), "placed": len(self._placed)}

    # objects

    def put(self, quota: ElasticQuota) -> tuple[Problem, ...]:
        """Returns what of the object counts for nothing."""
        name, namespace = quota.metadata.name, quota.metadata.namespace
        self._objects.setdefault(name, {})[namespace] = quota
        self._choose(name)
        counting = self._specs[name].namespace
        problems = spec.of(quota)[1]
        if counting != namespace:
            problems = (Problem("metadata.name", f"{name!r} is the name of an older one, in {counting}, which counts"),)
        self.problems.pop((namespace, name), None)
        if problems:
            self.problems[namespace, name] = "; ".join(map(str, problems))
        return problems

    def remove(self, namespace: str, name: str) -> None:
        objects = self._objects.get(name, {})
        self.problems.pop((namespace, name), None)
        if objects.pop(namespace, None) is not None:
            if not objects:
                del self._objects[name]
            self._choose(name)

    def object(self, name: str) -> ElasticQuota | None:
        """Returns the object that counts."""
        found = self._specs.get(name)
        return None if found is None else self._objects[name][found.namespace]

    def _choose(self, name: str) -> None:
        objects, before = self._objects.get(name), self._specs.pop(name, None)
        after = None
        if objects:
            after = self._specs[name] = spec.of(min(objects.values(), key=_age))[0]
        if before == after or self.forest is None:
            return
        if after is None:
            self.forest.remove(name)
        else:
            self.forest.put(after)
        namespaces = {each for found in (before, after) if found for each in (*found.namespaces, found.namespace)}
        for namespace in before.namespaces if before else ():
            self._listing[namespace].pop(name, None)
            if not self._listing[namespace]:
                del self._listing[namespace]
        for namespace in after.namespaces if after else ():
            self._listing.setdefault(namespace, {})[name] = None
        if before is None or after is None or before.namespaces != after.namespaces:
            self._count_anew([(name, ""), *[("", namespace) for namespace in namespaces]])

    # pods and nodes

    def nodes_changed(self) -> None:
        """Nodes came, went, or offer something else."""
        self._are_nodes_counted = False

    def put_pod(self, pod: PodInfo) -> None:
        """The pod has not ended: what it requests counts."""
        if self.forest is not None:
            self._count(self._requesting, pod, self.name_for(pod))

    def remove_pod(self, uid: str) -> None:
        """The pod has ended, or is gone."""
        self._uncount(self._requesting, uid)

    def place(self, pod: PodInfo) -> None:
        """The pod is on a node: what it requests is used."""
        if self.forest is not None:
            name = self.name_for(pod)
            self._count(self._placed, pod, name)
            self._by_quota.setdefault(name, {})[pod.uid] = pod

    def displace(self, uid: str) -> None:
        self._uncount(self._placed, uid)

    def _count(self, pods: _Pods, pod: PodInfo, name: str) -> None:
        before = pods.get(pod.uid)
        if before is not None:
            if before[1] == name and before[0].requests == pod.requests and is_fixed(before[0]) is is_fixed(pod):
                pods[pod.uid] = pod, name
                return
            self._uncount(pods, pod.uid)
        assert self.forest is not None
        (self.forest.use if pods is self._placed else self.forest.request)(name, pod.requests, is_fixed(pod))
        pods[pod.uid] = pod, name
        label = pod.labels.get(names.LABEL_NAME, "")
        place = (label, "") if label else ("", pod.namespace)
        if self._places.get(pod.uid) != place:
            self._forget_place(pod.uid)
            self._places[pod.uid] = place
            self._uids.setdefault(place, {})[pod.uid] = None

    def _uncount(self, pods: _Pods, uid: str) -> None:
        found = pods.pop(uid, None)
        if found is None:
            return
        pod, name = found
        assert self.forest is not None
        (self.forest.use if pods is self._placed else self.forest.request)(name, pod.requests, is_fixed(pod), -1)
        if pods is self._placed:
            del self._by_quota[name][uid]
            if not self._by_quota[name]:
                del self._by_quota[name]
        if uid not in self._requesting and uid not in self._placed:
            self._forget_place(uid)

    def _forget_place(self, uid: str) -> None:
        place = self._places.pop(uid, None)
        if place is not None:
            del self._uids[place][uid]
            if not self._uids[place]:
                del self._uids[place]

    def _count_anew(self, places: Iterable[_Place]) -> None:
        """Pods of these labels and namespaces may be in another quota now."""
        for uid in [uid for place in places for uid in self._uids.get(place, ())]:
            if uid in self._requesting:
                self.put_pod(self._requesting[uid][0])
            if uid in self._placed:
                self.place(self._placed[uid][0])


def _age(quota: ElasticQuota) -> tuple[str, str]:
    """Sorts the oldest first."""
    return quota.metadata.creation_timestamp or "", quota.metadata.namespace


def is_fixed(pod: PodInfo) -> bool:
    """Returns whether the pod does not leave for others of its quota."""
    return pod.labels.get(names.LABEL_PREEMPTIBLE) == "false"
