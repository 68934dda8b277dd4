"""Makes pod contexts of NRI's messages, and NRI's answers of edits.

The runtime shows a container's spec, edits of earlier calls included; kubelet's present request comes beside it. So a
quota is computed only from kubelet's request, never from the spec, which may hold our own; and an edit that changes
nothing is left out, since each field that is sent is claimed, and a second plugin that claims it makes the call fail.

NRI differs from CRI in three ways, each decided here:

* "" for CPUs means "leave alone", so the parent's CPUs are said by name (``parent_sets``).
* An update carries no annotation. A hook that needs one to know its own value again says nothing in an update: the
  reconciler sets the file instead, and the spec keeps kubelet's value.
* A sandbox cannot be edited, so its resctrl class is given to each container as the RDT class, which the runtime
  passes on without a configuration of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace as with_values

from koord.host.files import Target
from koord.host.originals import ContainerKey
from koord.model.crifields import SCALARS, Field
from koord.model.lattice import Value
from koord.model.slices import from_cgroups_path
from koord.pb.nri import api_pb2 as nri
from qosd.hooks import engine, resctrl
from qosd.hooks.edits import Edit, Edits
from qosd.hooks.originals import RequestedResources
from qosd.hooks.table import HOOKS
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest
from qosd.model.policy import EffectivePolicy

ParentSets = Callable[[Target], str]
"""From a row of a pod's cgroup to the CPUs, or memory nodes, that the pod has, as a list; "" = unknown."""
_RESCTRL = tuple(hook for hook in HOOKS if hook.name == "resctrl")
_RESTARTS = "io.kubernetes.container.restartCount"
_VALUES = attrgetter(*[".".join(field.path if field.is_cpuset else (*field.path, "value")) for field in SCALARS])


def values_of(resources: nri.LinuxResources) -> dict[Field, Value]:
    """Returns the value of each field; 0 and "" where ``resources`` has none."""
    return dict(zip(SCALARS, _VALUES(resources), strict=True))


def requested(resources: nri.LinuxResources) -> RequestedResources:
    """Returns these as a request. The limit of swap stays: the runtime has made it of memory's before NRI is asked."""
    return RequestedResources(values_of(resources), dict(resources.unified), swap_follows=False)


class SpecResources(NamedTuple):
    """A container's resources without our edits, or kubelet's new ones, and its place."""

    request: RequestedResources
    parent: str
    """The pod's cgroup path; "" = unknown."""

    @classmethod
    def of(cls, container: nri.Container, update: nri.LinuxResources | None = None) -> SpecResources:
        """Returns the container's resources; ``update`` is kubelet's request now, if there is one."""
        parent = from_cgroups_path(container.linux.cgroups_path).rpartition("/")[0]
        request = requested(container.linux.resources)
        return cls(request if update is None else request.updated(requested(update)), parent)

    def changed_by(self, edit: Edit, parent_sets: ParentSets) -> Value | None:
        """Returns the value by which ``edit`` changes this; None if it does not, or cannot be said."""
        field, value = edit.field, edit.value
        has = self.request.values[field] if field.path else self.request.unified.get(edit.key)
        if field.is_cpuset and not value and has and self.parent:
            value = parent_sets(Target(self.parent, field.value))
        return None if not value or field.same(value, has) else value


def create_request(pod: nri.PodSandbox, container: nri.Container, spec: SpecResources) -> RuntimeRequest:
    """Returns the request of a container that is about to be made: its spec is what kubelet requested."""
    return _request(HookStage.CREATE, pod, container, Resources.of(spec.request.values))


def update_request(
    pod: nri.PodSandbox, container: nri.Container, spec: SpecResources, update: nri.LinuxResources
) -> RuntimeRequest:
    """Returns the request of a container that exists; ``update`` is kubelet's request now, if there is one."""
    values = {**spec.request.values, Field.CPU_QUOTA: update.cpu.quota.value}
    return _request(HookStage.UPDATE, pod, container, Resources.of(values))


def key_of(pod: nri.PodSandbox, container: nri.Container) -> ContainerKey:
    """Returns the key of the container in CRI; kubelet repeats the attempt, which NRI lacks, in an annotation."""
    attempt = container.annotations.get(_RESTARTS, "")
    return ContainerKey(pod.uid, container.name, int(attempt) if attempt.isdecimal() else 0)


def _request(stage: HookStage, pod: nri.PodSandbox, container: nri.Container, requested: Resources) -> RuntimeRequest:
    return with_values(
        pod_request(pod),
        stage=stage,
        requested=requested,
        container=container.name,
        container_annotations=container.annotations,
        pod_shares=pod.linux.pod_resources.cpu.shares.value or None,
    )


def pod_request(pod: nri.PodSandbox) -> RuntimeRequest:
    """Returns the request of a pod whose sandbox is being made."""
    return RuntimeRequest(
        stage=HookStage.RUN_SANDBOX,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        cgroup_parent=pod.linux.cgroup_parent,
        requested=Resources.of(values_of(pod.linux.pod_resources)),
    )


def rdt_class(pod: PodContext, policy: EffectivePolicy) -> str:
    """Returns the resctrl group that ``pod`` belongs to by its sandbox's edits; "" = no opinion."""
    if not policy.host.resctrl_groups:
        return ""
    without_configuration = replace(policy, node=replace(policy.node, rdt_verified=True))
    edits = engine.decide(pod.at(HookStage.RUN_SANDBOX, Resources()), without_configuration, hooks=_RESCTRL)
    edit = edits.get(Field.ANNOTATION, resctrl.ANNOTATION)
    return str(edit.value) if edit else ""


def resources(edits: Edits, spec: SpecResources, parent_sets: ParentSets) -> nri.LinuxResources | None:
    """Returns the resource edits that change ``spec``; None if none does."""
    found = nri.LinuxResources()
    for edit in edits.items:
        value = None if edit.field is Field.ANNOTATION else spec.changed_by(edit, parent_sets)
        if value is not None:
            _set(found, edit, value)
    return found if found.ByteSize() else None


def _set(resources: nri.LinuxResources, edit: Edit, value: Value) -> None:
    field = edit.field
    if not field.path:
        resources.unified[edit.key] = str(value)
        return
    part, name = field.path
    if field.is_cpuset:
        setattr(getattr(resources, part), name, str(value))
    else:
        getattr(getattr(resources, part), name).value = int(value)


def adjustment(
    edits: Edits, container: nri.Container, spec: SpecResources, rdt: str, parent_sets: ParentSets
) -> nri.ContainerAdjustment | None:
    """Returns the adjustment of a new container; None = nothing changes."""
    found = nri.ContainerAdjustment()
    changed = resources(edits, spec, parent_sets)
    if changed is not None:
        found.linux.resources.CopyFrom(changed)
    if rdt and not container.linux.rdt.clos_id.value:
        found.linux.resources.rdt_class.value = rdt
    for edit in edits.items:
        if edit.field is Field.ANNOTATION:
            found.annotations[edit.key] = str(edit.value)
    return found if found.ByteSize() else None


def update(
    edits: Edits, container: nri.Container, spec: SpecResources, parent_sets: ParentSets
) -> nri.ContainerUpdate | None:
    """Returns the update of an existing container; None = nothing changes."""
    changed = resources(edits.without_annotating, spec, parent_sets)
    if changed is None:
        return None
    return nri.ContainerUpdate(
        container_id=container.id, linux=nri.LinuxContainerUpdate(resources=changed), ignore_failure=True
    )
