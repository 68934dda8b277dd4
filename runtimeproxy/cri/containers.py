"""Handles requests about containers: asks hooks, edits the request, keeps the cache up to date.

Invariant: the cache changes only in commits, and a request about an object that neither cache nor runtime knows goes on
(the runtime answers NotFound itself).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from koord.http2.grpc import OK
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.codec import add_pod, decode
from runtimeproxy.cri.fields import SANDBOX_OF_CREATE, TABLES
from runtimeproxy.cri.handlercontext import Commit, HandlerContext, NotifyTarget, log
from runtimeproxy.cri.methods import CREATE, UPDATE
from runtimeproxy.cri.objectcache import ContainerEntry, PodEntry
from runtimeproxy.cri.rebuild import TIMEOUT_S, Rebuilder, RebuildFailed
from runtimeproxy.cri.repeats import pod_as_sent, repeats
from runtimeproxy.cri.requested import after_update, record_of, with_record
from runtimeproxy.cri.resources import meaningful, merge_update
from runtimeproxy.cri.sandboxes import Decision, Sandboxes
from runtimeproxy.cri.transcribe import PodFields, container_name, container_of, text, with_handler_of, with_id
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.chain import AgreedEdits, HookQuestion
from runtimeproxy.hooks.edits import CGROUP_PARENT, Edits, Slot
from runtimeproxy.hooks.guards import EditGuard
from runtimeproxy.hooks.largemessages import LARGE_BYTES
from runtimeproxy.hooks.messages import CONTAINER, flatten_resources
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Call, Forward, Refuse
from runtimeproxy.wire.protowire import payloads

RequestSource = Callable[[], Awaitable[hooks.ContainerResourceHookRequest | None]]
"""Makes the request of a notification; None if the object is not known or is exempt."""


class Containers:
    def __init__(self, context: HandlerContext, rebuilder: Rebuilder, sandboxes: Sandboxes) -> None:
        self._context = context
        self._rebuilder = rebuilder
        self._sandboxes = sandboxes

    async def create(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles a CreateContainer that is held."""
        worker, size_bytes = self._context.worker, len(message)
        ids, configs, sandboxes = await worker(size_bytes, partial(payloads, message, 1, 2, 3))
        pod_id = text(ids)
        entry = self._sandboxes.known(pod_id)
        if entry is None:
            entry = await self._sandbox_of(call, pod_id, service)
        request = await worker(size_bytes, partial(_CreateRequest, message, configs, sandboxes, entry))
        pod = request.pod
        if self._context.chain.of(CallStage.PRE_CREATE) and not self._sandboxes.is_exempt(pod):
            own_tree = pod.given_parent or pod.cgroup_parent
            guard = self._sandboxes.guard(CREATE, own_tree, request.hidden)
            agreed = await self.ask(CallStage.PRE_CREATE, request.question, guard, call)
        else:
            agreed = AgreedEdits()
        if isinstance(agreed, Refuse):
            return agreed, None
        edited = await worker(size_bytes, partial(request.edited, with_record(agreed.edits, agreed.before)))
        of_sandbox = (pod.name, AgreedEdits(before=request.sent), request.repeated)
        own_edits = (partial(container_name, request.question), agreed, agreed.edits)
        then = partial(self._context.report, CREATE, of_sandbox, own_edits)
        return Forward(edited, then), partial(self._created, pod_id, request.container, agreed, pod)

    async def _sandbox_of(self, call: Call, pod_id: str, service: str) -> PodEntry | None:
        """Returns the container's sandbox, None if it is not known; a failed look-up raises only under policy Fail."""
        try:
            return await self._sandboxes.entry(service, pod_id, self._context.left_s(call, TIMEOUT_S))
        except RebuildFailed as error:
            if self._context.fails_closed(CallStage.PRE_CREATE):
                raise
            log.warning("CreateContainer in sandbox %s: its edits cannot be repeated: %s", pod_id, error)
            return None

    def passed_create(self, message: bytes) -> Commit:
        """Handles a CreateContainer that passed. A large one is read from the runtime when it is needed."""
        if len(message) > LARGE_BYTES:
            return lambda answer: None
        ids, configs, sandboxes = payloads(message, 1, 2, 3)
        pod_id = text(ids)
        pod = pod_as_sent(sandboxes, self._context.cache.pod(pod_id), {})
        return partial(self._created, pod_id, container_of(b"".join(configs))[0], AgreedEdits(), pod)

    def _created(
        self, pod_id: str, container: bytes, agreed: AgreedEdits, pod: PodFields, answer: bytes | None
    ) -> None:
        container_id = text(payloads(answer or b"", 1)[0])
        cache = self._context.cache
        sandbox = cache.pod(pod_id)
        if sandbox is not None:  # kubelet sends the pod's current annotations with each container
            self._sandboxes.replace(pod_id, sandbox, with_handler_of(pod.request, sandbox.request))
        self.remember(pod_id, container_id, container, agreed)

    def remember(self, pod_id: str, container_id: str, container: bytes, agreed: AgreedEdits) -> None:
        """Keeps a container that the runtime has made, unless it is large. ``container``: its hook request without its
        pod, before the edits that were ``agreed`` on.
        """
        if container_id and len(container) <= LARGE_BYTES:
            of_pod = Slot(CGROUP_PARENT)
            made = patch.apply(
                with_id(container, container_id),
                CONTAINER.request,
                {slot: value for slot, value in agreed.edits.items() if slot != of_pod},
            )
            record = record_of(agreed.edits, agreed.before)
            self._context.cache.put_container(container_id, ContainerEntry(pod_id, made, record))

    async def update(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles an UpdateContainerResources that is held."""
        request = decode(cri.UpdateContainerResourcesRequest, message)
        container = await self._known(service, request.container_id, self._context.left_s(call, TIMEOUT_S))
        if container is None:
            return Forward(message), None
        held = flatten_resources(container.container_resources)
        _merge(container, request)
        question = container.SerializeToString()
        agreed = await self.ask(CallStage.PRE_UPDATE, question, self._sandboxes.guard(UPDATE), call)
        if isinstance(agreed, Refuse):
            return agreed, None
        edits = meaningful(agreed.edits, request.linux)
        edited = patch.apply(message, TABLES[UPDATE], edits)
        then = partial(self._context.report, UPDATE, (partial(container_name, question), agreed, edits))
        return Forward(edited, then), NotifyTarget(
            self._record_update(request.container_id, held, flatten_resources(request.linux), edits),
            partial(self._updated, decode(cri.UpdateContainerResourcesRequest, edited)),
        )

    def passed_update(self, message: bytes) -> Commit:
        """Handles an UpdateContainerResources that passed."""
        request = decode(cri.UpdateContainerResourcesRequest, message)
        entry = self._context.cache.container(request.container_id)
        container = decode(hooks.ContainerResourceHookRequest, b"" if entry is None else entry.request)
        held, asked = flatten_resources(container.container_resources), flatten_resources(request.linux)
        return NotifyTarget(self._record_update(request.container_id, held, asked, {}), partial(self._updated, request))

    def _record_update(self, container_id: str, held: Edits, asked: Edits, edits: Edits) -> Callable[[int], None]:
        """Records an update before the runtime gets it; the returned function undoes that if the update failed."""
        updates, entry = self._context.updates, self._context.cache.container(container_id)
        known = {**(entry.record if entry else {}), **updates.read(container_id)}
        changed = after_update(known, held, asked, edits)
        if not changed or (entry is not None and not known and not any(changed.values())):
            return lambda status: None
        updates.add(container_id, changed)

        def ended(status: int) -> None:
            if status != OK:
                updates.add(container_id, {field: known.get(field, ()) for field in changed})

        return ended

    def _updated(self, request: cri.UpdateContainerResourcesRequest, answer: bytes | None) -> None:
        """Keeps an update that the runtime has made."""
        cache = self._context.cache
        entry = cache.container(request.container_id)
        if entry is not None:
            container = decode(hooks.ContainerResourceHookRequest, entry.request)
            _merge(container, request)
            cache.put_container(request.container_id, replace(entry, request=container.SerializeToString()))

    async def start(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles a StartContainer: hooks may only refuse."""
        container_id = decode(cri.StartContainerRequest, message).container_id
        container = await self._known(service, container_id, self._context.left_s(call, TIMEOUT_S))
        if container is not None:
            agreed = await self.ask(CallStage.PRE_START, container.SerializeToString(), EditGuard(frozenset()), call)
            if isinstance(agreed, Refuse):
                return agreed, None
        return Forward(message), self.started(message, service)

    def started(self, message: bytes, service: str) -> Commit:
        container_id = decode(cri.StartContainerRequest, message).container_id
        return NotifyTarget(partial(self._notify_of, CallStage.POST_START, service, container_id))

    def stopped(self, message: bytes, service: str) -> Commit:
        container_id = decode(cri.StopContainerRequest, message).container_id
        return NotifyTarget(partial(self._notify_of, CallStage.POST_STOP, service, container_id))

    def removed(self, message: bytes, service: str) -> Commit:
        """Handles a removal: the container is gone with the answer, so post hooks get what the cache has now."""
        container_id = decode(cri.RemoveContainerRequest, message).container_id
        entry = self._context.cache.container(container_id)

        def tell(outcome: int) -> None:
            if entry is not None:
                self._notify(CallStage.POST_REMOVE, self._current_request(service, entry), outcome)

        def forget(answer: bytes | None) -> None:
            self._context.cache.remove_container(container_id)
            self._context.updates.remove(container_id)

        return NotifyTarget(tell, forget)

    async def _known(
        self, service: str, container_id: str, timeout_s: float
    ) -> hooks.ContainerResourceHookRequest | None:
        """Returns the container with its pod; None if it is not known or is exempt. Raises RebuildFailed."""
        cache = self._context.cache
        entry = cache.container(container_id)
        if entry is None and container_id:
            entry = await self._rebuilder.container(service, container_id, timeout_s)
            if entry is not None:
                cache.put_container(container_id, entry)
        return None if entry is None else await self._with_pod(service, entry, timeout_s)

    def _current_request(self, service: str, entry: ContainerEntry) -> RequestSource:
        """Returns the source of container and pod as they are now: both may be gone when a slow server gets them."""
        return partial(self._with_pod, service, entry, TIMEOUT_S, self._sandboxes.known(entry.pod_id))

    async def _with_pod(
        self, service: str, entry: ContainerEntry, timeout_s: float, sandbox: PodEntry | None = None
    ) -> hooks.ContainerResourceHookRequest | None:
        container = decode(hooks.ContainerResourceHookRequest, entry.request)
        if sandbox is None:
            sandbox = await self._sandboxes.entry(service, entry.pod_id, timeout_s)
        if sandbox is not None:
            if self._sandboxes.is_exempt(sandbox.request):
                return None
            add_pod(container, decode(hooks.PodSandboxHookRequest, sandbox.request))
        return container

    def _notify_of(self, stage: CallStage, service: str, container_id: str, outcome: int) -> None:
        """Notifies post hooks of a container; asks the runtime for it only if the cache lacks it."""
        entry = self._context.cache.container(container_id)
        from_runtime = partial(self._known, service, container_id, TIMEOUT_S)
        self._notify(stage, from_runtime if entry is None else self._current_request(service, entry), outcome)

    def _notify(self, stage: CallStage, source: RequestSource, outcome: int) -> None:
        async def make() -> bytes | None:
            container = await source()
            return None if container is None else container.SerializeToString()

        for server in self._context.chain.of(stage):
            server.post(stage, make, outcome)

    def ask(self, stage: CallStage, container: bytes, guard: EditGuard, call: Call) -> Awaitable[AgreedEdits | Refuse]:
        """Asks about ``container``, its hook request, with its pod."""
        question = HookQuestion(stage, container, CONTAINER, guard, partial(container_name, container))
        return self._context.chain.ask(question, self._context.deadline(call))


class _CreateRequest:
    """A CreateContainerRequest, the question about it, and its edited form.

    ``repeated``: the edits of its sandbox, to be repeated; ``sent``: the values in their place; ``container``: the
    question without its pod; ``hidden``: names of variables that servers do not see.
    """

    def __init__(self, message: bytes, configs: list[bytes], sandboxes: list[bytes], entry: PodEntry | None) -> None:
        self._message = message
        self.repeated, self.sent = repeats(message, bool(sandboxes), entry)
        self.pod = pod_as_sent(sandboxes, entry, self.repeated)
        self.container, self.hidden = container_of(b"".join(configs))
        self.question = self.container + self.pod.in_container

    def edited(self, edits: Edits) -> bytes:
        """Returns the request as it goes on. Raises MalformedMessage or EditTooLarge."""
        repeated = patch.apply(self._message, SANDBOX_OF_CREATE, self.repeated)
        return patch.apply(repeated, TABLES[CREATE], edits)


def _merge(container: hooks.ContainerResourceHookRequest, request: cri.UpdateContainerResourcesRequest) -> None:
    if request.HasField("linux"):
        merge_update(container.container_resources, request.linux)
    container.container_annotations.update(request.annotations)
