"""A plugin that fails, in every way that one can: its pod is told and tried again, the others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from koord.model.schedulerpages import POD_PAGE
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.plugin import Explanation, Plugin, PluginError, PodPatch, Reason, Reject, Rejection, Scope, Wait
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import Preemptor
from koord.scheduling.state import ClusterState
from koord_scheduler.configuration import Configuration
from koord_scheduler.options import PROGRAM
from koord_scheduler.pages import configuration_page
from koord_scheduler.pluginguard import guarded
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.extenderserver import ExtenderServer
from tests.koord_scheduler.rig import Rig, running
from tests.koord_scheduler.test_pages import Reader
from tests.kube.support import PODS
from tests.scheduling.clusters import node, pod
from tests.support.waiting import until

N = 8
"""More rows than the rig's nodes are."""
BAD = {"labels": {"bad": "yes"}}


def division(*_: Any) -> Any:
    return 1 / 0


def leaves(*_: Any) -> Any:
    raise SystemExit("bye")


def returns(value: object) -> Callable[..., Any]:
    return lambda *_: value


def made(cls: Any, *members: object) -> Any:
    return cls(*members)


def plugin_with(**methods: Callable[..., Any]) -> Plugin:
    """A plugin ``Bad`` whose ``methods`` do what they are told for pods that are labelled bad, as long as it is ill;
    else what `Plugin` does. A method may be told by the arguments after ``self``.
    """

    class Bad(Plugin):
        name: ClassVar[str] = "Bad"
        is_ill = True

    def method(point: str) -> Callable[..., Any]:
        def run(self: Any, state: ClusterState, pod: PodInfo, *others: Any) -> Any:
            if "bad" in pod.labels and self.is_ill:
                return methods[point](state, pod, *others)
            return None if point == "filter" else getattr(Plugin, point)(self, state, pod, *others)

        return run

    for point in methods:
        setattr(Bad, point, method(point))
    return Bad()


def profile_of(plugin: Plugin, preemption: Any = None) -> Profile:
    guard = guarded(plugin)
    return Profile(
        plugins=(*default_plugins(), WeightedPlugin(guard)),
        preemption=preemption,
        reserve=(guard,) if plugin.overrides("reserve") else (),
        permit=(guard,) if plugin.overrides("permit") else (),
        pre_bind=(guard,) if plugin.overrides("pre_bind_patch") else (),
    )


def cluster(rig: Rig) -> None:
    rig.node("n1").node("n2")
    rig.pod("bad", metadata=BAD, priority=1).pod("good")


async def is_told_and_tried_again(rig: Rig, plugin: Any, message: str) -> None:
    """The pod of a plugin that fails waits with ``message``; once the plugin is well, it is placed."""
    if rig.leading is None:
        await rig.lead()
    await rig.placed("good")
    await until(lambda: rig.condition("bad")[1] == "SchedulerError")
    assert rig.condition("bad")[2] == message
    assert rig.node_of("bad") == ""
    assert total(rig) == 1000, "nothing is held"
    rig.pod("later")
    await rig.placed("later")
    plugin.is_ill = False
    rig.offset_s += 20
    rig.view.changed()
    await rig.placed("bad")
    await until(lambda: not rig.view.state.assumed)
    assert total(rig) == 3000


def total(rig: Rig) -> int:
    """The CPU, in thousandths, that counts on all nodes."""
    return sum(rig.requested(key[1]) for key in rig.server.objects["/api/v1", "nodes"])


@pytest.mark.parametrize(
    "point", ["filter", "rejections", "score", "preferred_nodes", "reserve", "permit", "pre_bind_patch"]
)
async def test_a_plugin_that_raises(point: str) -> None:
    plugin = plugin_with(**{point: division})
    async with running(cluster, profiles=(profile_of(plugin),)) as rig:
        await is_told_and_tried_again(rig, plugin, f"plugin Bad: {point}: ZeroDivisionError: division by zero")


@pytest.mark.parametrize("point", ["filter", "score", "preferred_nodes", "reserve"])
async def test_a_plugin_that_raises_about_a_pod_that_extenders_are_asked_about(
    extender: ExtenderServer, point: str
) -> None:
    plugin = plugin_with(**{point: division})
    asked = [extender.settings()]
    async with running(cluster, profiles=(profile_of(plugin),), extenders=asked) as rig:
        await is_told_and_tried_again(rig, plugin, f"plugin Bad: {point}: ZeroDivisionError: division by zero")


