"""RuntimeHookService: a hook call in, the engine's edits out.

Who calls decides the form of the answer (see ``translate``): our proxy says so in the call's metadata. What needs an
annotation to know its own value again (a normalized quota) is not edited in an update, whose annotations no runtime
keeps: the runtime then stores what kubelet asks, and the reconciler makes the value of it. Invariant: no pod can make
a call fail. Bad annotations are logged and treated as absent; an error of our own is logged and answered with "no
edits" in the caller's form.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from msgspec.structs import replace

from koord.host.asked import Given
from koord.http2.server import Method, Reply, UnaryServer
from koord.pb.hooks import api_pb2 as hooks
from qosd import serving
from qosd.accounting import account
from qosd.asking import Asking
from qosd.hooks import engine
from qosd.hooks.context import PodContext, Request, Stage
from qosd.hooks.edits import Edits
from qosd.hooks.rules import Rules
from qosd.hookserver import translate
from qosd.hookserver.remembered import NOTHING, Decision, Remembered
from qosd.hookserver.translate import Traits
from qosd.metrics import Metrics

SERVICE = "runtime.v1alpha1.RuntimeHookService"
SOCKET_MODE = 0o660
PROXY_METADATA = b"koord-runtime-proxy"  # request metadata of our proxy; the value is its version
PRESENCE = (("koord-presence", "1"),)  # initial metadata of a sparse answer
_KOORD, _ECHO = "koord", "other"
MAX_REMEMBERED_CHARS = 4096  # of what a pod says

SANDBOX_STAGES = {
    "PreRunPodSandboxHook": Stage.RUN_SANDBOX,
    "PreUpdatePodSandboxResourcesHook": Stage.UPDATE_SANDBOX,
    "PostStopPodSandboxHook": None,
    "PreRemoveRunPodSandboxHook": None,
}
CONTAINER_STAGES = {
    "PreCreateContainerHook": Stage.CREATE,
    "PreUpdateContainerResourcesHook": Stage.UPDATE,
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
    traits: Callable[[Any], Traits]
    read: Callable[[Any, Stage, Traits], Request]
    sparse: Callable[[Edits], Message]
    echo: Callable[[Any, Edits], Message]


_SANDBOX = _Form(
    hooks.PodSandboxHookRequest.FromString,
    translate.sandbox_traits,
    translate.sandbox_request,
    translate.sparse_sandbox,
    translate.echo_sandbox,
)
_CONTAINER = _Form(
    hooks.ContainerResourceHookRequest.FromString,
    translate.container_traits,
    translate.container_request,
    translate.sparse_container,
    translate.echo_container,
)


def _now(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


class HookServer:
    """Answers hook calls by the rules that ``rules()`` returns at that moment; ``clock`` is monotonic seconds.

    ``later`` runs what nobody waits for (counting, logging), by default at once. Where ``acts()`` is false, another
    front end edits, and every answer is "no edits". ``seen`` is told, once it is answered, of each pod whose sandbox is
    about to be made; ``room_for``, asked with the UID of each pod of which a container is about to be made, gives what
    that container alone has to wait for (see ``qosd.arrivals``). ``asking`` notes what a container's edits replace,
    before they are answered; None = nobody will want to know.
    """

    def __init__(
        self,
        rules: Callable[[], Rules],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[..., object] = _now,
        acts: Callable[[], bool] = lambda: True,
        seen: Callable[[PodContext], None] = lambda pod: None,
        room_for: Callable[[str], Awaitable[object] | None] = lambda uid: None,
        asking: Asking | None = None,
    ) -> None:
        self._asking, self._remembered = asking, Remembered()
        self._rules, self._metrics, self._clock, self._later = rules, metrics, clock, later
        self._acts, self._seen, self._room_for = acts, seen, room_for
        self.server = UnaryServer(self.methods())

    def methods(self) -> dict[str, Method]:
        """The protocol's methods by path; stages without a hook answer "no edits"."""
        rows = [(_SANDBOX, name, stage) for name, stage in SANDBOX_STAGES.items()]
        rows += [(_CONTAINER, name, stage) for name, stage in CONTAINER_STAGES.items()]
        return {f"/{SERVICE}/{name}": self._method(form, name, stage) for form, name, stage in rows}

    def _method(self, form: _Form, name: str, stage: Stage | None) -> Method:
        seconds = self._metrics.hook_seconds.labels(name.removesuffix("Hook"))

        def handle(message: bytes, fields: Mapping[bytes, bytes]) -> Reply | Awaitable[Reply]:
            started = self._clock()
            request = form.parse(message)
            room = self._room_for(request.pod_meta.uid) if stage is Stage.CREATE else None
            if room is not None:
                return once_there_is(room, request, fields, started)
            return answer(request, fields, started)

        async def once_there_is(
            room: Awaitable[object], request: Any, fields: Mapping[bytes, bytes], started: float
        ) -> Reply:
            await room
            return answer(request, fields, started)

        def answer(request: Any, fields: Mapping[bytes, bytes], started: float) -> Reply:
            ours = PROXY_METADATA in fields
            caller = _KOORD if ours else _ECHO
            decision = NOTHING if stage is None else self._decide(form, request, stage, caller)
            message = decision.sparse if ours else form.echo(request, decision.edits).SerializeToString()
            took_s = self._clock() - started

            def after() -> None:
                self._later(seconds.observe, took_s)
                if stage is not None and decision is not NOTHING:
                    self._follow(form, request, stage, decision, caller)

            return Reply(message, PRESENCE if ours else (), after)

        return handle

    def _decide(self, form: _Form, request: Any, stage: Stage, caller: str) -> Decision:
        try:
            decision = self._decision(form, request, stage)
            if decision.acts and self._asking is not None:
                self._note(self._asking, request, stage, decision)
        except Exception:  # noqa: BLE001 - the root of a call: our own error must not stop a pod from starting
            _log.exception(
                "%s of %s/%s: answered without edits", stage.value, request.pod_meta.namespace, request.pod_meta.name
            )
            self._metrics.hook_calls.labels(stage.value, caller, "error").inc()
            return NOTHING
        return decision

    def _follow(self, form: _Form, request: Any, stage: Stage, decision: Decision, caller: str) -> None:
        """Once the answer is on its way."""
        if stage is Stage.RUN_SANDBOX:
            self._seen(_pod_of(form, request, stage, decision))
        self._later(self._account, form, request, stage, decision, caller)

    def _account(self, form: _Form, request: Any, stage: Stage, decision: Decision, caller: str) -> None:
        pod = _pod_of(form, request, stage, decision)
        account(self._metrics, pod, decision.edits, caller, acts=decision.acts)

    def _decision(self, form: _Form, request: Any, stage: Stage) -> Decision:
        """The decision on such a call, from memory or made now."""
        traits, acts, rules, asking = form.traits(request), self._acts(), self._rules(), self._asking
        key = (stage, traits, acts, None if asking is None else asking.spelling)
        found = self._remembered.get(key, rules)
        if found is None:
            pod = PodContext.read(form.read(request, stage, traits))
            edits = engine.decide_call(pod, rules) if acts else Edits(problems=pod.problems)
            if stage is Stage.UPDATE:
                edits = edits.without_annotating
            replaced: dict[str, Given] = {}
            if asking is not None and stage is Stage.CREATE:
                asked = translate.requested(request.container_resources)
                replaced = asking.replaced(asked, asked.edited(edits))
            found = Decision(pod, edits, form.sparse(edits).SerializeToString(), replaced, acts)
            if traits.size_chars <= MAX_REMEMBERED_CHARS:
                self._remembered.put(key, found)
        return found

    @staticmethod
    def _note(asking: Asking, request: Any, stage: Stage, decision: Decision) -> None:
        if stage is Stage.CREATE:
            asking.created(translate.which(request), decision.replaced)
        elif stage is Stage.UPDATE:
            asked = translate.requested(request.container_resources)
            asking.updated(translate.which(request), asked, asked.edited(decision.edits))


def _pod_of(form: _Form, request: Any, stage: Stage, decision: Decision) -> PodContext:
    """The pod that the decision is about now."""
    return replace(decision.pod, request=form.read(request, stage, form.traits(request)))


def listening(path: Path, hooks: HookServer) -> AbstractAsyncContextManager[None]:
    """Serve on a unix socket of mode 0660. Raises SocketTaken or OSError."""
    return serving.listening(path, SOCKET_MODE, hooks.server)
