"""An edit is counted and audited once its request has gone on."""

from __future__ import annotations

import time

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.handlercontext import HookOptions
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.hooks.directory import LoadedHookFile
from runtimeproxy.hooks.hookfile import FailurePolicy, ServerSpec
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.intercept import Call, Forward
from tests.runtimeproxy.cri.rig import V1, pod
from tests.runtimeproxy.hooks.doubles import Caller, Recorder, saying


async def test_an_edit_is_forwarded_before_it_is_reported() -> None:
    recorder = Recorder()
    said = hooks.PodSandboxHookResponse(annotations={"koordinator.sh/a": "b"})
    interceptor = CriInterceptor(
        HookOptions(version="1.0"),
        lambda path: Caller(saying(said)),
        "/run/containerd.sock",
        audit=recorder,
        metrics=recorder,
        proc="/nowhere",
    )
    interceptor.use((LoadedHookFile(ServerSpec("a.json", "/run/a", FailurePolicy.IGNORE, STAGES), (1, 1, 1)),))
    message = cri.RunPodSandboxRequest(config=pod()).SerializeToString()

    decision = await interceptor.request(Call(V1 + "RunPodSandbox", None, time.monotonic()), message)

    assert isinstance(decision, Forward)
    assert decision.message != message
    assert decision.then is not None
    assert recorder.audit == []
    decision.then()
    assert [(field, after) for _, field, _, after, _ in recorder.audit] == [("annotations[koordinator.sh/a]", "b")]
    interceptor.close()
