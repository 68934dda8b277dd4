"""Handles RestorePod: a sandbox and its containers out of a checkpoint, in one call without a CreateContainer.

Hook servers are asked as if the sandbox was run and then each of its containers created. Invariant: of a
restored container only ``RESTORED_CONTAINER`` is edited, and the cache changes only in commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from runtimeproxy.cri.containers import Containers
from runtimeproxy.cri.fields import RESTORED_CONTAINER, TABLES
from runtimeproxy.cri.handlercontext import Commit, Edited, HandlerContext
from runtimeproxy.cri.methods import RESTORE_POD
from runtimeproxy.cri.record import with_record
from runtimeproxy.cri.requested import with_record as with_requested
from runtimeproxy.cri.sandboxes import Decision, Sandboxes, not_cached
from runtimeproxy.cri.transcribe import PodFields, container_name, container_of, pod_to_restore, text
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.chain import AgreedEdits
from runtimeproxy.hooks.edits import Edits
from runtimeproxy.hooks.guards import EditGuard
from runtimeproxy.hooks.largemessages import LARGE_BYTES
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Call, Forward, Refuse
from runtimeproxy.wire.protowire import edit_entries, payloads

_CONFIGS = 5  # of RestorePodRequest
_RESTORED = 2  # of RestorePodResponse
_NAME, _ID = 1, 2  # of RestoredContainer; a ContainerMetadata's name is field 1 as well
_CONTAINER_META = 2  # of ContainerResourceHookRequest
_GUARD = EditGuard(frozenset(RESTORED_CONTAINER))


class Restores:
    def __init__(self, context: HandlerContext, sandboxes: Sandboxes, containers: Containers) -> None:
        self._context = context
        self._sandboxes = sandboxes
        self._containers = containers

    async def restore(self, call: Call, message: bytes, service: str) -> Decision:
        """Handles a RestorePod that is held."""
        worker, size_bytes = self._context.worker, len(message)
        pod, containers = await worker(size_bytes, partial(_read, message))
        if self._sandboxes.is_exempt(pod):
            return Forward(message), partial(self._restored, pod, {}, [(each, AgreedEdits()) for each in containers])
        agreed = await self._sandboxes.ask_to_run(RESTORE_POD, pod, call)
        if isinstance(agreed, Refuse):
            return agreed, None
        made = await worker(size_bytes, partial(pod.edited, agreed.edits))
        reports: list[Edited] = [(pod.name, agreed, agreed.edits)]
        for container in containers:
            question = container + made.in_container
            of_container = await self._containers.ask(CallStage.PRE_CREATE, question, _GUARD, call)
            if isinstance(of_container, Refuse):
                return of_container, None
            reports.append((partial(container_name, question), of_container, of_container.edits))
        own = [of_container for _, of_container, _ in reports[1:]]
        edited = await worker(size_bytes, partial(_edited, message, agreed.edits, own))
        then = partial(self._context.report, RESTORE_POD, *reports)
        made_containers = list(zip(containers, own, strict=True))
        return Forward(edited, then), partial(self._restored, made, agreed.edits, made_containers)

    def passed_restore(self, message: bytes) -> Commit:
        """Handles a RestorePod that passed. A large one is read from the runtime when it is needed."""
        if len(message) > LARGE_BYTES:
            return not_cached
        pod, containers = _read(message)
        if not self._sandboxes.is_exempt(pod):
            self._sandboxes.advise(pod)
        return partial(self._restored, pod, {}, [(each, AgreedEdits()) for each in containers])

    def _restored(
        self, pod: PodFields, edits: Edits, containers: Sequence[tuple[bytes, AgreedEdits]], answer: bytes | None
    ) -> None:
        """Keeps ``pod`` as the runtime got it, and ``containers``: hook requests as they came, with what was agreed."""
        self._sandboxes.created(pod.request, edits, answer)
        pod_ids, restored = payloads(answer or b"", 1, _RESTORED)
        id_of = {text(names): text(ids) for names, ids in (payloads(each, _NAME, _ID) for each in restored)}
        for container, own in containers:
            self._containers.remember(text(pod_ids), id_of.get(_name(container), ""), container, own)


def _read(message: bytes) -> tuple[PodFields, list[bytes]]:
    """Returns the pod of a RestorePodRequest, and the hook requests of its containers, without the pod."""
    pod = pod_to_restore(message)
    _ = pod.request  # made now, and kept
    return pod, [container_of(config)[0] for config in payloads(message, _CONFIGS)[0]]


def _name(container: bytes) -> str:
    """Returns the name of a container's hook request."""
    return text(payloads(b"".join(payloads(container, _CONTAINER_META)[0]), _NAME)[0])


def _edited(message: bytes, edits: Edits, own: Sequence[AgreedEdits]) -> bytes:
    """Returns the edited request. ``own``: each container's agreed edits. Raises MalformedMessage or EditTooLarge."""
    of_next = iter([with_requested(each.edits, each.before) for each in own])
    edited = edit_entries(message, {(_CONFIGS,): lambda config: patch.apply(config, RESTORED_CONTAINER, next(of_next))})
    edited = patch.apply(edited, TABLES[RESTORE_POD], with_record(edits))
    patch.check_size(message, edited)
    return edited
