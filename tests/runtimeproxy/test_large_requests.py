"""Requests that are costly to look at: in a thread where they are large, and not at all past a bound."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from koord.http2.client import UnaryError
from koord.http2.grpc import RESOURCE_EXHAUSTED
from koord.pb.cri import api_pb2 as cri
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.hooks.largemessages import LARGE_BYTES, LargeMessageWorker
from runtimeproxy.wire.protowire import MAX_FIELDS, TooManyFields, gather, int_field, spans
from tests.runtimeproxy.cri.rig import V1, container, pod
from tests.runtimeproxy.faultrig import DEADLINE_S, running

FIELD = int_field(1, 1)


def create(variables: int) -> cri.CreateContainerRequest:
    """As kubelet asks for a container in a namespace with so many variables of services."""
    config = container()
    for number in range(variables):
        config.envs.add(key=f"SVC_{number}_SERVICE_HOST", value=b"10.0.0.1")
    return cri.CreateContainerRequest(pod_sandbox_id="p", config=config, sandbox_config=pod())


@pytest.mark.parametrize(
    ("size_bytes", "apart"), [(0, False), (LARGE_BYTES, False), (LARGE_BYTES + 1, True), (16 << 20, True)]
)
async def test_large_work_is_done_in_one_thread_beside_the_loop(size_bytes: int, apart: bool) -> None:
    work = LargeMessageWorker()
    threads = {await work(size_bytes, threading.current_thread) for _ in range(3)}
    work.close()
    assert len(threads) == 1
    assert (threading.current_thread() not in threads) is apart


async def test_what_the_work_raises_is_raised() -> None:
    work = LargeMessageWorker()
    for size_bytes in (1, LARGE_BYTES + 1):
        with pytest.raises(ZeroDivisionError):
            await work(size_bytes, lambda: 1 // 0)
    work.close()


@pytest.mark.parametrize(("fields", "fits"), [(MAX_FIELDS, True), (MAX_FIELDS + 1, False)])
def test_a_message_is_read_up_to_a_number_of_fields(fields: int, fits: bool) -> None:
    message = FIELD * fields
    for read in (lambda: gather(message, {}), lambda: list(spans(message))):
        if fits:
            read()
        else:
            with pytest.raises(TooManyFields):
                read()


@pytest.mark.parametrize("variables", [10, 10_000])
async def test_a_container_with_the_variables_of_many_services_is_edited(variables: int, tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.call("RunPodSandbox", cri.RunPodSandboxRequest(config=pod()))
        request = create(variables)
        outcome = await node.call("CreateContainer", request)
    got = outcome.received[0].config
    assert outcome.refused is None
    assert got.linux.resources.cpu_shares == 7
    sent = {each.key: each.value for each in request.config.envs}
    assert {each.key: each.value for each in got.envs} == sent | {"LANG": b"en", "NEW": b"1"}


@pytest.mark.parametrize("policy", FailurePolicy)
async def test_too_many_fields_are_not_edited(policy: FailurePolicy, tmp_path: Path) -> None:
    logging.getLogger("koord.relay").setLevel(logging.CRITICAL)
    message = FIELD * (MAX_FIELDS + 1)
    refused: UnaryError | None = None
    async with running(tmp_path, policy) as node:
        try:
            await node.client.call(V1 + "CreateContainer", message, DEADLINE_S)
        except UnaryError as error:
            refused = error
        received = [got for path, got in node.received if path.endswith("CreateContainer")]
        await node.client.call(V1 + "Version", b"", DEADLINE_S)
        reasons = dict(node.relay.metrics.fail_open)
    logging.getLogger("koord.relay").setLevel(logging.NOTSET)
    assert reasons == {"too many fields": 1}
    if policy is FailurePolicy.FAIL:
        assert refused is not None
        assert (refused.code, received) == (RESOURCE_EXHAUSTED, [])
    else:
        assert (refused, received) == (None, [message])
