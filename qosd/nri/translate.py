"""NRI's messages to pod contexts, and edits to what NRI can carry.

What the runtime shows of a container is its spec, edits of earlier calls included; what kubelet asks for now comes
beside it. So a quota is computed only from what kubelet asks, never from the spec, which may hold our own; and an
edit that changes nothing is left out, since each field that is sent is claimed, and a second plugin that claims it
makes the call fail.

NRI differs from CRI in three ways, each decided here:

* "" for CPUs means "leave alone", so the parent's CPUs are said by name (``parent_cpus``).
* An update carries no annotation. A hook that needs one to know its own value again says nothing in an update: the
  reconciler sets the file instead, and the spec keeps kubelet's value.
* A sandbox cannot be edited, so its resctrl class is given to each container as the RDT class, which the runtime
  passes on without a configuration of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as with_values

from koord.host import paths
from koord.host.originals import ContainerKey
from koord.model import cpuset
from koord.pb.nri import api_pb2 as nri
from qosd.hooks import engine, resctrl
from qosd.hooks.context import PodContext, Request, Stage
from qosd.hooks.edits import Edit, Edits, Field, Resources
from qosd.hooks.originals import RequestedResources
from qosd.hooks.rules import Rules
from qosd.hooks.table import HOOKS

ParentCPUs = Callable[[str], str]
"""From a pod's cgroup path (``/kubepods/…``) to the CPUs it has, as a cpuset list; "" = unknown."""
_RESCTRL = tuple(hook for hook in HOOKS if hook.name == "resctrl")
_RESTARTS = "io.kubernetes.container.restartCount"
_NO_RESOURCES = nri.LinuxResources()


def create_request(pod: nri.PodSandbox, container: nri.Container) -> Request:
    """A container that is about to be made: its spec is what kubelet requested."""
    spec = container.linux.resources
    requested = Resources(spec.cpu.period.value or None, spec.cpu.quota.value or None, spec.memory.limit.value or None)
    return _request(Stage.CREATE, pod, container, requested)


def update_request(
    pod: nri.PodSandbox, container: nri.Container, wanted: nri.LinuxResources = _NO_RESOURCES
) -> Request:
    """A container that exists; ``wanted`` is what kubelet asks for now, if it does."""
    spec = container.linux.resources
    requested = Resources(
        wanted.cpu.period.value or spec.cpu.period.value or None,
        wanted.cpu.quota.value or None,
        wanted.memory.limit.value or spec.memory.limit.value or None,
    )
    return _request(Stage.UPDATE, pod, container, requested)


def key_of(pod: nri.PodSandbox, container: nri.Container) -> ContainerKey:
    """The container as CRI names it; kubelet repeats the attempt, which NRI lacks, in an annotation."""
    attempt = container.annotations.get(_RESTARTS, "")
    return ContainerKey(pod.uid, container.name, int(attempt) if attempt.isdecimal() else 0)


def _request(stage: Stage, pod: nri.PodSandbox, container: nri.Container, requested: Resources) -> Request:
    return with_values(
        pod_request(pod),
        stage=stage,
        requested=requested,
        container=container.name,
        container_annotations=container.annotations,
    )


def pod_request(pod: nri.PodSandbox) -> Request:
    """A pod whose sandbox is being made."""
    return Request(
        stage=Stage.RUN_SANDBOX,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        cgroup_parent=pod.linux.cgroup_parent,
        requested=Resources(),
    )


def rdt_class(pod: PodContext, rules: Rules) -> str:
    """The resctrl group that ``pod`` belongs to by its sandbox's edits; "" = no opinion."""
    if not rules.host.resctrl_groups:
        return ""
    without_configuration = replace(rules, node=replace(rules.node, rdt_verified=True))
    edits = engine.decide(pod.at(Stage.RUN_SANDBOX, Resources()), without_configuration, _RESCTRL)
    edit = edits.get(Field.ANNOTATION, resctrl.ANNOTATION)
    return str(edit.value) if edit else ""


