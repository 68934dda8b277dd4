"""NodeNUMAResource: CPUs of their own for pods of the classes LSE and LSR, and NUMA nodes for pods that say so.

Nodes without policies of their own are judged by columns; on others, and for pods that ask for NUMA nodes, each node is
tried, nodes that are alike once. What a pod gets is decided when it has its node, and written on it before it is bound.
What its object says of it until then is not believed.

Source: Koordinator, pkg/scheduler/plugins/nodenumaresource: plugin.go, scoring.go. Differs in that a pod is not sent to
a node that has too few free CPUs for it, and in that NUMA nodes are scored by the resources of ``numa_scoring``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from koord.model import quantity
from koord.model.annotations import NUMANodeResource, ResourceStatus, encode
from koord.model.cpuset import CPUSet
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import Format, Quantity
from koord.model.scheduling.numa import RESOURCE_SPEC, CPUBindPolicy, NodeCPUBindPolicy, NUMATopologyPolicy
from koord.scheduling.numa.accumulator import Binding
from koord.scheduling.numa.allocation import (
    NOT_ENOUGH_CPUS,
    PLAIN,
    NodeView,
    Trial,
    amplified,
    binding_of,
    required_policy,
)
from koord.scheduling.numa.nodes import BIND_POLICIES, TOPOLOGY_POLICIES
from koord.scheduling.numa.podrequest import MILLI, RESOURCE_STATUS, Allocation, Request, request_of, spec_of
from koord.scheduling.plugin import Explanation, Plugin, PluginError, PodPatch, Reason, Rejection, Scope
from koord.scheduling.plugins.resources import NATIVE, Score, least_allocated, most_allocated, score_at
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int64s

POLICY_MISMATCH = "node(s) NUMA Topology policy not match"
NOT_WHOLE = "the requested CPUs must be integer"
AMPLIFIED = "Insufficient amplified cpu"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
POLICY_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_ALIGNED = "node(s) requested cpus not multiple cpus per core"
_HELP_BY_PODS = frozenset((AMPLIFIED, NOT_ENOUGH_CPUS))
_MOST_TRIALS = 16384
_MOST_NAMED = 8
_BYTES = (MEMORY, "kubernetes.io/batch-memory", "kubernetes.io/mid-memory", "ephemeral-storage", "hugepages-")
_FULL = BIND_POLICIES.index(NodeCPUBindPolicy.FULL_PCPUS_ONLY)
_SPREAD = BIND_POLICIES.index(NodeCPUBindPolicy.SPREAD_BY_PCPUS)
_NUMBERS = {None: 0, CPUBindPolicy.FULL_PCPUS: _FULL, CPUBindPolicy.SPREAD_BY_PCPUS: _SPREAD}
"""Of a required policy: the place of the node's policy that is the same."""
Weights = tuple[tuple[str, int], ...]
"""By resource."""
_EQUAL: Weights = ((CPU, 1), (MEMORY, 1))


@dataclass(frozen=True)
class Scoring:
    """How full something is that has several resources: the mean of the scores of those that it has."""

    score: Score = least_allocated
    weights: Weights = _EQUAL

    def __call__(self, requested: Mapping[str, int], capacity: Mapping[str, int], own: Mapping[str, int]) -> int:
        """``own``: what the pod requests; resources other than CPU, memory and disk count only where it does."""
        total = weights = 0
        for name, weight in self.weights:
            if capacity.get(name, 0) > 0 and (name in NATIVE or own.get(name)):
                total += weight * score_at(self.score, requested.get(name, 0), capacity[name])
                weights += weight
        return total // weights if weights else 0


class _Tried(NamedTuple):
    """``reason``: why the pod cannot be there; ``score``: of its NUMA nodes, None: of the node."""

    reason: str = ""
    score: int | None = None


