"""Handles requests about pod sandboxes: asks hooks, edits the request, keeps the cache up to date.

A handler returns the decision and, for after the runtime's success, a ``Commit``. Invariant: the cache changes only
in commits, so a request that the runtime refused leaves no trace.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.codec import decode
from runtimeproxy.cri.exempt import PodTraits
from runtimeproxy.cri.fields import EDITABLE, TABLES
from runtimeproxy.cri.handlercontext import Commit, HandlerContext, NotifyTarget
from runtimeproxy.cri.methods import RUN_POD, UPDATE_POD
from runtimeproxy.cri.objectcache import PodEntry
from runtimeproxy.cri.rebuild import TIMEOUT_S, Rebuilder
from runtimeproxy.cri.record import with_record
from runtimeproxy.cri.resources import meaningful, merge_update
from runtimeproxy.cri.transcribe import PodFields, identity, pod_name, pod_to_run, text
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.chain import AgreedEdits, HookQuestion
from runtimeproxy.hooks.edits import Edits
from runtimeproxy.hooks.guards import EditGuard
from runtimeproxy.hooks.largemessages import LARGE_BYTES
from runtimeproxy.hooks.messages import POD
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Call, Forward, Refuse
from runtimeproxy.wire.protowire import payloads

Decision = tuple[Forward | Refuse, Commit | None]


class Sandboxes:
    def __init__(self, context: HandlerContext, rebuilder: Rebuilder) -> None:
        self._context = context
        self._rebuilder = rebuilder

    def known(self, pod_id: str) -> PodEntry | None:
        """Returns the sandbox, if the cache knows all of it."""
        entry = self._context.cache.pod(pod_id)
        return entry if entry is not None and entry.complete else None

    async def entry(self, service: str, pod_id: str, timeout_s: float) -> PodEntry | None:
        """Returns the sandbox, from the cache or from the runtime; None if neither knows it. Raises RebuildFailed."""
        found = self.known(pod_id)
        if found is None and pod_id:
            found = await self._rebuilder.pod(service, pod_id, timeout_s)
            if found is not None:
                self._context.cache.put_pod(pod_id, found)
        return found

    def is_exempt(self, pod: PodFields | bytes) -> bool:
        """Returns whether the pod, or that of this PodSandboxHookRequest, is exempt."""
        if isinstance(pod, bytes):
            return self._context.may_exempt(pod.__contains__) and self._context.is_exempt(traits(pod))
        return self._context.may_exempt(pod.mentions) and self._context.is_exempt(traits(pod.request))

    def learn_own_pods(self) -> None:
        """Learns which pods the connected hook servers run in."""
        self._context.exemptions.learn(self._context.chain.servers, self._find)

    async def run(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles a RunPodSandbox that is held."""
        worker, size_bytes = self._context.worker, len(message)
        pod = await worker(size_bytes, partial(_pod_to_run, message))
        if self.is_exempt(pod):
            return Forward(message), partial(self.created, pod.request, {})
        agreed = await self.ask_to_run(RUN_POD, pod, call)
        if isinstance(agreed, Refuse):
            return agreed, None
        edits = agreed.edits
        edited = await worker(size_bytes, partial(patch.apply, message, TABLES[RUN_POD], with_record(edits)))
        made = await worker(size_bytes, partial(patch.apply, pod.request, POD.request, edits))
        then = partial(self._context.report, RUN_POD, (pod.name, agreed, edits))
        return Forward(edited, then), partial(self.created, made, edits)

    def passed_run(self, message: bytes) -> Commit:
        """Handles a RunPodSandbox that passed. A large one is read from the runtime when it is needed."""
        if len(message) > LARGE_BYTES:
            return not_cached
        pod = pod_to_run(message)
        if not self.is_exempt(pod):
            self.advise(pod)
        return partial(self.created, pod.request, {})

    def ask_to_run(self, method: str, pod: PodFields, call: Call) -> Awaitable[AgreedEdits | Refuse]:
        """Asks about a sandbox that ``method`` is to make, and notifies the servers that are not waited for."""
        self.advise(pod)
        guard = self.guard(method, pod.cgroup_parent)
        return self._ask(CallStage.PRE_RUN_POD, pod.request, guard, call, pod.handler)

    def advise(self, pod: PodFields) -> None:
        """Notifies the servers that are not waited for, while the sandbox is made."""

        async def make() -> bytes:
            return pod.request

        for server in self._context.chain.of(CallStage.PRE_RUN_POD):
            if not server.awaits(CallStage.PRE_RUN_POD, pod.handler):
                server.post(CallStage.PRE_RUN_POD, make)

    def created(self, sandbox: bytes, edits: Edits, answer: bytes | None) -> None:
        """Keeps ``sandbox``, its PodSandboxHookRequest as the runtime got it; field 1 of ``answer`` is its id."""
        pod_id = text(payloads(answer or b"", 1)[0])
        if pod_id:
            self._context.cache.put_pod(pod_id, PodEntry(*identity(sandbox), sandbox, edits))

    async def update(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles an UpdatePodSandboxResources that is held."""
        request = decode(cri.UpdatePodSandboxResourcesRequest, message)
        entry = await self.entry(service, request.pod_sandbox_id, self._context.left_s(call, TIMEOUT_S))
        if entry is None:
            return Forward(message), None
        pod = decode(hooks.PodSandboxHookRequest, entry.request)
        _merge(pod, request)
        merged = pod.SerializeToString()
        if self.is_exempt(merged):
            return Forward(message), self.updated(message)
        agreed = await self._ask(CallStage.PRE_UPDATE_POD, merged, self.guard(UPDATE_POD, pod.cgroup_parent), call)
        if isinstance(agreed, Refuse):
            return agreed, None
        edits = meaningful(agreed.edits, request.resources)
        edited = patch.apply(message, TABLES[UPDATE_POD], edits)
        then = partial(self._context.report, UPDATE_POD, (partial(pod_name, merged), agreed, edits))
        return Forward(edited, then), self.updated(edited)

    def updated(self, message: bytes) -> Commit:
        """Handles an UpdatePodSandboxResources as the runtime got it."""
        request = decode(cri.UpdatePodSandboxResourcesRequest, message)
        return partial(self._apply_update, request)

    def _apply_update(self, request: cri.UpdatePodSandboxResourcesRequest, answer: bytes | None) -> None:
        entry = self._context.cache.pod(request.pod_sandbox_id)
        if entry is not None:
            pod = decode(hooks.PodSandboxHookRequest, entry.request)
            _merge(pod, request)
            self.replace(request.pod_sandbox_id, entry, pod.SerializeToString())

    def replace(self, pod_id: str, entry: PodEntry, pod: bytes) -> None:
        """Replaces ``entry`` by one with a newer request."""
        self._context.cache.put_pod(
            pod_id, PodEntry(entry.uid, entry.namespace, pod, entry.edits, entry.rebuilt, entry.complete)
        )

    async def remove(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles a RemovePodSandbox: hooks may only refuse."""
        pod_id = decode(cri.RemovePodSandboxRequest, message).pod_sandbox_id
        entry = await self.entry(service, pod_id, self._context.left_s(call, TIMEOUT_S))
        if entry is not None and not self.is_exempt(entry.request):
            agreed = await self._ask(CallStage.PRE_REMOVE_POD, entry.request, EditGuard(frozenset()), call)
            if isinstance(agreed, Refuse):
                return agreed, None
        return Forward(message), self.removed(message)

    def removed(self, message: bytes) -> Commit:
        """Handles a RemovePodSandbox that passes."""
        pod_id = decode(cri.RemovePodSandboxRequest, message).pod_sandbox_id
        return lambda answer: self._context.cache.remove_pod(pod_id)

    def stopped(self, message: bytes, service: str) -> Commit:
        """Handles a StopPodSandbox that passes; notifies post hooks afterwards."""
        pod_id = decode(cri.StopPodSandboxRequest, message).pod_sandbox_id
        return NotifyTarget(partial(self._notify, CallStage.POST_STOP_POD, service, pod_id))

    def _notify(self, stage: CallStage, service: str, pod_id: str, outcome: int) -> None:
        known = self.known(pod_id)  # as it is now: it may be gone when a slow server is notified

        async def make() -> bytes | None:
            entry = known or await self.entry(service, pod_id, TIMEOUT_S)
            if entry is None or self.is_exempt(entry.request):
                return None
            return entry.request

        for server in self._context.chain.of(stage):
            server.post(stage, make, outcome)

    def guard(self, method: str, cgroup_parent: str = "", hidden_envs: frozenset[str] = frozenset()) -> EditGuard:
        """Returns what hooks may do to a request of ``method``; the cgroup parent is kubelet's own for the pod."""
        return EditGuard(EDITABLE[method], cgroup_parent, self._context.options.foreign_parents, hidden_envs)

    def _ask(
        self, stage: CallStage, pod: bytes, guard: EditGuard, call: Call, handler: str = ""
    ) -> Awaitable[AgreedEdits | Refuse]:
        question = HookQuestion(stage, pod, POD, guard, partial(pod_name, pod), handler)
        return self._context.chain.ask(question, self._context.deadline(call))

    def _find(self, uid: str) -> PodTraits | None:
        for _, entry in self._context.cache.pods():
            if entry.uid.lower() == uid:
                return traits(entry.request)
        return None


def _pod_to_run(message: bytes) -> PodFields:
    pod = pod_to_run(message)
    _ = pod.request  # made now, and kept
    return pod


def not_cached(answer: bytes | None) -> None:
    """Ignores an object: the cache need not know everything."""


def traits(request: bytes) -> PodTraits:
    """Returns the traits of a PodSandboxHookRequest; raises MalformedMessage."""
    pod = decode(hooks.PodSandboxHookRequest, request)
    return PodTraits(pod.pod_meta.uid, pod.pod_meta.namespace, pod.labels, pod.annotations)


def _merge(pod: hooks.PodSandboxHookRequest, request: cri.UpdatePodSandboxResourcesRequest) -> None:
    if request.HasField("resources"):
        merge_update(pod.resources, request.resources)
    if request.HasField("overhead"):
        merge_update(pod.overhead, request.overhead)
