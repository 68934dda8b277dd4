"""Which front end acts, as a table, and what doctor says of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.http2.client import UnaryClient
from koord.pb.hooks import api_pb2 as hooks
from qosd.frontends import FrontEnd, FrontEnds
from qosd.hookserver.server import SERVICE, HookServer, listening
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import PodContext
from tests.qosd.contexts import STATUS, policy


def front_ends(connections: int, runtime: str, preferred: FrontEnd = FrontEnd.PROXY) -> FrontEnds:
    return FrontEnds(lambda: connections, lambda: runtime, preferred=preferred)


@pytest.mark.parametrize(
    ("connections", "runtime", "preferred", "acting"),
    [
        (0, "", "proxy", "reconciler"),
        (1, "", "proxy", "proxy"),
        (0, "containerd 2.1.4", "proxy", "nri"),
        (2, "containerd 2.1.4", "proxy", "proxy"),
        (2, "containerd 2.1.4", "nri", "nri"),
        (2, "", "nri", "proxy"),
        (0, "", "nri", "reconciler"),
    ],
)
def test_exactly_one_acts(connections: int, runtime: str, preferred: str, acting: str) -> None:
    both = front_ends(connections, runtime, FrontEnd(preferred))
    assert both.acting() == acting
    assert (both.proxy_acts(), both.nri_acts()) == (acting == "proxy", acting == "nri")


@pytest.mark.parametrize(
    ("connections", "runtime"), [(0, ""), (1, ""), (0, "containerd 2.1.4"), (1, "containerd 2.1.4")]
)
def test_nobody_edits_when_the_hooks_are_switched_off(connections: int, runtime: str) -> None:
    both = FrontEnds(lambda: connections, lambda: runtime, enabled=lambda: False)
    assert (both.proxy_acts(), both.nri_acts()) == (False, False)
    assert both.describe().startswith("the hooks are switched off")


@pytest.mark.parametrize(
    ("connections", "runtime", "sentence"),
    [
        (
            0,
            "",
            "no runtime proxy is connected and NRI is not registered: the reconciler alone sets containers' values",
        ),
        (1, "", "the runtime proxy (1 hook connection) edits containers while they are created; the reconciler keeps"),
        (
            2,
            "containerd 2.1.4",
            "the runtime proxy (2 hook connections) edits containers while they are created; "
            "NRI of containerd 2.1.4 is attached too and answered without edits; the reconciler keeps",
        ),
        (
            0,
            "containerd 2.1.4",
            "NRI of containerd 2.1.4 edits containers while they are created; the reconciler keeps",
        ),
    ],
)
def test_what_doctor_says(connections: int, runtime: str, sentence: str) -> None:
    assert front_ends(connections, runtime).describe().startswith(sentence)


@pytest.mark.parametrize(("acts", "quota", "result"), [(True, -1, "edited"), (False, 0, "yielded")])
async def test_a_hook_server_that_does_not_act_answers_without_edits(
    tmp_path: Path, acts: bool, quota: int, result: str
) -> None:
    seen: list[PodContext] = []
    metrics = Metrics()
    server = HookServer(lambda: (policy(), NO_LIMITS), metrics, acts=lambda: acts, seen=seen.append)
    request = hooks.PodSandboxHookRequest(annotations={STATUS: '{"cpuset":"2-3"}'})
    request.pod_meta.uid = "u"
    assert server.server.connections == 0
    async with listening(tmp_path / "hooks.sock", server):
        client = UnaryClient(str(tmp_path / "hooks.sock"), asyncio.get_running_loop())
        reply = await client.call(f"/{SERVICE}/PreRunPodSandboxHook", request.SerializeToString(), 5.0)
        assert server.server.connections == 1
        client.close()
    answer = hooks.PodSandboxHookResponse.FromString(reply.message)
    assert answer.resources.cpu_quota == quota
    assert [pod.bound_cpus for pod in seen] == ["2-3"], "the pools are told in either case"
    assert metrics.hook_calls["PreRunPodSandbox", "other", result] == 1
