"""Each course that an eviction can take, and what ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from koord.host.evictions import NotedEviction
from qosd.act.evictioncase import REMEMBERED_S
from qosd.act.evictionreport import RECENT_S, EvictionCount
from qosd.act.evictor import EvictionFailed, EvictionRefused
from qosd.decide.decision import Eviction
from qosd.decide.shortage import Resource, Shortage, Victims
from qosd.decide.victims import LATE_S
from qosd.model.snapshot import Owner, PodFacts, PodView
from tests.fakes.clock import S
from tests.qosd.act.evictor.rig import (
    FAILED,
    GROUP,
    RESTARTED,
    STOPPED,
    STOPPING,
    WEB,
    Rig,
    Script,
    settled,
    start,
    web,
)
from tests.qosd.podviews import RUNNING, view


async def test_an_eviction_from_the_order_to_the_pods_end() -> None:
    rig = Rig()
    await rig.follow(web("a", "b"))
    assert start(rig.evictor, [("memory", WEB)], 12) == (("started", "attempt 1 is noted and handed over"),)
    assert rig.notes.evictions == (NotedEviction("web", "default/web", "memory", GROUP, 1, 3, at_ns=1000 * S),)
    assert not rig.script.orders, "the tick's thread stops nothing itself"
    await settled()
    assert rig.script.orders == [WEB]
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts, state.since_ns, state.retry_ns) == (STOPPING, 1, 1000 * S, 1010 * S)
    rig.clock.advance(2)
    await rig.script.end()
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.problem, state.since_ns) == (STOPPED, "", 1000 * S)
    assert (rig.notes.evictions[0].is_stopped, rig.notes.evictions[0].at_ns) == (True, 1002 * S)
    await rig.follow(web("a", "b"))
    await rig.follow(web(exited="ab"))
    assert rig.phase is STOPPED, "those that ran before the stop are no new ones"
    await rig.follow()
    assert (rig.phase, rig.notes.evictions) == (None, ())
    first = rig.journal.entries[0]
    assert (first.wall_ns, first.monotonic_ns, first.tick, first.owner) == (7 * S, 1000 * S, 12, "memory")
    assert (first.pod, first.cgroup, first.name, first.path) == ("default/web", GROUP, "pod.eviction", GROUP)
    assert [(each.before, each.after, each.result, each.why) for each in rig.journal.entries] == [
        ("running", "stopped", "stopping", "the containers are being stopped: memory is short"),
        (
            "running",
            "stopped",
            "done",
            "memory is short: all containers have exited and their cgroups are gone, after 2 s",
        ),
        (None, None, "vanished", "the pod is gone"),
    ]


async def test_what_fails_is_told_and_can_be_ordered_again() -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=EvictionFailed("container a (12) is running: permission denied"))
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.problem) == (FAILED, "container a (12) is running: permission denied")
    assert (rig.journal.entries[-1].result, rig.journal.entries[-1].why) == (
        "failed",
        "memory is short: container a (12) is running: permission denied",
    )
    assert not rig.notes.evictions[0].is_stopped
    rig.clock.advance(10)
    assert await rig.order() == "started"
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts, state.problem) == (STOPPING, 2, "")
    assert rig.journal.entries[-1].why == "the containers are being stopped (attempt 2): memory is short"
    await rig.script.end()
    assert rig.phase is STOPPED


def made(uid: str, owner: Owner | None, *running: str, namespace: str = "default") -> PodView:
    """A pod that ``owner`` has made."""
    pod = view(uid, containers=[(name, RUNNING) for name in running or ("main",)])
    return structs.replace(pod, facts=PodFacts(owner=owner), namespace=namespace)


AGENTS, OTHERS = Owner("DaemonSet", "agents"), Owner("DaemonSet", "others")


@pytest.mark.parametrize(
    ("pod", "is_next"),
    [
        (made("next", AGENTS), True),
        (made("sibling", AGENTS), False),  # it was there before
        (made("next", OTHERS), False),
        (made("next", AGENTS, namespace="elsewhere"), False),
        (made("next", Owner("Job", "agents")), False),
        (made("next", None), False),
    ],
)
async def test_what_a_controller_makes_in_place_of_an_evicted_pod_is_evicted_no_sooner(
    pod: PodView, is_next: bool
) -> None:
    rig = Rig()
    sibling = made("sibling", AGENTS)
    await rig.follow(made("web", AGENTS), sibling)
    await rig.order()
    rig.clock.advance(3)
    await rig.script.end()
    await rig.follow(sibling)
    assert not rig.evictor.under_way
    rig.clock.advance(40)
    await rig.follow(*{each.uid: each for each in (sibling, pod)}.values())
    assert rig.evictor.under_way.keys() == ({"next"} if is_next else set())
    if not is_next:
        return
    state = rig.evictor.under_way["next"]
    assert (state.phase, state.attempts, state.retry_ns) == (RESTARTED, 1, (1043 + 10) * S)
    assert [(each.uid, each.is_stopped) for each in rig.notes.evictions] == [("next", True)]
    last = rig.journal.entries[-1]
    assert (last.result, last.why) == (
        "restarted", "DaemonSet agents has made it in place of default/web, which was evicted",
    )  # fmt: skip
    again = structs.replace(WEB, uid="next", pod=pod.key)
    rig.clock.advance(9)
    assert await rig.order(again) == "refused"
    rig.clock.advance(1)
    assert await rig.order(again) == "started"
    await rig.script.end("next")
    await rig.follow(sibling, made("third", AGENTS))
    state = rig.evictor.under_way["third"]
    assert (state.attempts, state.retry_ns) == (2, (1053 + 20) * S), "each attempt makes the pause twice as long"


async def test_one_eviction_holds_back_one_pod_of_the_controller_and_only_for_a_while() -> None:
    rig = Rig()
    await rig.follow(made("web", AGENTS))
    await rig.order()
    await rig.follow(made("web", AGENTS), made("next", AGENTS), made("more", AGENTS))
    assert rig.evictor.under_way.keys() == {"web", "next"}, "a ReplicaSet makes it before the evicted one is gone"
    await rig.script.end()
    await rig.follow()
    await rig.follow(made("last", AGENTS))
    await rig.order(structs.replace(WEB, uid="last"))
    await rig.script.end("last")
    await rig.follow()
    rig.clock.advance(REMEMBERED_S)
    await rig.follow(made("late", AGENTS))
    assert not rig.evictor.under_way


async def test_a_pod_that_was_not_evicted_after_all_holds_back_no_other() -> None:
    rig = Rig()
    await rig.follow(made("web", AGENTS))
    await rig.order()
    await rig.script.end(error=EvictionRefused("api eviction refused by PodDisruptionBudget web"))
    await rig.follow(made("web", AGENTS), made("next", AGENTS))
    assert rig.evictor.under_way.keys() == {"web"}


async def test_an_executor_that_breaks_fails_its_eviction(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=ZeroDivisionError("division by zero"))
    assert rig.evictor.under_way["web"].problem == "ZeroDivisionError: division by zero"
    assert "evicting default/web" in caplog.text


async def test_what_a_budget_refuses_has_not_been_begun_and_is_not_left_to_the_next_run() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    await rig.script.end(error=EvictionRefused("api eviction refused by PodDisruptionBudget web"))
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.is_refused, state.problem) == (
        FAILED, True, "api eviction refused by PodDisruptionBudget web",
    )  # fmt: skip
    assert rig.notes.evictions == ()
    rig.clock.advance(10)
    assert await rig.order() == "started"
    state = rig.evictor.under_way["web"]
    assert (state.is_refused, state.attempts, len(rig.notes.evictions)) == (False, 2, 1)
    await rig.script.end(error=EvictionFailed("no answer"))
    assert not rig.evictor.under_way["web"].is_refused
    assert len(rig.notes.evictions) == 1


@pytest.mark.parametrize(
    ("error", "left_s", "result"),
    [
        (EvictionRefused("by a budget"), 3.0, "started"),
        (EvictionRefused("by a budget"), None, "refused"),
        (EvictionFailed("permission denied"), 3.0, "refused"),
    ],
)
async def test_who_was_refused_need_not_wait_in_an_emergency(
    error: EvictionFailed, left_s: float | None, result: str
) -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=error)
    rig.clock.advance(1)
    orders = [("memory", WEB)]
    assert start(rig.evictor, orders, 2, lacks=lately(left_s))[0][0] == result
    late = "it is too late in 3 s (memoryEvict: 97 % are in use)"
    assert rig.evictor.emergency == ("" if left_s is None else late)
    start(rig.evictor, [], 3)
    assert rig.evictor.emergency == "", "it is the last tick's"


@pytest.mark.parametrize(("left_s", "result"), [(None, "refused"), (3.0, "started")])
async def test_what_a_controller_has_made_anew_need_not_wait_in_an_emergency(left_s: float | None, result: str) -> None:
    rig = Rig()
    await rig.follow(made("web", AGENTS))
    await rig.order()
    await rig.script.end()
    await rig.follow(made("next", AGENTS))
    assert rig.evictor.under_way["next"].is_replacement
    orders = [("memory", structs.replace(WEB, uid="next"))]
    assert start(rig.evictor, orders, 2, lacks=lately(left_s))[0][0] == result
    assert rig.evictor.under_way["next"].is_replacement is (left_s is None), "once it was stopped, it waits"


@pytest.mark.parametrize(("left_s", "result", "told"), [(None, "refused", []), (3.0, "started", ["stopping", "done"])])
async def test_an_emergency_waits_for_no_note(left_s: float | None, result: str, told: list[str]) -> None:
    rig = Rig()
    rig.notes.full = True
    assert start(rig.evictor, [("memory", WEB)], 1, lacks=lately(left_s))[0][0] == result
    await settled()
    for order in rig.script.orders:
        assert "cannot be noted: [Errno 28]" in rig.journal.entries[0].why
        await rig.script.end(order.uid)
    assert [each for each in rig.journal.results if each != "refused"] == told


def lately(left_s: float | None) -> Shortage:
    return Shortage(Resource.MEMORY_BYTES, 1, Victims(None, "MemoryEvict"), (), "97 % are in use", left_s=left_s)


async def test_an_executor_is_replaced_for_what_begins_afterwards() -> None:
    rig, other = Rig(), Script()
    await rig.order()
    rig.evictor.executor = other
    await rig.order(structs.replace(WEB, uid="db"))
    await rig.script.end()
    await other.end("db")
    rig.evictor.executor = None
    await rig.follow(web("b"))
    rig.clock.advance(20)
    assert await rig.order() == "refused"
    assert ([each.uid for each in rig.script.orders], [each.uid for each in other.orders]) == (["web"], ["db"])


async def test_an_executors_steps_are_told_of_evictions_that_are_under_way() -> None:
    rig = Rig()
    rig.evictor.tell_step(WEB, "stopping", "too early")
    await rig.order(tick=12)
    rig.evictor.tell_step(WEB, STOPPING, "fell back to CRI because nobody answers")
    last = rig.journal.entries[-1]
    assert (last.pod, last.result, last.why, last.tick) == (
        "default/web", "stopping", "fell back to CRI because nobody answers", 12,
    )  # fmt: skip
    assert rig.journal.results == ["stopping", "stopping"]


async def test_each_restart_by_kubelet_doubles_the_pause() -> None:
    rig = Rig()
    pauses_s = []
    for attempt in range(1, 9):
        await rig.follow(web(f"a{attempt}"))
        if attempt > 1:
            assert (rig.phase, rig.journal.results[-1]) == (RESTARTED, "restarted")
            assert rig.evictor.under_way["web"].attempts == attempt - 1
            assert rig.journal.entries[-1].why == f"kubelet has started containers again: a{attempt}"
            rig.clock.ns = rig.evictor.under_way["web"].retry_ns - S
            assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "not again for 1 s"),)
            rig.clock.advance(1)
        assert await rig.order() == "started"
        await rig.script.end()
        state = rig.evictor.under_way["web"]
        assert (state.phase, state.attempts) == (STOPPED, attempt)
        pauses_s.append((state.retry_ns - state.since_ns) // S)
    assert pauses_s == [10, 20, 40, 80, 160, 300, 300, 300]
    assert rig.journal.results == ["stopping", "done", *["restarted", "stopping", "done"] * 7]


@pytest.mark.parametrize("error", [EvictionRefused("by a budget, for 30 s"), EvictionFailed("permission denied")])
async def test_the_pause_runs_from_the_end_of_an_attempt_that_failed(error: EvictionFailed) -> None:
    rig = Rig()
    for attempt, pause_s in enumerate([10, 20, 40], start=1):
        assert await rig.order() == "started"
        rig.clock.advance(30)
        await rig.script.end(error=error)
        state = rig.evictor.under_way["web"]
        assert (state.attempts, state.retry_ns) == (attempt, rig.clock.ns + pause_s * S)
        rig.clock.advance(pause_s - 1)
        assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "not again for 1 s"),)
        rig.clock.advance(1)


async def test_what_has_come_about_is_counted_and_nothing_else() -> None:
    rig, at_first = Rig(), 1000 * S
    by_memory = structs.replace(WEB, gate="BEMemoryEvict")
    await rig.order(by_memory)
    await rig.script.end(error=EvictionFailed("permission denied"))
    assert (rig.evictor.report.counts, rig.evictor.report.recent_counts) == ({}, {})
    rig.clock.advance(10)
    await rig.order(by_memory)
    await rig.script.end()
    first = rig.evictor.report
    assert first.counts == {"BEMemoryEvict": 1}
    assert first.recent_counts == {("BEMemoryEvict", "default/web"): EvictionCount(1, at_first + 10 * S)}
    rig.clock.advance(RECENT_S)
    await rig.follow(web("b"))
    await rig.order(by_memory)
    await rig.script.end()
    assert rig.evictor.report.recent_counts == {("BEMemoryEvict", "default/web"): EvictionCount(2, at_first + 310 * S)}
    rig.clock.advance(RECENT_S + 1)
    other = Eviction("db", "default/db", "CPU is short", GROUP, gate="CPUEvict")
    await rig.order(other)
    await rig.script.end("db")
    by_cpu = {("CPUEvict", "default/db"): EvictionCount(1, rig.clock.ns)}
    assert rig.evictor.report.recent_counts == by_cpu, "the other is old"
    assert rig.evictor.report.counts == {"BEMemoryEvict": 2, "CPUEvict": 1}
    assert first.counts == {"BEMemoryEvict": 1}, "a report never changes"


async def test_the_same_pod_with_a_new_sandbox() -> None:
    """Both are listed for a moment, and what runs in the new one has been started since."""
    rig = Rig()
    await rig.stopped()
    old, new = structs.replace(web(exited="a"), state="SANDBOX_NOTREADY"), web("a-1")
    await rig.follow(old)
    assert rig.phase is STOPPED
    await rig.follow(old, new)
    assert rig.phase is RESTARTED
    await rig.follow(new)
    assert (rig.phase, rig.evictor.under_way["web"].attempts) == (RESTARTED, 1)


async def test_a_container_seen_while_it_is_stopped_is_none_that_kubelet_started_again() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    await rig.follow(web("a", "b"))
    await rig.script.end()
    await rig.follow(web("b"))  # a list made before the stop
    assert rig.phase is STOPPED
    await rig.follow(web("c"))
    assert rig.phase is RESTARTED


async def test_a_pod_that_goes_while_its_containers_are_stopped_ends_with_its_execution() -> None:
    rig = Rig()
    await rig.order()
    pods = (view("other"),)
    rig.evictor.follow(pods)
    assert rig.phase is STOPPING
    await rig.script.end()
    rig.evictor.follow(pods)
    assert (rig.phase, rig.notes.evictions) == (None, ())
    assert rig.journal.results == ["stopping", "done", "vanished"]


async def _stop(rig: Rig) -> None:
    await rig.stopped()


async def _fail(rig: Rig) -> None:
    await rig.order()
    await rig.script.end(error=EvictionFailed("no"))


async def _restart(rig: Rig) -> None:
    await rig.stopped()
    await rig.follow(web("b"))


@pytest.mark.parametrize("course", [_stop, _fail, _restart])
async def test_an_eviction_that_is_left_alone_ends(course: Callable[[Rig], Awaitable[None]]) -> None:
    rig = Rig()
    await course(rig)
    pods = (web("b") if rig.phase is RESTARTED else web(),)
    rig.evictor.follow(pods)
    rig.clock.advance(REMEMBERED_S - 1)
    rig.evictor.follow(pods)
    assert rig.phase is not None
    rig.clock.advance(1)
    rig.evictor.follow(pods)
    assert (rig.phase, rig.notes.evictions, rig.journal.results[-1]) == (None, (), "ended")


async def test_one_that_is_being_stopped_is_never_forgotten() -> None:
    rig = Rig()
    await rig.order()
    rig.clock.advance(2 * REMEMBERED_S)
    await rig.follow(web("a"))
    assert rig.phase is STOPPING


@pytest.mark.parametrize(
    ("deletion_unix_s", "left_s"), [(None, 0), (307.0, 300 + LATE_S), (7.0, LATE_S), (7.0 - LATE_S, 0)]
)
async def test_what_kubelet_has_left_to_end_a_pod(deletion_unix_s: float | None, left_s: float) -> None:
    rig = Rig()
    assert rig.evictor.left_s("web") == 0
    facts = PodFacts(deletion_unix_s=deletion_unix_s)
    await rig.follow(view("other"), structs.replace(web("a"), facts=facts))
    assert (rig.evictor.left_s("web"), rig.evictor.left_s("other")) == (left_s, 0)
    await rig.follow()
    assert rig.evictor.left_s("web") == 0
