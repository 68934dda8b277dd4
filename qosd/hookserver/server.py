"""RuntimeHookService: a hook call in, the engine's edits out.

Who calls decides the form of the answer (see ``translate``): our proxy says so in the call's metadata. Invariant:
no pod can make a call fail. Bad annotations are logged and treated as absent; an error of our own is logged and
answered with "no edits" in the caller's form.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from koord.pb.hooks import api_pb2 as hooks
from koord.service import rpc
from qosd.hooks import engine
from qosd.hooks.context import PodContext, Request, Stage
from qosd.hooks.edits import Edits
from qosd.hooks.rules import Rules
from qosd.hookserver import translate
from qosd.metrics import Metrics

SERVICE = "runtime.v1alpha1.RuntimeHookService"
PROXY_METADATA = "koord-runtime-proxy"  # request metadata of our proxy; the value is its version
PRESENCE = (("koord-presence", "1"),)  # initial metadata of a sparse answer
_KOORD, _ECHO = "koord", "other"

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

    read: Callable[[Any, Stage], Request]
    sparse: Callable[[Edits], Message]
    echo: Callable[[Any, Edits], Message]


_SANDBOX = _Form(translate.sandbox_request, translate.sparse_sandbox, translate.echo_sandbox)
_CONTAINER = _Form(translate.container_request, translate.sparse_container, translate.echo_container)


class HookServer:
    """Answers hook calls by the rules that ``rules()`` returns at that moment; ``clock`` is monotonic seconds."""

    def __init__(
        self, rules: Callable[[], Rules], metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules, self._metrics, self._clock = rules, metrics, clock

    def service(self) -> grpc.GenericRpcHandler:
        """The gRPC service with all methods of the protocol; stages without a hook answer "no edits"."""
        methods = {
            name: rpc.Unary(
                self._handler(_SANDBOX, name, stage), hooks.PodSandboxHookRequest, hooks.PodSandboxHookResponse
            )
            for name, stage in SANDBOX_STAGES.items()
        } | {
            name: rpc.Unary(
                self._handler(_CONTAINER, name, stage),
                hooks.ContainerResourceHookRequest,
                hooks.ContainerResourceHookResponse,
            )
            for name, stage in CONTAINER_STAGES.items()
        }
        return rpc.service(SERVICE, methods)

    def _handler(self, form: _Form, name: str, stage: Stage | None) -> Callable[[Any, rpc.Context], Any]:
        async def handle(request: Any, context: rpc.Context) -> Message:
            ours = any(key == PROXY_METADATA for key, _ in context.invocation_metadata() or ())
            started = self._clock()
            edits = Edits() if stage is None else self._decide(form, request, stage, _KOORD if ours else _ECHO)
            if ours:
                await context.send_initial_metadata(PRESENCE)
            answer = form.sparse(edits) if ours else form.echo(request, edits)
            self._metrics.hook_seconds.labels(name.removesuffix("Hook")).observe(self._clock() - started)
            return answer

        return handle

    def _decide(self, form: _Form, request: Any, stage: Stage, caller: str) -> Edits:
        try:
            pod = PodContext.read(form.read(request, stage))
            edits = engine.decide(pod, self._rules())
        except Exception:  # noqa: BLE001 - the root of a call: our own error must not stop a pod from starting
            _log.exception(
                "%s of %s/%s: answered without edits", stage.value, request.pod_meta.namespace, request.pod_meta.name
            )
            self._metrics.hook_calls.labels(stage.value, caller, "error").inc()
            return Edits()
        self._account(pod, edits, caller)
        return edits

    def _account(self, pod: PodContext, edits: Edits, caller: str) -> None:
        for problem in edits.problems:
            _log.warning("%s: %s", pod, problem)
        self._metrics.pod_problems.labels(pod.stage.value).inc(len(edits.problems))
        for edit in edits.items:
            self._metrics.hook_edits.labels(edit.hook, edit.field.value).inc()
            _log.debug("%s: %s: %s = %r: %s", pod, edit.hook, edit.name, edit.value, edit.why)
        result = "edited" if edits.items else "unchanged"
        self._metrics.hook_calls.labels(pod.stage.value, caller, result).inc()