class Held(NamedTuple):
    """What a container has without our edits, or gets from kubelet now."""

    cpus: str
    shares: int
    quota_us: int
    memory_bytes: int
    unified: Mapping[str, str]
    parent: str
    """The pod's cgroup path; "" = unknown."""

    @property
    def request(self) -> RequestedResources:
        """The limit of swap stays as it is: NRI comes after the runtime has made it of that of memory."""
        return RequestedResources(
            self.cpus, self.shares, self.quota_us, self.memory_bytes, unified=self.unified, swap_follows=False
        )

    def changed(self, by: nri.LinuxResources) -> RequestedResources:
        """The request with these resources in its place."""
        return RequestedResources(
            by.cpu.cpus or self.cpus,
            by.cpu.shares.value or self.shares,
            by.cpu.quota.value or self.quota_us,
            by.memory.limit.value or self.memory_bytes,
            unified={**self.unified, **by.unified},
            swap_follows=False,
        )

    @classmethod
    def of(cls, container: nri.Container, wanted: nri.LinuxResources = _NO_RESOURCES) -> Held:
        spec = container.linux.resources
        return cls(
            cpus=wanted.cpu.cpus or spec.cpu.cpus,
            shares=wanted.cpu.shares.value or spec.cpu.shares.value,
            quota_us=wanted.cpu.quota.value or spec.cpu.quota.value,
            memory_bytes=wanted.memory.limit.value or spec.memory.limit.value,
            unified={**spec.unified, **wanted.unified},
            parent=paths.from_cgroups_path(container.linux.cgroups_path).rpartition("/")[0],
        )

    def changed_by(self, edit: Edit, parent_cpus: ParentCPUs) -> int | str | None:
        """The value by which ``edit`` changes this; None if it does not, or cannot be said."""
        if edit.field is Field.CPUSET_CPUS:
            wanted = str(edit.value) or (parent_cpus(self.parent) if self.cpus and self.parent else "")
            return wanted if wanted and not _same_cpus(wanted, self.cpus) else None
        has: int | str | None
        if edit.field is Field.UNIFIED:
            has = self.unified.get(edit.key)
        else:
            by_field = {
                Field.CPU_SHARES: self.shares,
                Field.CPU_QUOTA: self.quota_us,
                Field.MEMORY_LIMIT: self.memory_bytes,
            }
            has = by_field.get(edit.field)
        return edit.value if edit.value not in (has, 0, "") else None


def _same_cpus(cpus: str, other: str) -> bool:
    try:
        return cpuset.parse(cpus) == cpuset.parse(other)
    except cpuset.CPUSetError:
        return cpus == other


def resources(edits: Edits, held: Held, parent_cpus: ParentCPUs) -> nri.LinuxResources | None:
    """The resource edits that change ``held``; None if none does."""
    found = nri.LinuxResources()
    for edit in edits.items:
        value = None if edit.field is Field.ANNOTATION else held.changed_by(edit, parent_cpus)
        if value is not None:
            _set(found, edit, value)
    return found if found.ByteSize() else None


def _set(resources: nri.LinuxResources, edit: Edit, value: int | str) -> None:
    if edit.field is Field.CPUSET_CPUS:
        resources.cpu.cpus = str(value)
    elif edit.field is Field.UNIFIED:
        resources.unified[edit.key] = str(value)
    elif edit.field is Field.CPU_SHARES:
        resources.cpu.shares.value = int(value)
    elif edit.field is Field.CPU_QUOTA:
        resources.cpu.quota.value = int(value)
    elif edit.field is Field.MEMORY_LIMIT:
        resources.memory.limit.value = int(value)


def adjustment(
    edits: Edits, container: nri.Container, rdt: str, parent_cpus: ParentCPUs
) -> nri.ContainerAdjustment | None:
    """What a new container gets; None = nothing."""
    found = nri.ContainerAdjustment()
    changed = resources(edits, Held.of(container), parent_cpus)
    if changed is not None:
        found.linux.resources.CopyFrom(changed)
    if rdt and not container.linux.rdt.clos_id.value:
        found.linux.resources.rdt_class.value = rdt
    for edit in edits.items:
        if edit.field is Field.ANNOTATION:
            found.annotations[edit.key] = str(edit.value)
    return found if found.ByteSize() else None


def update(
    edits: Edits, container: nri.Container, parent_cpus: ParentCPUs, wanted: nri.LinuxResources = _NO_RESOURCES
) -> nri.ContainerUpdate | None:
    """What an existing container gets, over ``wanted`` if kubelet asks for something now; None = nothing."""
    changed = resources(edits.without_annotating, Held.of(container, wanted), parent_cpus)
    if changed is None:
        return None
    return nri.ContainerUpdate(
        container_id=container.id, linux=nri.LinuxContainerUpdate(resources=changed), ignore_failure=True
    )