async def test_a_plugin_that_would_end_the_process() -> None:
    plugin = plugin_with(filter=leaves)
    async with running(cluster, profiles=(profile_of(plugin),)) as rig:
        await is_told_and_tried_again(rig, plugin, "plugin Bad: filter: SystemExit: bye")


async def test_a_plugin_that_fails_to_unreserve_too() -> None:
    plugin = plugin_with(reserve=division, unreserve=division)
    async with running(cluster, profiles=(profile_of(plugin),)) as rig:
        await is_told_and_tried_again(rig, plugin, "plugin Bad: reserve: ZeroDivisionError: division by zero")


ALL, NONE = np.ones(N, np.bool_), np.zeros(N, np.bool_)


@pytest.mark.parametrize(
    ("point", "answer", "why"),
    [
        ("filter", True, "returned bool, not bool[8]"),
        ("filter", np.ones(N, np.int64), "returned int64[8], not bool[8]"),
        ("filter", np.ones(N + 1, np.bool_), "returned bool[9], not bool[8]"),
        ("rejections", Rejection("r", NONE), "returned Rejection, not a list or tuple"),
        ("rejections", None, "returned NoneType, not a list or tuple"),
        ("rejections", [NONE], "has bool[8] among the rejections"),
        ("rejections", [made(Rejection, "r", [False])], "returned list, not bool[8]"),
        ("rejections", [Rejection("", NONE)], "has '' as a reason, which is no text"),
        ("rejections", [Rejection("r", NONE, np.ones(3, np.bool_))], "returned bool[3], not bool[8]"),
        ("score", np.ones(N), "returned float64[8], not int64[8], a whole number or None"),
        ("score", np.ones(3, np.int64), "returned int64[3], not int64[8], a whole number or None"),
        ("score", np.full(N, 101), "gives node n0 101, which is not in 0..100"),
        ("score", np.full(N, -1), "gives node n0 -1, which is not in 0..100"),
        ("score", 101, "gives the score 101, which is not in 0..100"),
        ("score", True, "gives the score True, which is not in 0..100"),
        ("score", "x", "returned str, not int64[8], a whole number or None"),
        ("preferred_nodes", "n1", "returned str, not a list or tuple"),
        ("preferred_nodes", [1], "has int among the names of nodes"),
        ("explain", None, "returned NoneType, not an Explanation"),
        ("explain", made(Explanation, ["r"]), "has str among the reasons, not a Reason"),
        ("explain", made(Explanation, (), 1.5), "gives the score 1.5, which is not in 0..100"),
        ("permit", True, "returned bool, not a Wait, a Reject or None"),
        ("permit", Wait(0), "has a Wait of 0 s, which is no time"),
        ("permit", Wait(float("inf")), "has a Wait of inf s, which is no time"),
        ("permit", made(Wait, "30s"), "has a Wait of '30s' s, which is no time"),
        ("pre_bind_patch", {"a": "b"}, "returned dict, not a PodPatch or None"),
        ("pre_bind_patch", made(PodPatch, ["a"]), "has list as annotations, not a mapping"),
        ("pre_bind_patch", made(PodPatch, {}, {"a": 1}), "has 'a': 1 in labels, which is no text"),
    ],
)  # fmt: skip
def test_what_is_no_answer(point: str, answer: object, why: str) -> None:
    state = ClusterState()
    for index in range(N):
        state.put_node(node(f"n{index}"))
    asked: Any = guarded(plugin_with(**{point: returns(answer)}))
    others: dict[str, tuple[object, ...]] = {"score": (ALL,), "explain": (0, ALL), "permit": ("n0",)}
    others["pre_bind_patch"] = ("n0",)
    with pytest.raises(PluginError) as error:
        getattr(asked, point)(state, pod("p", labels={"bad": "yes"}), *others.get(point, ()))
    assert str(error.value) == f"plugin Bad: {point}: {why}"
    assert (error.value.plugin, error.value.point) == ("Bad", point)


@pytest.mark.parametrize(
    ("answer", "helped_by"),
    [
        (None, None),
        ([], ()),
        ([("a", "b")], (("a", "b"),)),
        ("ab", None),
        (["ab"], None),
        ([("a", 1)], None),
        ([("a", "b", "c")], None),
    ],
)
def test_labels_that_are_none_are_any(answer: object, helped_by: object) -> None:
    guard = guarded(plugin_with(helped_by=returns(answer)))
    assert guard.helped_by(ClusterState(), pod("p", labels={"bad": "yes"})) == helped_by


