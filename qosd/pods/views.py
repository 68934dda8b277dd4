"""Makes a pod's PodView of the answers of the runtime and kubelet and of the cgroup tree; pure.

kubelet's labels and annotations win over the sandbox's, because they follow ``kubectl annotate``; the runtime's cgroup
paths win over names found in the tree. A container's annotations are those that kubelet requested, and below them
Koord's marks in the spec, without which a quota of our own would count as requested. A cgroup parent that is not named
as kubelet names a pod's (a sandbox made by hand) may be shared, so it belongs to no pod. Invariant: equal inputs give
the very same view, container view and decoded context as before, so that identity means "nothing changed"; each problem
of a pod is a problem of its view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koord.model import cgroup_parent, priority, qos
from koord.model.qos import DerivationRules, KubeQoS
from koord.model.slices import container_path
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest
from qosd.model.snapshot import ContainerView, PodView
from qosd.pods.cri import SANDBOX_READY, Container, Detail, Sandbox
from qosd.pods.kubelet import UNLISTED, KubeletPod


@dataclass(frozen=True, slots=True)
class PodInputs:
    """All that is known of a pod. ``cgroup``: its directory as found in the tree; ``details`` by object id.

    ``scope_prefix``: the runtime's prefix of a container's scope, where it does not tell the path itself.
    """

    sandbox: Sandbox | None
    containers: tuple[Container, ...]
    details: Mapping[str, Detail]
    kubelet: KubeletPod | None
    cgroup: str
    derivation: DerivationRules
    scope_prefix: str


def build(inputs: PodInputs, previous: tuple[PodInputs, PodView] | None) -> PodView:
    """Returns the view of ``inputs``; ``previous`` is what was built for the same pod last, to be reused as far as it
    holds.
    """
    if previous is not None and previous[0] == inputs:
        return previous[1]
    old = None if previous is None else previous[1]
    context = _context(inputs, old)
    kubelet, request = inputs.kubelet or UNLISTED, context.request
    kube_qos = kubelet.kube_qos or context.kube_qos or KubeQoS.BURSTABLE
    running = inputs.sandbox is not None and inputs.sandbox.state == SANDBOX_READY
    derived = qos.derive(context.raw_qos, kube_qos, running=running, rules=inputs.derivation)
    views = _containers(inputs, request.cgroup_parent, old)
    cgroup = request.cgroup_parent if cgroup_parent.parse(request.cgroup_parent) is not None else ""
    return PodView(
        uid=request.uid,
        namespace=request.namespace,
        name=request.name,
        sandbox_id="" if inputs.sandbox is None else inputs.sandbox.id,
        state="" if inputs.sandbox is None else inputs.sandbox.state,
        cgroup=cgroup,
        context=context,
        kube_qos=kube_qos,
        qos=derived.qos,
        qos_source=derived.source,
        priority_class=priority.effective(request.labels, kubelet.priority, derived.qos),
        sub_priority=context.annotations.priority or 0,
        containers=views,
        problems=(*context.problems, *_silences(cgroup, request.cgroup_parent, views)),
        cpu_request_milli=kubelet.cpu_request_milli,
        memory_request_bytes=kubelet.memory_request_bytes,
        spec_containers=kubelet.spec_containers,
        priority=kubelet.priority,
        phase=kubelet.phase,
        facts=kubelet.facts,
        runtime_handler="" if inputs.sandbox is None else inputs.sandbox.runtime_handler,
    )


def _context(inputs: PodInputs, old: PodView | None) -> PodContext:
    """Returns the decoded context; it is decoded again only if its texts changed."""
    listed = inputs.kubelet
    told: Sandbox | KubeletPod | None = inputs.sandbox or listed
    assert told is not None
    said: Sandbox | KubeletPod = listed or told
    detail = _detail(inputs)
    request = RuntimeRequest(
        stage=HookStage.RUN_SANDBOX,
        namespace=told.namespace,
        name=told.name,
        uid=told.uid,
        labels=said.labels,
        annotations=said.annotations,
        cgroup_parent=detail.cgroup_parent or inputs.cgroup,
        requested=detail.pod_requested if listed is None else listed.requested,
        pod_shares=None if listed is not None else detail.pod_requested.cpu_shares or _containers_shares(inputs),
    )
    if listed is not None:
        request = listed.completed(request)
    return old.context if old is not None and old.context.request == request else PodContext.read(request)


def _containers_shares(inputs: PodInputs) -> int | None:
    """Returns the sum of the shares of the containers made so far; None: the runtime does not tell."""
    latest = {each.name: inputs.details.get(each.id, _SILENT).requested.cpu_shares for each in inputs.containers}
    return None if inputs.sandbox is None or None in latest.values() else sum(filter(None, latest.values()))


def _detail(inputs: PodInputs) -> Detail:
    return inputs.details.get(inputs.sandbox.id, _SILENT) if inputs.sandbox is not None else _SILENT


def _containers(inputs: PodInputs, parent: str, old: PodView | None) -> tuple[ContainerView, ...]:
    """Returns the views of the sandbox and of its containers, oldest first."""
    known = {} if old is None else {view.id: view for view in old.containers}
    made = []
    if inputs.sandbox is not None:
        one = inputs.sandbox
        made.append(_view(one.id, "", one.state, one.annotations, _detail(inputs), inputs, parent))
    for each in inputs.containers:
        detail = inputs.details.get(each.id, _SILENT)
        view = _view(each.id, each.name, each.state, each.annotations, detail, inputs, parent, each.attempt)
        made.append(view)
    return tuple([_same(known.get(view.id), view) for view in made])


def _view(
    id_: str,
    name: str,
    state: str,
    annotations: Mapping[str, str],
    detail: Detail,
    inputs: PodInputs,
    parent: str,
    attempt: int = 0,
) -> ContainerView:
    likely = container_path(parent, id_, inputs.scope_prefix) if parent else ""
    cgroup, said = detail.cgroup or likely, {**detail.marks, **annotations}
    return ContainerView(id_, name, cgroup, state, detail.requested, said, not name, attempt, detail.cpus)


def _same(old: ContainerView | None, new: ContainerView) -> ContainerView:
    """Returns the old object if it says the same (views themselves compare by identity)."""
    if old is None or old.state != new.state or old.cgroup != new.cgroup or old.requested != new.requested:
        return new
    is_same = (old.annotations, old.name, old.requested_cpus) == (new.annotations, new.name, new.requested_cpus)
    return old if is_same else new


def _silences(cgroup: str, parent: str, views: tuple[ContainerView, ...]) -> tuple[str, ...]:
    if not parent:
        return ("nobody tells the pod's cgroup; nothing of it can be measured or set",)
    silences = [f"nobody tells the cgroup of {view.name or 'the sandbox'}" for view in views if not view.cgroup]
    if not cgroup:
        silences.append(f"cgroup parent {parent} is no pod's of kubelet's and may be shared: it is left alone")
    return tuple(silences)


_SILENT = Detail(requested=Resources())