@dataclass(frozen=True)
class NodeNUMAResource(Plugin):
    """``default_policy``: of pods that say none. ``node_scoring``: of nodes, and of the NUMA nodes that a pod would
    get; ``numa_scoring``: by which these are chosen, and which come first for CPUs where a node does not say.
    """

    name: ClassVar[str] = "NodeNUMAResource"
    filter_scope: ClassVar[Scope] = Scope.PODS
    score_scope: ClassVar[Scope] = Scope.PODS
    default_policy: CPUBindPolicy = CPUBindPolicy.FULL_PCPUS
    node_scoring: Scoring = Scoring()
    numa_scoring: Scoring = Scoring()

    def goes_by_pods(self, state: ClusterState, pod: PodInfo) -> bool:
        request = request_of(pod, self.default_policy)
        return isinstance(request, Request) and _is_concerned(state, request)

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        request = request_of(pod, self.default_policy)
        if isinstance(request, str):
            return (Rejection(request, state.table.exists, False, is_of_pod=True),)
        if request is None or not _is_concerned(state, request):
            return ()
        if request.binds and request.cpu_milli % MILLI:
            return (Rejection(NOT_WHOLE, state.table.exists, False, is_of_pod=True),)
        left, found = state.table.exists.copy(), []
        for reason, rows in _by_columns(state, request):
            found.append(Rejection(reason, rows & left, reason in _HELP_BY_PODS))
            left &= ~rows
        by_reason: dict[str, Bools] = {}
        for row, tried in self._each_tried(state, request, left):
            if tried.reason:
                by_reason.setdefault(tried.reason, np.zeros(state.length, np.bool_))[row] = True
        found += [Rejection(reason, rows) for reason, rows in by_reason.items()]
        return [each for each in found if each.rows.any()]

    def score(self, state: ClusterState, pod: PodInfo, feasible: Bools) -> Int64s | None:
        request = request_of(pod, self.default_policy)
        if request is None:
            return None
        if isinstance(request, str):
            return np.zeros(state.length, np.int64)
        scores = self._node_scores(state, pod, request)
        if _is_concerned(state, request):
            for row, tried in self._each_tried(state, request, feasible):
                if tried.score is not None or tried.reason:
                    scores[row] = tried.score or 0
        return scores

    def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Bools) -> Explanation:
        request = request_of(pod, self.default_policy)
        if request is None:
            return Explanation()
        if isinstance(request, str):
            return Explanation((Reason(request, False),))
        tried = _Tried()
        if _is_concerned(state, request):
            reason = self._reason(state, request, row)
            if not reason and _policy(state.numa.view(row), request):
                tried = self._tried(state, request, row)
                reason = tried.reason
            if reason:
                said = Reason(reason, reason in _HELP_BY_PODS or bool(tried.reason), self._detail(state, request, row))
                return Explanation((said,))
        return Explanation((), self._node_score(state, pod, request, row) if tried.score is None else tried.score)

    def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        request, row = request_of(pod, self.default_policy), state.table.row(node)
        if not isinstance(request, Request) or row is None:
            return
        view = state.numa.view(row)
        policy, binding = _policy(view, request), self._binding(view, request)
        if binding is None and not policy:
            return
        trial = Trial(view, request, binding)
        allocation = trial.admit(policy, self.numa_scoring) if policy else trial.allocate()
        if isinstance(allocation, str):
            raise PluginError(self.name, "reserve", f"{allocation} on {node}")
        state.hold_cpus(pod.uid, allocation)

    def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        state.release_cpus(pod.uid)

    def pre_bind_patch(self, state: ClusterState, pod: PodInfo, node: str) -> PodPatch | None:
        """What a pod says that it has, and was not given, is taken off it."""
        allocation, annotations = state.numa.assumed(pod.uid), pod.pod.metadata.annotations
        if allocation is None:
            return PodPatch({RESOURCE_STATUS: None}) if RESOURCE_STATUS in annotations else None
        wanted = {RESOURCE_STATUS: _status_text(allocation)}
        request, row = request_of(pod, self.default_policy), state.table.row(node)
        if allocation.cpus and isinstance(request, Request) and row is not None:
            spec = self._spec_text(state.numa.view(row), pod, request)
            if spec:
                wanted[RESOURCE_SPEC] = spec
        return PodPatch(wanted)

    # one node

    def _binding(self, view: NodeView, request: Request) -> Binding | None:
        return binding_of(view.settings, request, self.numa_scoring.score is most_allocated)

    def _tried(self, state: ClusterState, request: Request, row: int) -> _Tried:
        """What comes of trying the node by its NUMA nodes."""
        view = state.numa.view(row)
        binding, policy = self._binding(view, request), _policy(view, request)
        return _try(view, request, binding, policy, self.numa_scoring, self.node_scoring)

    def _each_tried(self, state: ClusterState, request: Request, rows: Bools) -> Iterator[tuple[int, _Tried]]:
        """Yields what comes of trying each node of ``rows`` whose NUMA nodes count."""
        by_view: dict[NodeView, _Tried] = {}
        for row in np.flatnonzero(rows & _with_policy(state, request)).tolist():
            view = state.numa.view(row)
            tried = by_view.get(view)
            if tried is None:
                tried = by_view[view] = self._tried(state, request, row)
            yield row, tried

    def _reason(self, state: ClusterState, request: Request, row: int) -> str:
        """``_by_columns`` of one node; "": none."""
        settings, count = state.numa.view(row).settings, request.cpu_milli // MILLI
        is_whole = request.cpu_milli % MILLI == 0
        if request.binds and not is_whole:
            return NOT_WHOLE
        if request.topology_policy and settings.topology_policy not in ("", request.topology_policy):
            return POLICY_MISMATCH
        is_forced = settings.bind_policy is not NodeCPUBindPolicy.NONE and request.cpu_milli > 0
        if is_forced and not is_whole:
            return NOT_WHOLE
        if request.cpu_milli and settings.ratio_percent > PLAIN:
            cost = _cost_at(state, request, row)
            if cost > state.nodes.allocatable.at(row, CPU) - _requested_cpu_at(state, row):
                return AMPLIFIED
        if not (is_forced or request.binds):
            return ""
        if settings.topology is None:
            return NO_TOPOLOGY
        required = required_policy(settings.bind_policy, request)
        if request.required is not None and request.required is not required:
            return POLICY_CONFLICT
        if required is CPUBindPolicy.FULL_PCPUS and count % settings.topology.threads:
            return NOT_ALIGNED
        columns = state.numa.columns
        by_policy = {CPUBindPolicy.FULL_PCPUS: columns.whole, CPUBindPolicy.SPREAD_BY_PCPUS: columns.cores}
        free = columns.free if required is None else by_policy[required]
        return NOT_ENOUGH_CPUS if free[row] < count else ""

    def _detail(self, state: ClusterState, request: Request, row: int) -> str:
        if self._binding(state.numa.view(row), request) is None:
            return ""
        return f"{request.cpu_milli / MILLI:g} wanted; {cpus_in_words(state, row)}"

    def _spec_text(self, view: NodeView, pod: PodInfo, request: Request) -> str:
        """The pod's ``resource-spec`` with the policy that held; "": it said that."""
        spec, binding = spec_of(pod), self._binding(view, request)
        if binding is None:
            return ""
        required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
        if binding.is_required and required in (None, CPUBindPolicy.DEFAULT):
            required = binding.policy
        if preferred is CPUBindPolicy.DEFAULT or (required is None and preferred is None):
            preferred = binding.policy
        said = msgspec.structs.replace(spec, required_cpu_bind_policy=required, preferred_cpu_bind_policy=preferred)
        return "" if said == spec else msgspec.json.encode(said).decode()

    # scores of nodes

    def _node_scores(self, state: ClusterState, pod: PodInfo, request: Request) -> Int64s:
        total, weights = np.zeros(state.length, np.int64), np.zeros(state.length, np.int64)
        for name, weight in self.node_scoring.weights:
            capacity = state.nodes.allocatable.of(name)
            if capacity is None or not (name in NATIVE or name in pod.requests):
                continue
            if name == CPU:
                requested = _requested_cpu(state) + _cost(state, request)
            else:
                before = state.requested.of(name)
                requested = np.zeros(state.length, np.int64) if before is None else before
                requested = requested + pod.requests.get(name, 0)
            counts = capacity > 0
            total += np.where(counts, weight * self.node_scoring.score(requested, np.maximum(capacity, 1)), 0)
            weights += np.where(counts, weight, 0)
        return total // np.maximum(weights, 1)

    def _node_score(self, state: ClusterState, pod: PodInfo, request: Request, row: int) -> int:
        """``_node_scores`` of one node."""
        capacity, requested = {}, {}
        for name, _ in self.node_scoring.weights:
            capacity[name] = state.nodes.allocatable.at(row, name)
            requested[name] = state.requested.at(row, name) + pod.requests.get(name, 0)
        requested[CPU] = _requested_cpu_at(state, row) + _cost_at(state, request, row)
        return self.node_scoring(requested, capacity, pod.requests)