def test_a_failure_is_logged_with_its_cause_until_there_is_another(caplog: pytest.LogCaptureFixture) -> None:
    plugin: Any = plugin_with(filter=division)
    state, bad = ClusterState(), pod("p", labels={"bad": "yes"})
    guard = guarded(plugin)
    for answer in (division, division, returns(3), returns(3), division):
        type(plugin).filter = lambda self, *arguments, answer=answer: answer(*arguments)
        with pytest.raises(PluginError):
            guard.filter(state, bad)
    division_by_zero = "plugin Bad: filter: ZeroDivisionError: division by zero"
    told = [(each.getMessage(), each.exc_info is not None) for each in caplog.records]
    assert told == [
        (division_by_zero, True),
        ("plugin Bad: filter: returned int, not bool[0]", False),
        (division_by_zero, True),
    ]


def test_a_plugin_spoils_no_columns() -> None:
    """What it gets to read and may write by accident is a copy."""

    def spoil(state: ClusterState, pod: PodInfo, *others: Any) -> Any:
        others[-1][:] = False
        return 50 if len(others) == 1 else Explanation((), 50)

    state = ClusterState()
    state.put_node(node("n1"))
    state.put_node(node("n2"))
    framework = Framework(state, [WeightedPlugin(guarded(plugin_with(score=spoil, explain=spoil)))])
    bad = pod("p", labels={"bad": "yes"})
    assert framework.place(bad) is not None
    assert framework.explain(bad, "n1").total == 50
    assert state.table.exists.all()


@pytest.mark.parametrize("point", ["is_helped_by", "goes_by_pods", "helped_by"])
async def test_who_cannot_say_what_helps_is_tried(point: str) -> None:
    """The pod is rejected and parked; when something happens the plugin fails, so that the pod is tried."""
    plugin: Any = plugin_with(**{"filter": lambda state, *_: np.zeros(state.length, np.bool_), point: division})

    def prepare(rig: Rig) -> None:
        cluster(rig)
        rig.pod("other", nodeName="n1")

    async with running(prepare, profiles=(profile_of(plugin),)) as rig:
        await rig.lead()
        await until(lambda: rig.condition("bad")[1] == "Unschedulable")
        assert rig.condition("bad")[2] == "0/2 nodes are available: 2 node(s) were rejected by Bad."
        plugin.is_ill, plugin.ill = False, True
        setattr(type(plugin), point, division)
        rig.offset_s += 20
        rig.server.delete(PODS, "default", "other")
        await rig.placed("bad", "good")


async def test_a_plugin_that_fails_while_a_node_is_tried_for_those_that_wait() -> None:
    """The queue asks the filters whether the node would do; the pod is then tried, and told."""
    plugin: Any = plugin_with(filter=lambda state, *_: np.zeros(state.length, np.bool_))
    async with running(cluster, profiles=(profile_of(plugin),)) as rig:
        await rig.lead()
        await until(lambda: rig.condition("bad")[1] == "Unschedulable")
        type(plugin).filter = lambda self, state, pod: division() if self.is_ill and "bad" in pod.labels else None
        rig.offset_s += 20
        rig.node("n3")
        await is_told_and_tried_again(rig, plugin, "plugin Bad: filter: ZeroDivisionError: division by zero")


async def test_a_plugin_that_fails_while_room_is_made() -> None:
    """In the middle of a trial of preemption, with pods taken off the node and one back: all are on it again."""
    calls = 0

    def fails_later(state: ClusterState, *_: Any) -> Any:
        nonlocal calls
        calls += 1
        return 1 / 0 if calls > 2 else None

    state = ClusterState()
    state.put_node(node("n1", "2"))
    for index in range(2):
        state.put_pod(pod(f"x{index}", {"cpu": "1"}, nodeName="n1"))
    framework = Framework(state, [*default_plugins(), WeightedPlugin(guarded(plugin_with(filter=fails_later)))])
    high = pod("high", {"cpu": "1"}, labels={"bad": "yes"}, priority=10)
    diagnosis = framework.diagnose(high)
    before = state.requested.at(0, "cpu"), sorted(each.name for each in state.pods_on("n1"))
    with pytest.raises(PluginError):
        Preemptor(framework).choose(high, diagnosis)
    assert calls == 3
    assert (state.requested.at(0, "cpu"), sorted(each.name for each in state.pods_on("n1"))) == before


