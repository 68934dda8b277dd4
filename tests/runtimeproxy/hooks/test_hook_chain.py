"""Servers in a row: order, conflicts, policies, time, and what must not be asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.hooks.breaker import FAILURES
from runtimeproxy.hooks.chain import AgreedEdits, Chain, HookQuestion
from runtimeproxy.hooks.client import MAX_REASON, HookClient, HookFailed
from runtimeproxy.hooks.edits import ANNOTATIONS, CPUSETS, ENVS, RESOURCE_FIELDS, Slot
from runtimeproxy.hooks.guards import EditGuard
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.hooks.messages import CONTAINER
from runtimeproxy.hooks.posts import POST_QUEUE
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.intercept import Refuse
from tests.fakes.clock import Clock
from tests.runtimeproxy.hooks.doubles import (
    Handler,
    Recorder,
    failing,
    garbage,
    hanging,
    koordlet,
    saying,
    server,
)
from tests.support.waiting import HANG_S

OWNED = frozenset({ANNOTATIONS, ENVS, *RESOURCE_FIELDS})
QUOTA, SHARES = Slot("cpu_quota"), Slot("cpu_shares")


def question(stage: CallStage = CallStage.PRE_CREATE, owned: frozenset[str] = OWNED) -> HookQuestion:
    request = hooks.ContainerResourceHookRequest(
        container_annotations={"io.kubernetes.container.hash": "1", "note": "x"},
        container_resources=hooks.LinuxContainerResources(cpu_period=100_000, cpu_shares=2, cpuset_cpus="0-7"),
        container_envs={"A": b"1"},
    )
    return HookQuestion(
        stage, request.SerializeToString(), CONTAINER, EditGuard(owned), lambda: "container ns/pod/main"
    )


def resources(**fields: Any) -> hooks.ContainerResourceHookResponse:
    return hooks.ContainerResourceHookResponse(container_resources=hooks.LinuxContainerResources(**fields))


async def asked(
    *servers: HookClient,
    recorder: Recorder,
    ask: HookQuestion | None = None,
    deadline: float | None = None,
    clock: Callable[[], float] | None = None,
) -> AgreedEdits | Refuse:
    return await Chain(servers, recorder, clock or Clock().now).ask(ask or question(), deadline)


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (failing(14), "error"),
        (failing(13), "error"),
        (failing(4), "timeout"),
        (hanging, "timeout"),
        (garbage, "undecodable"),
    ],
)
@pytest.mark.parametrize("policy", list(FailurePolicy))
async def test_a_failing_server(handler: Handler, result: str, policy: FailurePolicy) -> None:
    recorder = Recorder()
    bad = server(handler, recorder, "bad.json", policy, timeout_s=0.02)
    good = server(saying(resources(cpu_shares=7)), recorder, "good.json")
    outcome = await asked(bad, good, recorder=recorder)
    assert ("call", "bad.json", "PreCreateContainer", result) in recorder.counted
    if policy is FailurePolicy.FAIL:
        assert isinstance(outcome, Refuse)
        assert outcome.code == 14
        assert outcome.message.startswith("hook server bad.json: ")
        assert ("policy", "bad.json", "refused") in recorder.counted
    else:
        assert isinstance(outcome, AgreedEdits)
        assert outcome.edits == {SHARES: 7}
        assert ("policy", "bad.json", "ignored") in recorder.counted


async def test_unimplemented_is_no_opinion_under_any_policy() -> None:
    recorder = Recorder()
    outcome = await asked(server(failing(12), recorder, policy=FailurePolicy.FAIL), recorder=recorder)
    assert isinstance(outcome, AgreedEdits)
    assert outcome.edits == {}
    assert ("call", "a.json", "PreCreateContainer", "unimplemented") in recorder.counted


async def test_hanging_servers_together_cost_no_more_than_the_deadline() -> None:
    recorder = Recorder()
    servers = [server(hanging, recorder, f"{name}.json", timeout_s=0.1, clock=time.monotonic) for name in "abc"]
    begun = time.monotonic()
    await asked(*servers, recorder=recorder, deadline=begun + 0.15, clock=time.monotonic)
    assert 0.14 < time.monotonic() - begun < 1.0
    assert [entry[3] for entry in recorder.counted if entry[0] == "call"] == ["timeout"] * 3


async def test_without_time_left_policy_fail_refuses() -> None:
    recorder = Recorder()
    clock = Clock()
    outcome = await asked(
        server(koordlet(), recorder, policy=FailurePolicy.FAIL),
        recorder=recorder,
        deadline=clock.now() - 1,
        clock=clock.now,
    )
    assert isinstance(outcome, Refuse)


async def test_a_server_that_keeps_failing_is_not_waited_for() -> None:
    recorder = Recorder()
    bad = server(failing(), recorder)
    for _ in range(FAILURES + 3):
        await asked(bad, recorder=recorder)
    assert len(bad._caller.asked) == FAILURES  # type: ignore[attr-defined]
    assert ("call", "a.json", "PreCreateContainer", "open") in recorder.counted


@pytest.mark.parametrize(
    ("handler", "is_down"),
    [
        *((failing(code), False) for code in (2, 3, 5, 9, 12, 13)),
        (failing(14), True),
        (failing(4), True),
        (hanging, True),
        (garbage, True),
    ],
)
async def test_only_a_server_that_is_down_is_left_unasked(handler: Handler, is_down: bool) -> None:
    """One that refuses a pod is up, and the pods of others must not pay for that one."""
    recorder = Recorder()
    one = server(handler, recorder, timeout_s=0.005)
    for _ in range(FAILURES + 3):
        await asked(one, recorder=recorder)
    assert (("call", "a.json", "PreCreateContainer", "open") in recorder.counted) == is_down


async def _unread(answer: bytes) -> bytes:
    return answer


@pytest.mark.parametrize(
    ("handler", "outcome"), [(failing(14), "open"), (failing(4), "ok"), (hanging, "ok"), (garbage, "ok")]
)
async def test_a_stage_that_hangs_takes_no_other_with_it_but_a_server_that_is_gone_does(
    handler: Handler, outcome: str
) -> None:
    recorder = Recorder()
    one = server(handler, recorder, timeout_s=0.005)
    for _ in range(FAILURES):
        await asked(one, recorder=recorder)
    one._caller.handler = koordlet()  # type: ignore[attr-defined]
    with suppress(HookFailed):
        await one.ask(CallStage.PRE_UPDATE, b"", 1.0, _unread)
    assert recorder.counted[-1] == ("call", "a.json", "PreUpdateContainerResources", outcome)


async def test_a_server_that_was_given_less_than_its_time_is_not_down() -> None:
    recorder, clock = Recorder(), Clock()
    slow = server(hanging, recorder, timeout_s=1.0, clock=clock.now)
    for _ in range(FAILURES + 3):
        await asked(slow, recorder=recorder, deadline=clock.now() + 0.005, clock=clock.now)
    assert [entry[3] for entry in recorder.counted if entry[0] == "call"] == ["timeout"] * (FAILURES + 3)


async def test_a_server_s_words_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    outcome = await asked(server(failing(2, "x" * 20_000), Recorder(), policy=FailurePolicy.FAIL), recorder=Recorder())
    assert isinstance(outcome, Refuse)
    assert outcome.message == f"hook server a.json: {'x' * MAX_REASON}… (code 2)"
    assert len(caplog.text) < 2 * MAX_REASON


async def test_a_cancelled_question_is_no_failure() -> None:
    recorder = Recorder()
    slow = server(hanging, recorder)
    for _ in range(FAILURES + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asked(slow, recorder=recorder)
    assert recorder.counted == []


async def test_each_server_sees_what_the_one_before_made_of_the_request() -> None:
    recorder = Recorder()
    seen: list[tuple[int, bytes]] = []

    def second(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
        seen.append((request.container_resources.cpu_quota, request.container_envs["NEW"]))
        said.container_resources.cpu_shares = 512

    first = resources(cpu_quota=-1)
    first.container_envs["NEW"] = b"yes"
    outcome = await asked(
        server(saying(first), recorder), server(koordlet(second), recorder, "b.json"), recorder=recorder
    )
    assert isinstance(outcome, AgreedEdits)
    assert seen == [(-1, b"yes")]
    assert outcome.edits == {QUOTA: -1, Slot(ENVS, "NEW"): b"yes", SHARES: 512}
    assert outcome.files == {QUOTA: "a.json", Slot(ENVS, "NEW"): "a.json", SHARES: "b.json"}
    assert not [entry for entry in recorder.counted if entry[0] == "conflict"]


async def test_a_later_server_wins_and_the_conflict_is_counted() -> None:
    recorder = Recorder()
    outcome = await asked(
        server(saying(resources(cpu_shares=7)), recorder),
        server(saying(resources(cpu_shares=8)), recorder, "b.json"),
        recorder=recorder,
    )
    assert isinstance(outcome, AgreedEdits)
    assert (outcome.edits, outcome.files) == ({SHARES: 8}, {SHARES: "b.json"})
    assert ("conflict", "cpu_shares") in recorder.counted


async def test_a_later_server_may_take_an_edit_back() -> None:
    recorder = Recorder()
    outcome = await asked(
        server(saying(resources(cpu_shares=7)), recorder),
        server(saying(resources(cpu_shares=2)), recorder, "b.json"),
        recorder=recorder,
    )
    assert isinstance(outcome, AgreedEdits)
    assert outcome.edits == {}


async def test_agreeing_servers_do_not_conflict() -> None:
    recorder = Recorder()
    await asked(
        server(saying(resources(cpu_shares=7)), recorder),
        server(saying(resources(cpu_shares=7)), recorder, "b.json"),
        recorder=recorder,
    )
    assert not [entry for entry in recorder.counted if entry[0] == "conflict"]


async def test_guarded_edits_are_dropped_and_the_rest_counts() -> None:
    recorder = Recorder()
    answer = resources(cpu_shares=7)
    answer.container_annotations["io.kubernetes.container.hash"] = "2"
    answer.removed_container_annotations.append("io.kubernetes.container.hash")
    outcome = await asked(server(saying(answer), recorder), recorder=recorder)
    assert isinstance(outcome, AgreedEdits)
    assert outcome.edits == {SHARES: 7}
    assert ("guard", "key") in recorder.counted


async def test_fields_the_request_does_not_own_are_ignored() -> None:
    recorder = Recorder()
    answer = resources(cpu_shares=7, cpuset_cpus="1")
    outcome = await asked(server(saying(answer), recorder), recorder=recorder, ask=question(owned=frozenset(CPUSETS)))
    assert isinstance(outcome, AgreedEdits)
    assert outcome.edits == {Slot("cpuset_cpus"): "1"}


async def test_the_proxy_says_who_it_is_and_that_it_restores_what_kubelet_requested() -> None:
    recorder = Recorder()
    one = server(koordlet(), recorder)
    await asked(one, recorder=recorder)
    assert one._caller.metadata == [  # type: ignore[attr-defined]
        (("koord-runtime-proxy", "test"), ("koord-restores-status", "1"))
    ]
    assert one._caller.asked[0][0] == (  # type: ignore[attr-defined]
        "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook"
    )


async def test_posts_are_delivered_in_order_and_dropped_when_too_many() -> None:
    recorder = Recorder()
    one = server(koordlet(), recorder)

    async def numbered(number: int) -> bytes | None:
        return None if number == 1 else b"%d" % number

    for number in range(POST_QUEUE + 2):
        one.post(CallStage.POST_STOP, partial(numbered, number))
    assert recorder.counted == [("dropped", "a.json")] * 2
    delivered = one._caller.asked  # type: ignore[attr-defined]
    async with asyncio.timeout(HANG_S):
        while len(delivered) < POST_QUEUE - 1:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.001)
    assert [message for _, message in delivered[:3]] == [b"0", b"2", b"3"]
    one.close()


async def test_a_failing_post_does_not_stop_the_next() -> None:
    recorder = Recorder()
    one = server(failing(), recorder)

    async def fine() -> bytes:
        return b""

    async def broken() -> bytes:
        raise ValueError("no such object")

    for make in (fine, broken, fine):
        one.post(CallStage.POST_STOP, make)
    async with asyncio.timeout(HANG_S):
        while len(one._caller.asked) < 2:  # type: ignore[attr-defined]  # noqa: ASYNC110 - a double
            await asyncio.sleep(0.001)
    one.close()
