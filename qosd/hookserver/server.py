"""RuntimeHookService: a hook call in, the engine's edits out.

The caller decides the form of the answer (see ``translate``): our proxy says so in the call's metadata. A value that
can be told from the runtime's only by an annotation (a normalized quota) is not edited in an update, whose annotations
no runtime keeps: the runtime then stores kubelet's value, and the reconciler replaces it. Invariant: no pod can make a
call fail. Bad annotations are logged and treated as absent; an error of our own is logged and answered with "no edits"
in the caller's form.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from koord.http2.server import Method, ServerReply, UnaryServer
from koord.pb.hooks import api_pb2 as hooks
from qosd import serving
from qosd.accounting import account
from qosd.hooks import engine
from qosd.hooks.edits import Edits
from qosd.hookserver import translate
from qosd.metrics import Metrics
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import HookStage, PodContext, RuntimeRequest
from qosd.model.policy import EffectivePolicy
from qosd.originals import OriginalsRecorder

SERVICE = "runtime.v1alpha1.RuntimeHookService"
SOCKET_MODE = 0o660
PROXY_METADATA = b"koord-runtime-proxy"  # request metadata of our proxy; the value is its version
RESTORES_METADATA = b"koord-restores-status"
"""The metadata of a proxy that gives kubelet back its request of a container. (kubelet reads nothing back of a
sandbox.)"""
PRESENCE = (("koord-presence", "1"),)  # initial metadata of a sparse answer
_KOORD, _ECHO = "koord", "other"

SANDBOX_STAGES = {
    "PreRunPodSandboxHook": HookStage.RUN_SANDBOX,
    "PreUpdatePodSandboxResourcesHook": HookStage.UPDATE_SANDBOX,
    "PostStopPodSandboxHook": None,
    "PreRemoveRunPodSandboxHook": None,
}
CONTAINER_STAGES = {
    "PreCreateContainerHook": HookStage.CREATE,
    "PreUpdateContainerResourcesHook": HookStage.UPDATE,
    "PreStartContainerHook": None,
    "PostStartContainerHook": None,
    "PostStopContainerHook": None,
    "PostRemoveContainerHook": None,
}
REGISTERED = tuple(
    name.removesuffix("Hook") for table in (SANDBOX_STAGES, CONTAINER_STAGES) for name, stage in table.items() if stage
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Form:
    """How one of the two request kinds is read and answered."""

    parse: Callable[[bytes], Any]
    read: Callable[[Any, HookStage], RuntimeRequest]
    sparse: Callable[[Edits], Message]
    echo: Callable[[Any, Edits], Message]


@dataclass(frozen=True, slots=True)
class _Decision:
    """``acts``: False where another front end edits."""

    pod: PodContext
    edits: Edits
    acts: bool


_SANDBOX = _Form(
    hooks.PodSandboxHookRequest.FromString,
    translate.sandbox_request,
    translate.sparse_sandbox,
    translate.echo_sandbox,
)
_CONTAINER = _Form(
    hooks.ContainerResourceHookRequest.FromString,
    translate.container_request,
    translate.sparse_container,
    translate.echo_container,
)


class HookServer:
    """Answers hook calls by the policy and the limits that ``policy()`` and ``limits()`` return at that moment;
    ``clock`` is monotonic seconds.

    Where ``acts()`` is false, another front end edits, and every answer is "no edits". ``seen`` is told, once it is
    answered, of each pod whose sandbox is about to be made; ``room_for``, asked with the UID of each pod that is about
    to get a container, returns the event that this container alone waits for (see ``qosd.startgate``). ``originals``
    notes the values that a container's edits replace, before they are answered; None = they are not needed.
    ``as_listed`` adds the pod list's facts to a request.
    """

    def __init__(
        self,
        in_force: Callable[[], tuple[EffectivePolicy, BestEffortLimits]],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        acts: Callable[[], bool] = lambda: True,
        seen: Callable[[PodContext], None] = lambda pod: None,
        room_for: Callable[[str], Awaitable[object] | None] = lambda uid: None,
        originals: OriginalsRecorder | None = None,
        as_listed: Callable[[RuntimeRequest], RuntimeRequest] = lambda request: request,
    ) -> None:
        self._in_force, self._metrics, self._clock = in_force, metrics, clock
        self._acts, self._seen, self._room_for, self._originals = acts, seen, room_for, originals
        self._as_listed = as_listed
        self.server = UnaryServer(self.methods())

    def methods(self) -> dict[str, Method]:
        """Returns the protocol's methods by path; stages without a hook answer "no edits"."""
        rows = [(_SANDBOX, name, stage) for name, stage in SANDBOX_STAGES.items()]
        rows += [(_CONTAINER, name, stage) for name, stage in CONTAINER_STAGES.items()]
        return {f"/{SERVICE}/{name}": self._method(form, name, stage) for form, name, stage in rows}

    def _method(self, form: _Form, name: str, stage: HookStage | None) -> Method:
        seconds = self._metrics.hook_seconds[name.removesuffix("Hook")]

        def handle(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply | Awaitable[ServerReply]:
            started = self._clock()
            request = form.parse(message)
            room = self._room_for(request.pod_meta.uid) if stage is HookStage.CREATE else None
            if room is not None:
                return once_there_is(room, request, fields, started)
            return answer(request, fields, started)

        async def once_there_is(
            room: Awaitable[object], request: Any, fields: Mapping[bytes, bytes], started: float
        ) -> ServerReply:
            await room
            return answer(request, fields, started)

        def answer(request: Any, fields: Mapping[bytes, bytes], started: float) -> ServerReply:
            ours = PROXY_METADATA in fields
            caller = _KOORD if ours else _ECHO
            restores = form is _SANDBOX or RESTORES_METADATA in fields
            message, decision = self._answer(form, request, stage, ours, restores)
            took_s = self._clock() - started

            def after() -> None:
                seconds.observe(took_s)
                if decision is not None:
                    self._follow(decision, caller)
                elif stage is not None:
                    self._metrics.hook_calls[stage.value, caller, "error"] += 1

            return ServerReply(message, PRESENCE if ours else (), after)

        return handle

    def _answer(
        self, form: _Form, request: Any, stage: HookStage | None, sparse: bool, restores: bool
    ) -> tuple[bytes, _Decision | None]:
        """Returns the encoded answer and its decision; None = no edits, without a hook or after an error of ours."""
        spell = form.sparse if sparse else partial(form.echo, request)
        try:
            if stage is not None:
                decision = self._decide(PodContext.read(self._as_listed(form.read(request, stage))), restores)
                message = spell(decision.edits).SerializeToString()
                if decision.acts and self._originals is not None:
                    self._note(self._originals, request, stage, decision.edits)
                return message, decision
        except Exception:  # noqa: BLE001 - the root of a call: our own error must not stop a pod from starting
            pod = request.pod_meta
            _log.exception("%s of %s/%s: answered without edits", stage, pod.namespace, pod.name)
        return spell(Edits()).SerializeToString(), None

    def _decide(self, pod: PodContext, restores: bool) -> _Decision:
        if not self._acts():
            return _Decision(pod, Edits(problems=pod.problems), acts=False)
        policy, limits = self._in_force()
        edits = engine.carried(engine.decide_call(pod, policy, limits), policy, restores=restores)
        return _Decision(pod, edits.without_annotating if pod.stage is HookStage.UPDATE else edits, acts=True)

    @staticmethod
    def _note(originals: OriginalsRecorder, request: Any, stage: HookStage, edits: Edits) -> None:
        if stage not in (HookStage.CREATE, HookStage.UPDATE):
            return
        requested, key = translate.requested(request.container_resources), translate.key_of(request)
        if stage is HookStage.CREATE:
            originals.created(key, originals.replaced(requested, requested.edited(edits)))
        else:
            originals.updated(key, requested, requested.edited(edits))

    def _follow(self, decision: _Decision, caller: str) -> None:
        """Counts the decision, and follows the pod, once the answer is on its way."""
        if decision.pod.stage is HookStage.RUN_SANDBOX:
            self._seen(decision.pod)
        account(self._metrics, decision.pod, decision.edits, caller, acts=decision.acts)


def listening(path: Path, hooks: HookServer) -> AbstractAsyncContextManager[None]:
    """Serves on a unix socket of mode 0660. Raises SocketTaken or OSError."""
    return serving.listening(path, SOCKET_MODE, hooks.server)
