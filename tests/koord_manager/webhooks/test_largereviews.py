"""Large reviews on real sockets and in real processes: judged alike, in turn, beside the event loop, and never lost."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from koord.webhook import reviews
from koord.webhook.reviews import OverloadedError, ReviewAnswer, ReviewResult, UndecodableError
from koord.webhook.server import ServerLimits
from koord_manager.webhooks import largereviews
from koord_manager.webhooks.judges import (
    MUTATE_NODE_STATUS,
    MUTATE_POD,
    VALIDATE_CONFIG_MAP,
    VALIDATE_NODE,
    VALIDATE_POD,
)
from koord_manager.webhooks.largereviews import LARGE_BYTES, ReviewProcess
from koord_manager.webhooks.reviewprocess import MEMORY_BYTES
from tests.koord_manager.webhooks import endless
from tests.koord_manager.webhooks.rig import (
    COLOCATED,
    NAMESPACES,
    Rig,
    config_review,
    many_pairs,
    node_review,
    review,
)
from tests.support.cluster import PROFILES
from tests.support.waiting import until
from tests.webhook.rig import Running, request, running

PADDING = {"padding": "x" * LARGE_BYTES}
CONFLICT = {"labels": {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-prod"}}


@asynccontextmanager
async def served(rig: Rig) -> AsyncIterator[Running]:
    """As the manager serves them."""
    async with running(rig.webhooks.handlers, ServerLimits(), large=rig.webhooks.large) as run:
        yield run


def padded(document: dict[str, Any]) -> bytes:
    """As a large review, of which nothing but its size is another."""
    return json.dumps({**document, **PADDING}).encode()


def pod_of(count: int) -> dict[str, Any]:
    document = review("jobs")
    containers = [{"name": f"c{number}", "resources": {"requests": {"cpu": "1"}}} for number in range(count)]
    document["request"]["object"]["spec"]["containers"] = containers
    return document


def process_of(rig: Rig, path: str = MUTATE_POD) -> ReviewProcess:
    return rig.webhooks.large.process(path)


async def started(rig: Rig) -> int:
    """The process that judges pods."""
    await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs")))
    pid = process_of(rig).pid
    assert pid is not None
    return pid


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# judged alike


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (MUTATE_POD, review("jobs")),
        (MUTATE_POD, review("kube-system")),
        (MUTATE_POD, review("brand-new")),
        (MUTATE_POD, review("nowhere")),
        (MUTATE_POD, pod_of(5000)),
        (VALIDATE_POD, review("jobs", CONFLICT["labels"])),
        (VALIDATE_POD, review("jobs")),
        (VALIDATE_NODE, node_review({"a": "1"}, {})),
        (MUTATE_NODE_STATUS, review("jobs")),
        (VALIDATE_CONFIG_MAP, config_review({"colocation-config": "{bad"})),
        (VALIDATE_CONFIG_MAP, config_review({"colocation-confg": "{}"})),
        (VALIDATE_POD, review("jobs") | {"request": {**review("jobs")["request"], "object": 5}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_review_is_judged_alike_wherever_that_is_done(rig: Rig, path: str, document: dict[str, Any]) -> None:
    rig.cluster.server.put(NAMESPACES, "", "brand-new", metadata=dict(COLOCATED))
    async with running(rig.webhooks.handlers, ServerLimits()) as here, served(rig) as elsewhere:
        expected = await here.post(path, padded(document))
        assert (await elsewhere.post(path, padded(document)))[:2] == expected[:2]
        assert expected[0] == 200
    assert process_of(rig, path).pid is not None


async def test_a_pod_of_too_many_containers_is_refused_by_number(rig: Rig) -> None:
    async with served(rig) as run:
        status, answer, _ = await run.post(f"{MUTATE_POD}?timeout=30s", json.dumps(pod_of(62_000)).encode())
    refusal = answer["response"]["status"]
    assert (status, answer["response"]["allowed"], refusal["code"]) == (200, False, 400)
    assert "62000 are more than the 4096 of a pod that is judged" in refusal["message"]


@pytest.mark.parametrize(
    ("path", "size_bytes", "is_taken"),
    [
        (MUTATE_POD, LARGE_BYTES, False),
        (MUTATE_POD, LARGE_BYTES + 1, True),
        (VALIDATE_CONFIG_MAP, 1, True),
        (MUTATE_NODE_STATUS, LARGE_BYTES + 1, True),
    ],
)
def test_what_is_judged_elsewhere(rig: Rig, path: str, size_bytes: int, is_taken: bool) -> None:
    assert rig.webhooks.large.takes(path, size_bytes) is is_taken


@pytest.mark.parametrize("body", [b"[" * LARGE_BYTES * 2, b"{}" + b" " * LARGE_BYTES, b" " * (LARGE_BYTES + 1)])
async def test_what_is_no_review_is_said_alike(rig: Rig, body: bytes) -> None:
    with pytest.raises(UndecodableError) as undecodable:
        reviews.decode(body)
    assert await rig.webhooks.large.answer(MUTATE_POD, "a", body) == undecodable.value.answer


async def test_what_changes_in_the_cluster_counts_for_the_next_one(rig: Rig) -> None:
    async def patch() -> bool:
        answer = await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs")))
        return b'"patch"' in answer.body

    assert await patch()
    rig.cluster.server.delete(PROFILES, "", "batch")
    await until(lambda: not rig.cluster.view.admission().profiles)
    assert not await patch()


async def test_a_config_map_is_judged_with_the_nodes_that_there_are_now(rig: Rig) -> None:
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    document = config_review({"colocation-config": json.dumps({"nodeConfigs": entries})})

    async def answer() -> bytes:
        return (await rig.webhooks.large.answer(VALIDATE_CONFIG_MAP, "a", json.dumps(document).encode())).body

    assert b'"allowed":true' in await answer()
    for name in ("n1", "n2"):
        rig.cluster.put_node(name, labels={"a": "1", "b": "1"})
        await until(lambda name=name: name in {key.name for key in rig.cluster.view.nodes.objects})  # type: ignore[misc]
        assert name.encode() in await answer()


# beside the event loop, and in turn


async def test_small_reviews_are_answered_while_large_ones_wait(rig: Rig) -> None:
    pid = await started(rig)
    os.kill(pid, signal.SIGSTOP)
    async with served(rig) as run:
        large = [asyncio.create_task(run.post(MUTATE_POD, json.dumps(pod_of(600)).encode())) for _ in range(4)]
        await until(lambda: run.server.requests_in_flight == 4)
        for _ in range(3):
            assert (await run.post(MUTATE_POD, json.dumps(review("jobs")).encode()))[0] == 200
        assert not any(task.done() for task in large)
        os.kill(pid, signal.SIGCONT)
        assert [(await task)[1]["response"]["allowed"] for task in large] == [True] * 4


async def test_addresses_take_turns(rig: Rig) -> None:
    pid = await started(rig)
    os.kill(pid, signal.SIGSTOP)
    order = list[str]()

    async def ask(name: str) -> None:
        await rig.webhooks.large.answer(MUTATE_POD, name[0], padded(review("jobs")))
        order.append(name)

    waiting = [asyncio.create_task(ask(name)) for name in ("a1", "a2", "a3", "a4", "b1", "c1")]
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGCONT)
    await asyncio.gather(*waiting)
    assert order == ["a1", "a2", "b1", "c1", "a3", "a4"]


async def test_config_maps_keep_no_pod_waiting(rig: Rig) -> None:
    config_map = json.dumps(config_review({})).encode()
    await rig.webhooks.large.answer(VALIDATE_CONFIG_MAP, "a", config_map)
    pid = process_of(rig, VALIDATE_CONFIG_MAP).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.create_task(rig.webhooks.large.answer(VALIDATE_CONFIG_MAP, "a", config_map))
    assert (await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs")))).result is ReviewResult.ALLOWED
    assert not waiting.done()
    os.kill(pid, signal.SIGCONT)
    assert (await waiting).result is ReviewResult.ALLOWED


# never lost


def refusal(answer: ReviewAnswer) -> str:
    assert answer.result is ReviewResult.FAILED
    response = json.loads(answer.body)["response"]
    assert (response["uid"], response["allowed"], response["status"]["code"]) == ("u1", False, 500)
    message: str = response["status"]["message"]
    return message


async def test_a_process_that_ends_refuses_its_review_and_is_replaced(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    pid = await started(rig)
    os.kill(pid, signal.SIGSTOP)
    waiting = asyncio.create_task(rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs"))))
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    assert "the process that judges large reviews has ended" in refusal(await waiting)
    assert "has ended" in caplog.text and "Traceback" not in caplog.text
    assert await started(rig) != pid


async def test_a_process_that_ended_while_nobody_asked_costs_no_review(rig: Rig) -> None:
    pid = await started(rig)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    await asyncio.sleep(0.1)
    assert (await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs")))).result is ReviewResult.ALLOWED


async def test_a_review_that_is_given_up_takes_its_process_along(rig: Rig) -> None:
    """Its answer must not be taken for that to the next one."""
    pid = await started(rig)
    os.kill(pid, signal.SIGSTOP)
    async with served(rig) as run:
        assert (await run.post(f"{MUTATE_POD}?timeout=1s", padded(review("jobs"))))[0] == 504
        status, answer, _ = await run.post(VALIDATE_POD, padded(review("jobs", CONFLICT["labels"])))
    assert (status, answer["response"]["allowed"]) == (200, False)
    await until(lambda: not is_alive(pid))


async def test_a_review_that_needs_too_much_memory_is_refused_and_the_next_one_is_judged(rig: Rig) -> None:
    pid = await started(rig)
    most = 48 << 20
    resource.prlimit(pid, resource.RLIMIT_DATA, (most, most))
    bomb = json.dumps(review("jobs")).encode().replace(b'"spec": {', b'"spec": {"x": [' + b"{}," * 400_000 + b"{}], ")
    answer = await rig.webhooks.large.answer(MUTATE_POD, "a", bomb)
    assert "MemoryError: it takes more than 96 MiB to judge" in refusal(answer)
    assert await started(rig) == pid


async def test_a_review_that_needs_too_much_time_is_refused_and_the_next_one_is_judged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(largereviews, "PROGRAM", endless.PROGRAM)
    pid = await started(rig)
    answer = await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review(endless.ENDLESS)))
    assert f"it takes more than {endless.LITTLE_S} s on the CPU to judge" in refusal(answer)
    assert await started(rig) == pid


async def test_what_cannot_be_interrupted_ends_with_its_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largereviews, "PROGRAM", endless.PROGRAM)
    pid = await started(rig)
    answer = await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review(endless.DEAF)))
    assert "the process that judges large reviews has ended" in refusal(answer)
    assert await started(rig) != pid


async def test_a_review_that_takes_long_makes_room_for_another_networks(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is judged after it, in its own time."""
    monkeypatch.setattr(largereviews, "TURN_S", 0.05)
    long, short = json.dumps(config_review(many_pairs())).encode(), json.dumps(config_review({})).encode()
    large = rig.webhooks.large
    assert (await large.answer(VALIDATE_CONFIG_MAP, "10.0.0.1", long)).result is ReviewResult.REJECTED
    first = asyncio.create_task(large.answer(VALIDATE_CONFIG_MAP, "10.0.0.1", long))
    await asyncio.sleep(0)
    of_its_own = asyncio.create_task(large.answer(VALIDATE_CONFIG_MAP, "10.0.0.2", long))
    assert (await large.answer(VALIDATE_CONFIG_MAP, "10.1.0.1", short)).result is ReviewResult.ALLOWED
    with pytest.raises(OverloadedError, match="the review takes long, and others wait"):
        await first
    assert (await of_its_own).result is ReviewResult.REJECTED