@pytest.mark.parametrize("point", ["explain", "score", "filter"])
def test_no_evaluation_stays_half_made(point: str) -> None:
    """A plugin that fails at some call, of an evaluation that pods share: what follows is as from the beginning."""
    calls, failing = 0, -1

    class Emptiest(Plugin):
        name = "Emptiest"
        filter_scope = score_scope = Scope.PODS

        def fail(self) -> None:
            nonlocal calls
            calls += 1
            if calls == failing:
                raise ValueError("now")

        def filter(self, state: ClusterState, pod: PodInfo) -> Any:
            if point == "filter":
                self.fail()
            used = state.requested.of("cpu")
            return None if used is None else used < 3000

        def score(self, state: ClusterState, pod: PodInfo, feasible: Any) -> Any:
            if point == "score":
                self.fail()
            used = state.requested.of("cpu")
            return 100 if used is None else 100 - np.minimum(used // 100, 100)

        def explain(self, state: ClusterState, pod: PodInfo, row: int, feasible: Any) -> Explanation:
            if point == "explain":
                self.fail()
            used = state.requested.at(row, "cpu")
            return Explanation((Reason("full"),)) if used >= 3000 else Explanation((), 100 - min(used // 100, 100))

    def fresh(state: ClusterState) -> Framework:
        return Framework(state, [WeightedPlugin(guarded(Emptiest()))])

    for at in range(1, 30):
        calls, failing = 0, at
        state = ClusterState()
        for index in range(N):
            state.put_node(node(f"n{index}"))
        framework = fresh(state)
        failures = 0
        for index in range(12):
            waiting = pod(f"p{index}", {"cpu": "1"})
            try:
                placement = framework.place(waiting)
            except PluginError:
                failures += 1
                placement = framework.place(waiting)
            failing, kept = -1, failing
            assert placement == fresh(state).place(waiting), (at, index)
            failing = kept
            assert placement is not None
            state.assume(waiting, placement.node)
            if index % 3 == 2:
                state.remove_pod(f"{waiting.uid}")
        assert failures <= 1


def answers(**by_name: list[Any]) -> Plugin:
    """Permits pods as ``by_name`` says: what is said first, next, and from then on."""

    class Gate(Plugin):
        name = "Gate"

        def permit(self, state: ClusterState, pod: PodInfo, node: str) -> Any:
            said = by_name.get(pod.name, [None])
            return said.pop(0) if len(said) > 1 else said[0]

    return Gate()


class Pairs(Plugin):
    """Pods are bound by twos. What it holds: the names of those that have a node."""

    name = "Pairs"

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.held: list[str] = []
        self.log: list[str] = []

    def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self.held.append(pod.name)
        self.log.append(f"reserve {pod.name}")

    def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self.held.remove(pod.name)
        self.log.append(f"unreserve {pod.name}")

    def permit(self, state: ClusterState, pod: PodInfo, node: str) -> Wait | Reject | None:
        if pod.name == "never":
            return Reject("it is never to run")
        return None if len([each for each in self.held if each != "never"]) >= 2 else Wait(self.timeout_s)


async def test_a_pod_waits_until_its_plugin_lets_it_go() -> None:
    pairs = Pairs(60)
    async with running(lambda rig: rig.node("n1").pod("a"), profiles=(profile_of(pairs),)) as rig:
        await rig.lead()
        await until(lambda: rig.requested() == 1000)
        await asyncio.sleep(0.05)
        assert rig.node_of("a") == ""
        rig.pod("b")
        await rig.placed("a", "b")
        assert pairs.log == ["reserve a", "reserve b"]


async def test_a_pod_that_is_rejected_or_waits_in_vain_holds_nothing_and_is_tried_again() -> None:
    pairs = Pairs(0.1)
    async with running(lambda rig: rig.node("n1").pod("a").pod("never"), profiles=(profile_of(pairs),)) as rig:
        await rig.lead()
        await until(lambda: all(rig.condition(name)[1] == "Unschedulable" for name in ("a", "never")))
        assert rig.condition("a")[2] == "rejected by Pairs: it has waited 0.1 s in vain"
        assert rig.condition("never")[2] == "rejected by Pairs: it is never to run"
        await until(lambda: not rig.view.state.assumed)
        assert (rig.requested(), pairs.held) == (0, [])
        pairs.timeout_s = 60
        rig.pod("b")
        rig.offset_s += 20
        rig.view.changed()
        await rig.placed("a", "b")


async def test_a_pod_that_is_deleted_while_it_waits_holds_nothing() -> None:
    pairs = Pairs(60)
    async with running(lambda rig: rig.node("n1").pod("a"), profiles=(profile_of(pairs),)) as rig:
        await rig.lead()
        await until(lambda: pairs.held == ["a"])
        rig.server.delete(PODS, "default", "a")
        await until(lambda: not pairs.held)
        assert pairs.log == ["reserve a", "unreserve a"]
        assert rig.server.count("patch") == 0


async def test_who_leads_no_longer_holds_nothing() -> None:
    pairs = Pairs(60)
    async with running(lambda rig: rig.node("n1").pod("a"), profiles=(profile_of(pairs),)) as rig:
        await rig.lead()
        await until(lambda: pairs.held == ["a"])
        await rig.resign()
        assert (pairs.held, rig.requested(), len(rig.view.queue)) == ([], 0, 1)
        rig.pod("b")
        await rig.lead()
        await rig.placed("a", "b")


async def test_each_plugin_has_its_say_and_its_time() -> None:
    first, second = answers(p=[Wait(60), None]), answers(p=[Wait(60), Wait(0.05)], q=[None])
    type(second).name = "Second"
    profile = Profile(permit=(guarded(first), guarded(second)))
    async with running(lambda rig: rig.node("n1").pod("p").pod("q"), profiles=(profile,)) as rig:
        await rig.lead()
        await rig.placed("q")
        rig.pod("r")
        await rig.placed("r")
        await until(lambda: rig.requested() == 3000)
        assert rig.node_of("p") == "", "the second one has it wait for as long as it said at first"


async def test_a_plugin_is_asked_ten_times_a_second_at_most() -> None:
    asked = 0

    class Counting(Plugin):
        name = "Counting"

        def permit(self, state: ClusterState, pod: PodInfo, node: str) -> Wait | None:
            nonlocal asked
            asked += pod.name == "p"
            return Wait(60) if pod.name == "p" else None

    async with running(lambda rig: rig.node("n1").pod("p"), profiles=(Profile(permit=(guarded(Counting()),)),)) as rig:
        began_s = time.monotonic()
        await rig.lead()
        for step in range(100):
            rig.node("n1", labels=str(step))
            await asyncio.sleep(0.005)
        assert 2 <= asked <= (time.monotonic() - began_s) / 0.1 + 1


async def test_reservations_end_backwards_when_a_binding_fails() -> None:
    log: list[str] = []

    def logging_plugin(plugin_name: str, fails: bool = False) -> Plugin:
        class Logging(Plugin):
            name = plugin_name

            def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
                log.append(f"reserve {plugin_name}")
                assert state.is_assumed(pod.uid)
                if fails:
                    raise ValueError("full")

            def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
                log.append(f"unreserve {plugin_name}")

        return guarded(Logging())

    profile = Profile(reserve=(logging_plugin("a"), logging_plugin("b", True), logging_plugin("c")))
    async with running(lambda rig: rig.node("n1").pod("p"), profiles=(profile,)) as rig:
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert rig.condition()[2] == "plugin b: reserve: ValueError: full"
        assert log == ["reserve a", "reserve b", "unreserve c", "unreserve b", "unreserve a"]
        assert (rig.requested(), rig.server.count("bind")) == (0, 0)


async def test_a_page_about_its_pod_says_that_a_plugin_fails() -> None:
    plugin = plugin_with(filter=division)
    async with running(cluster, profiles=(profile_of(plugin),)) as rig:
        await rig.lead()
        await until(lambda: rig.condition("bad")[1] == "SchedulerError")
        await until(lambda: len(rig.view.queue) == 1)
        status, said = await Reader(rig).get(POD_PAGE, "default/bad")
        assert (status, said) == (500, {"message": "plugin Bad: filter: ZeroDivisionError: division by zero"})


def test_the_page_of_the_configuration_has_the_points_of_users_plugins() -> None:
    options = PROGRAM.load(PROGRAM.parse([]))
    found = Configuration((Profile("a", reserve=(Pairs(1),), permit=(Pairs(1),)), Profile("b")))
    first, second = configuration_page(options, found)["kubescheduler.config.k8s.io"]["profiles"]
    assert first["plugins"]["reserve"] == first["plugins"]["permit"] == {"enabled": [{"name": "Pairs"}]}
    assert "preBind" not in first["plugins"]
    assert set(second["plugins"]) == {"filter", "score"}