@lru_cache(_MOST_TRIALS)
def _try(
    view: NodeView,
    request: Request,
    binding: Binding | None,
    policy: NUMATopologyPolicy,
    numa_scoring: Scoring,
    node_scoring: Scoring,
) -> _Tried:
    trial = Trial(view, request, binding)
    found = trial.admit(policy, numa_scoring)
    if isinstance(found, str):
        return _Tried(found)
    numbers = [number for number, _ in found.numa_nodes]
    return _Tried("", trial.score(numbers, node_scoring) if numbers else None)


def _is_concerned(state: ClusterState, request: Request) -> bool:
    """Returns whether the plugin may reject a node."""
    return request.binds or bool(request.topology_policy) or state.numa.has_special_nodes


def _policy(view: NodeView, request: Request) -> NUMATopologyPolicy:
    """The policy by which the pod is on the node, if it can be there."""
    return request.topology_policy or view.settings.topology_policy


def _with_policy(state: ClusterState, request: Request) -> Bools:
    """bool[N]: the nodes whose NUMA nodes count."""
    if request.topology_policy:
        return np.ones(state.length, np.bool_)
    return state.numa.columns.topology_policy > 0


def _by_columns(state: ClusterState, request: Request) -> Iterator[tuple[str, Bools]]:
    """Yields each reason that does not go by NUMA nodes, with the nodes that it is about, the first first."""
    columns, count = state.numa.columns, request.cpu_milli // MILLI
    if request.topology_policy:
        policy = columns.topology_policy
        yield POLICY_MISMATCH, (policy > 0) & (policy != TOPOLOGY_POLICIES.index(request.topology_policy))
    binds = _binds(state, request)
    if request.cpu_milli % MILLI:
        yield NOT_WHOLE, binds
    ratio = columns.ratio_percent
    if request.cpu_milli and (ratio > PLAIN).any():
        allocatable = state.nodes.allocatable.of(CPU)
        free = (0 if allocatable is None else allocatable) - _requested_cpu(state)
        yield AMPLIFIED, (ratio > PLAIN) & (_cost(state, request) > free)
    if not binds.any():
        return
    yield NO_TOPOLOGY, binds & ~columns.has_topology
    own = _NUMBERS[request.required]
    required = np.where(columns.bind_policy > 0, columns.bind_policy, own)
    if own:
        yield POLICY_CONFLICT, binds & (required != own)
    yield NOT_ALIGNED, binds & (required == _FULL) & (count % columns.threads != 0)
    free = np.where(required == _FULL, columns.whole, np.where(required == _SPREAD, columns.cores, columns.free))
    yield NOT_ENOUGH_CPUS, binds & (free < count)