@pytest.mark.parametrize(("turn_s", "goes_on"), [(10.0, True), (0.1, False)])
async def test_a_client_that_goes_keeps_the_process_for_no_longer_than_a_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, turn_s: float, goes_on: bool
) -> None:
    """What is soon done needs no other process after it."""
    monkeypatch.setattr(largereviews, "TURN_S", turn_s)
    pid = await started(rig)
    os.kill(pid, signal.SIGSTOP)
    async with served(rig) as run:
        _, writer = await run.connect()
        writer.write(request(MUTATE_POD, padded(review("jobs"))))
        await until(lambda: run.server.requests_in_flight == 1)
        await asyncio.sleep(0.1)
        writer.transport.abort()
        if goes_on:
            os.kill(pid, signal.SIGCONT)
        await until(lambda: run.server.requests_in_flight == 0)
        assert process_of(rig).pid == (pid if goes_on else None)
    await until(lambda: goes_on or not is_alive(pid))
    assert (await rig.webhooks.large.answer(MUTATE_POD, "a", padded(review("jobs")))).result is ReviewResult.ALLOWED


async def test_a_process_outlives_the_signals_that_end_the_manager_and_ends_with_it(rig: Rig) -> None:
    pid = await started(rig)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid, number)
    assert await started(rig) == pid
    await rig.webhooks.large.close()
    await until(lambda: not is_alive(pid))


async def test_its_memory_is_bounded_and_it_gives_way(rig: Rig) -> None:
    pid = await started(rig)
    assert resource.prlimit(pid, resource.RLIMIT_DATA)[0] == MEMORY_BYTES
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0) or os.nice(0) == 19
