"""The default plugins once more, node by node and pod by pod, as their descriptions say it: slow, and of other code.

What is checked against it is what a cluster is to a scheduler (`koord.scheduling.state`) and every plugin's vectors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from koord.model.core import Taint
from koord.model.scheduling.pods import (
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koord.model.selector import LabelSelector, Requirement
from koord.scheduling.podinfo import PodInfo
from tests.scheduling.clusters import HOSTNAME


@dataclass
class Oracle:
    nodes: Mapping[str, Node]
    placed: Mapping[str, tuple[PodInfo, str]]
    """By uid, with the node."""
    namespaces: Mapping[str, Mapping[str, str]]

    def on(self, name: str) -> list[PodInfo]:
        return [pod for pod, node in self.placed.values() if node == name]

    def everywhere(self) -> Iterable[tuple[PodInfo, Node]]:
        return [(pod, self.nodes[node]) for pod, node in self.placed.values() if node in self.nodes]

    # filters: by plugin, the reasons against one node

    def reasons(self, pod: PodInfo, name: str) -> dict[str, list[str]]:
        node = self.nodes[name]
        found = {
            "NodeUnschedulable": self._unschedulable(pod, node),
            "TaintToleration": ["node(s) had untolerated taint(s)"] if self._untolerated(pod, node) else [],
            "NodeAffinity": [] if _allows(pod.pod, node) else ["node(s) didn't match Pod's node affinity/selector"],
            "NodePorts": self._ports(pod, name),
            "NodeResourcesFit": self._fit(pod, name),
            "PodTopologySpread": self._spread(pod, node),
            "InterPodAffinity": self._affinity(pod, node),
        }
        return {plugin: reasons for plugin, reasons in found.items() if reasons}

    def _unschedulable(self, pod: PodInfo, node: Node) -> list[str]:
        taint = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
        is_out = node.spec.unschedulable and not _tolerates(pod.pod, taint)
        return ["node(s) were unschedulable"] if is_out else []

    def _untolerated(self, pod: PodInfo, node: Node) -> bool:
        return any(
            taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(pod.pod, taint) for taint in node.spec.taints
        )

    def _ports(self, pod: PodInfo, name: str) -> list[str]:
        for port in pod.host_ports:
            for other in self.on(name):
                for taken in other.host_ports:
                    same = (port.protocol, port.port) == (taken.protocol, taken.port)
                    if same and (port.ip == taken.ip or "0.0.0.0" in (port.ip, taken.ip)):
                        return ["node(s) didn't have free ports for the requested pod ports"]
        return []

    def _fit(self, pod: PodInfo, name: str) -> list[str]:
        amounts = _amounts(self.nodes[name])
        pods = self.on(name)
        found = ["Too many pods"] if len(pods) + 1 > amounts["pods"] else []
        for resource, amount in pod.requests.items():
            if amount > amounts.get(resource, 0) - sum(each.requests.get(resource, 0) for each in pods):
                found.append(f"Insufficient {resource}")
        return found

    def _affinity(self, pod: PodInfo, node: Node) -> list[str]:
        if not self._has_company(pod, node):
            return ["node(s) didn't match pod affinity rules"]
        affinity = pod.spec.affinity
        apart = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ()
        for term in apart:
            if any(
                self._about(pod, term, other) and _together(term, node, place) for other, place in self.everywhere()
            ):
                return ["node(s) didn't match pod anti-affinity rules"]
        for other, place in self.everywhere():
            theirs = other.spec.affinity
            for term in theirs.pod_anti_affinity.required if theirs and theirs.pod_anti_affinity else ():
                if self._about(other, term, pod) and _together(term, node, place):
                    return ["node(s) didn't satisfy existing pods anti-affinity rules"]
        return []

    def _has_company(self, pod: PodInfo, node: Node) -> bool:
        affinity = pod.spec.affinity
        terms = affinity.pod_affinity.required if affinity and affinity.pod_affinity else ()
        company = [place for other, place in self.everywhere() if all(self._about(pod, term, other) for term in terms)]
        if any(term.topology_key not in node.metadata.labels for term in terms):
            return False
        if all(any(_together(term, node, place) for place in company) for term in terms):
            return True
        is_first = not any(term.topology_key in place.metadata.labels for term in terms for place in company)
        return is_first and all(self._about(pod, term, pod) for term in terms)

    def _about(self, holder: PodInfo, term: PodAffinityTerm, other: PodInfo) -> bool:
        """Whether the holder's term is about ``other``."""
        namespaces = term.namespaces
        if not namespaces and term.namespace_selector is None:
            namespaces = (holder.namespace,)
        selector = term.namespace_selector
        labels = self.namespaces.get(other.namespace, {})
        is_there = other.namespace in namespaces or (selector is not None and _selects(selector, labels))
        return is_there and term.label_selector is not None and _selects(term.label_selector, other.labels)

    def _spread(self, pod: PodInfo, node: Node) -> list[str]:
        constraints = [
            each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"
        ]
        for each in constraints:
            if each.topology_key not in node.metadata.labels:
                return ["node(s) didn't match pod topology spread constraints (missing required label)"]
            counts = self._domain_counts(pod, each, constraints)
            least = min(counts.values(), default=0)
            if len(counts) < (each.min_domains or 1):
                least = 0
            selector = each.label_selector
            itself = int(selector is not None and _selects(_merged(pod, each), pod.labels))
            if counts.get(node.metadata.labels[each.topology_key], 0) + itself - least > each.max_skew:
                return ["node(s) didn't match pod topology spread constraints"]
        return []

    def _domain_counts(
        self, pod: PodInfo, each: TopologySpreadConstraint, constraints: Iterable[TopologySpreadConstraint]
    ) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, node in self.nodes.items():
            labels = node.metadata.labels
            if any(other.topology_key not in labels for other in constraints) or not self._counts(pod, each, node):
                continue
            domain = labels[each.topology_key]
            counts[domain] = counts.get(domain, 0) + self._matching(pod, each, name)
        return counts

    def _counts(self, pod: PodInfo, each: TopologySpreadConstraint, node: Node) -> bool:
        if each.node_affinity_policy == "Honor" and not _allows(pod.pod, node):
            return False
        return each.node_taints_policy != "Honor" or not self._untolerated(pod, node)

    def _matching(self, pod: PodInfo, each: TopologySpreadConstraint, name: str) -> int:
        if each.label_selector is None:
            return 0
        selector = _merged(pod, each)
        if not selector.match_labels and not selector.match_expressions:
            return 0
        return sum(
            other.namespace == pod.namespace and not other.is_terminating and _selects(selector, other.labels)
            for other in self.on(name)
        )

    # scores of the feasible nodes, by plugin

    def scores(self, pod: PodInfo, feasible: list[str]) -> dict[str, dict[str, int]]:
        nodes = {name: self.nodes[name] for name in feasible}
        found = {
            "TaintToleration": _scaled({name: self._avoided(pod, node) for name, node in nodes.items()}, True),
            "NodeResourcesFit": {name: self._least_allocated(pod, name) for name in nodes},
            "ImageLocality": {name: self._images(pod, node) for name, node in nodes.items()},
        }
        if "cpu" in pod.requests or "memory" in pod.requests:
            found["NodeResourcesBalancedAllocation"] = {name: self._balance(pod, name) for name in nodes}
        affinity = pod.spec.affinity
        if affinity and affinity.node_affinity and affinity.node_affinity.preferred:
            terms = affinity.node_affinity.preferred
            found["NodeAffinity"] = _scaled(
                {
                    name: sum(each.weight for each in terms if _term_holds(each.preference, node))
                    for name, node in nodes.items()
                }
            )
        if preferences := self._preferences(pod, nodes):
            found["InterPodAffinity"] = preferences
        if any(each.when_unsatisfiable == "ScheduleAnyway" for each in pod.spec.topology_spread_constraints):
            found["PodTopologySpread"] = self._spread_scores(pod, nodes)
        return found

    def _avoided(self, pod: PodInfo, node: Node) -> int:
        tolerations = [each for each in pod.spec.tolerations if each.effect in ("", "PreferNoSchedule")]
        return sum(
            taint.effect == "PreferNoSchedule" and not any(_one_tolerates(each, taint) for each in tolerations)
            for taint in node.spec.taints
        )

    def _least_allocated(self, pod: PodInfo, name: str) -> int:
        amounts, pods = _amounts(self.nodes[name]), [*self.on(name), pod]
        cpu = sum(each.assumed_cpu_milli for each in pods)
        memory = sum(each.assumed_memory_bytes for each in pods)
        scores = [
            0 if used > there else (there - used) * 100 // there
            for used, there in ((cpu, amounts["cpu"]), (memory, amounts["memory"]))
        ]
        return sum(scores) // 2

    def _balance(self, pod: PodInfo, name: str) -> int:
        amounts, pods = _amounts(self.nodes[name]), [*self.on(name), pod]
        cpu, memory = [
            min(1.0, sum(each.requests.get(resource, 0) for each in pods) / amounts[resource])
            for resource in ("cpu", "memory")
        ]
        return int((1 - abs((cpu - memory) / 2)) * 100)

    def _images(self, pod: PodInfo, node: Node) -> int:
        total = 0
        containers = [*pod.spec.init_containers, *pod.spec.containers]
        for container in containers:
            image = container.image if ":" in container.image.rsplit("/", 1)[-1] else container.image + ":latest"
            nodes = [each for each in self.nodes.values() if any(image in one.names for one in each.status.images)]
            size = next((one.size_bytes for one in node.status.images if image in one.names), None)
            if size is not None:
                total += int(size * (len(nodes) / len(self.nodes)))
        least, most = 23 << 20, (1000 << 20) * len(containers)
        return 100 * (min(max(total, least), most) - least) // (most - least)

    def _preferences(self, pod: PodInfo, nodes: Mapping[str, Node]) -> dict[str, int]:
        weights: Counter[tuple[str, str]] = Counter()

        def add(holder: PodInfo, term: PodAffinityTerm, about: PodInfo, place: Node, weight: int) -> None:
            if self._about(holder, term, about) and term.topology_key in place.metadata.labels:
                weights[term.topology_key, place.metadata.labels[term.topology_key]] += weight

        for other, place in self.everywhere():
            for holder, about in ((pod, other), (other, pod)):
                affinity = holder.spec.affinity
                if affinity is None:
                    continue
                near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
                for weighted in near.preferred if near else ():
                    add(holder, weighted.pod_affinity_term, about, place, weighted.weight)
                for weighted in apart.preferred if apart else ():
                    add(holder, weighted.pod_affinity_term, about, place, -weighted.weight)
                if holder is other:
                    for term in near.required if near else ():
                        add(holder, term, about, place, 1)
        if not weights:
            return {}
        raw = {
            name: sum(weight for (key, value), weight in weights.items() if node.metadata.labels.get(key) == value)
            for name, node in nodes.items()
        }
        least, most = min(raw.values()), max(raw.values())
        return {
            name: int(100 * ((score - least) / (most - least))) if most > least else 0 for name, score in raw.items()
        }

    def _spread_scores(self, pod: PodInfo, nodes: Mapping[str, Node]) -> dict[str, int]:
        constraints = [
            each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable == "ScheduleAnyway"
        ]
        labelled = {
            name: node
            for name, node in nodes.items()
            if all(each.topology_key in node.metadata.labels for each in constraints)
        }
        raw = dict.fromkeys(labelled, 0.0)
        for each in constraints:
            key = each.topology_key
            counts = self._domain_counts(pod, each, constraints)
            size = len(labelled) if key == HOSTNAME else len({node.metadata.labels[key] for node in labelled.values()})
            for name, node in labelled.items():
                count = self._matching(pod, each, name) if key == HOSTNAME else counts.get(node.metadata.labels[key], 0)
                raw[name] += count * math.log(size + 2) + (each.max_skew - 1)
        scores = {name: math.floor(score + 0.5) for name, score in raw.items()}
        least, most = min(scores.values(), default=0), max(scores.values(), default=0)
        found = {name: 100 if most == 0 else 100 * (most + least - score) // most for name, score in scores.items()}
        return {name: found.get(name, 0) for name in nodes}


def _amounts(node: Node) -> dict[str, int]:
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    found = {}
    for name, text in node.status.allocatable.items():
        number, unit = str(text), 1
        for suffix, factor in units.items():
            if number.endswith(suffix):
                number, unit = number[: -len(suffix)], factor
        found[name] = int(number) * unit * (1000 if name == "cpu" else 1)
    return found


def _scaled(raw: dict[str, int], is_reversed: bool = False) -> dict[str, int]:
    most = max(raw.values(), default=0)
    if most == 0:
        return dict.fromkeys(raw, 100 if is_reversed else 0)
    return {name: 100 - 100 * score // most if is_reversed else 100 * score // most for name, score in raw.items()}


def _tolerates(pod: Pod, taint: Taint) -> bool:
    return any(_one_tolerates(each, taint) for each in pod.spec.tolerations)


def _one_tolerates(toleration: object, taint: Taint) -> bool:
    key, operator, value, effect = (getattr(toleration, name) for name in ("key", "operator", "value", "effect"))
    if effect and effect != taint.effect:
        return False
    if key and key != taint.key:
        return False
    return operator == "Exists" or bool(value == taint.value)


def _allows(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    if not affinity or affinity.required is None:
        return True
    return any(_term_holds(term, node) for term in affinity.required.node_selector_terms)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    return bool(term.match_expressions) and all(
        _requirement_holds(each, node.metadata.labels) for each in term.match_expressions
    )


def _requirement_holds(each: NodeSelectorRequirement | Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(each.key)
    if each.operator == "In":
        return value in each.values
    if each.operator == "NotIn":
        return value not in each.values
    if each.operator == "Exists":
        return value is not None
    if each.operator == "DoesNotExist":
        return value is None
    try:
        number, bound = int(value or "none"), int(each.values[0])
    except ValueError:
        return False
    return number > bound if each.operator == "Gt" else number < bound


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _requirement_holds(each, labels) for each in selector.match_expressions
    )


def _merged(pod: PodInfo, each: TopologySpreadConstraint) -> LabelSelector:
    selector = each.label_selector or LabelSelector()
    added = {key: pod.labels[key] for key in each.match_label_keys if key in pod.labels}
    return (
        LabelSelector(match_labels={**selector.match_labels, **added}, match_expressions=selector.match_expressions)
        if not (added.keys() & selector.match_labels.keys())
        else LabelSelector(
            match_labels=selector.match_labels,
            match_expressions=(
                *selector.match_expressions,
                *[Requirement(key=key, operator="In", values=(value,)) for key, value in added.items()],
            ),
        )
    )


def _together(term: PodAffinityTerm, first: Node, second: Node) -> bool:
    """Whether both nodes are in one domain of the term."""
    value = first.metadata.labels.get(term.topology_key)
    return value is not None and value == second.metadata.labels.get(term.topology_key)