def _binds(state: ClusterState, request: Request) -> Bools:
    """bool[N]: where the pod has CPUs of its own."""
    if request.binds:
        return np.ones(state.length, np.bool_)
    return (state.numa.columns.bind_policy > 0) & (request.cpu_milli > 0)


# CPU as it costs on nodes that are amplified


def _requested_cpu(state: ClusterState) -> Int64s:
    """int64[N]: what pods request, and of their own CPUs what they stand for."""
    found, columns = state.requested.of(CPU), state.numa.columns
    requested = np.zeros(state.length, np.int64) if found is None else found
    if not (columns.ratio_percent > PLAIN).any():
        return requested
    held = MILLI * columns.held
    more = -(-held * columns.ratio_percent // PLAIN) - held
    return requested + np.where((requested >= held) & (held > 0), more, 0)


def _requested_cpu_at(state: ClusterState, row: int) -> int:
    """``_requested_cpu`` of one node."""
    requested, view = state.requested.at(row, CPU), state.numa.view(row)
    held = MILLI * view.use.held.bit_count()
    return requested - held + amplified(held, view.settings.ratio_percent) if requested >= held else requested


def _cost(state: ClusterState, request: Request) -> Int64s | int:
    """int64[N]: what the pod's CPU costs."""
    ratio = state.numa.columns.ratio_percent
    if not (ratio > PLAIN).any():
        return request.cpu_milli
    return np.where(_binds(state, request), -(-request.cpu_milli * ratio // PLAIN), request.cpu_milli)


def _cost_at(state: ClusterState, request: Request, row: int) -> int:
    """``_cost`` on one node."""
    settings = state.numa.view(row).settings
    is_bound = request.binds or settings.bind_policy is not NodeCPUBindPolicy.NONE
    return amplified(request.cpu_milli, settings.ratio_percent) if is_bound else request.cpu_milli


# words


def cpus_in_words(state: ClusterState, row: int) -> str:
    """Says which CPUs of a node are free, and who has the others."""
    view = state.numa.view(row)
    settings = view.settings
    if settings.topology is None:
        return "which CPUs there are is not known"
    parts = [f"{view.free.bit_count()} of {settings.topology.cpus.bit_count()} CPUs are free"]
    if view.free:
        parts[0] += f": {CPUSet(view.free)}"
    held = sorted(state.numa.held_on(state.table.name(row)), key=lambda each: (each.allocation.cpus, each.pod.uid))
    having = [each for each in held if each.allocation.cpus]
    parts += [
        f"{each.pod.namespace}/{each.pod.name} has {CPUSet(each.allocation.cpus)}" for each in having[:_MOST_NAMED]
    ]
    if len(having) > _MOST_NAMED:
        others = 0
        for each in having[_MOST_NAMED:]:
            others |= each.allocation.cpus
        parts.append(f"{len(having) - _MOST_NAMED} more pods have {CPUSet(others)}")
    parts += [
        f"{each.by} keeps {CPUSet(each.cpus & settings.topology.cpus)}"
        for each in settings.reserved
        if each.cpus & settings.topology.cpus
    ]
    return "; ".join(parts)


def _status_text(allocation: Allocation) -> str:
    """The annotation ``resource-status``."""
    numa_nodes = [
        NUMANodeResource(node=number, resources={name: _quantity(name, amount) for name, amount in amounts})
        for number, amounts in allocation.numa_nodes
    ]
    return encode(ResourceStatus(cpuset=CPUSet(allocation.cpus), numa_node_resources=tuple(numa_nodes)))


def _quantity(name: str, amount: int) -> Quantity:
    if name == CPU:
        return quantity.of_milli(amount)
    return quantity.of(amount, Format.BINARY_SI if name.startswith(_BYTES) else Format.DECIMAL_SI)
