"""Gangs on an API server: whole or not at all, whatever happens to the bindings and to who leads."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.gang import GangDefaults, GangKey, MatchPolicy
from koord.quota import names as quotanames
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord_scheduler.pluginargs import CoschedulingSettings
from koord_scheduler.profiles import Profile
from koordctl.cluster.placement import lines
from tests.koord_scheduler.extenderserver import ExtenderServer
from tests.koord_scheduler.rig import BUDGETS, Rig, running
from tests.koord_scheduler.test_pages import Reader
from tests.koord_scheduler.test_quotas import profile as quota_profile
from tests.koord_scheduler.test_quotas import put_quota
from tests.kube.server import Fault
from tests.kube.support import PODS
from tests.support.waiting import until

G = "gang.scheduling.koordinator.sh/"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
PREEMPTING = Profile(coscheduling=CoschedulingSettings(is_preempting=True))


def member(rig: Rig, name: str, of: str = "a", least: int | None = 3, cpu: str = "1", **document: Any) -> None:
    annotations = {f"{G}name": of, **({f"{G}min-available": str(least)} if least else {})}
    annotations |= {f"{G}{key}": text for key, text in document.pop("annotations", {}).items()}
    labels = document.pop("labels", {})
    rig.pod(name, cpu, metadata={"annotations": annotations, "labels": labels}, **document)


def pod_group(rig: Rig, name: str = "a", least: int = 3, **status: Any) -> None:
    rig.server.put(POD_GROUPS, "default", name, spec={"minMember": least}, status=status)


def nodes_of(rig: Rig, prefix: str) -> list[str]:
    pods = rig.server.objects.get(("/api/v1", "pods"), {})
    return [rig.node_of(name) for _, name in sorted(pods) if name.startswith(prefix)]


def placed_count(rig: Rig, prefix: str) -> int:
    return sum(map(bool, nodes_of(rig, prefix)))


async def test_members_wait_until_there_are_enough() -> None:
    async with running(lambda rig: rig.node("n1")) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name)
        rig.pod("other")
        await rig.placed("other")
        assert nodes_of(rig, "a") == ["", ""]
        assert rig.view.queue.counts()["gated"] == 2
        member(rig, "a3")
        assert await rig.placed("a1", "a2", "a3") == ["n1"] * 3


async def test_a_gang_that_does_not_fit_holds_nothing_and_says_why() -> None:
    async with running(lambda rig: rig.node("n1", "2")) as rig:
        await rig.lead()
        for name in ("a1", "a2", "a3"):
            member(rig, name)
        said = "0/1 nodes are available: 1 Insufficient cpu. gang default/a needs room for 3 members at once, "
        await until(lambda: any(rig.condition(name)[2].startswith(said) for name in ("a1", "a2", "a3")))
        short = "waits for room for 3 members of gang default/a at once"
        await until(lambda: [rig.condition(name)[2] for name in ("a1", "a2", "a3")].count(short) == 2)
        assert not rig.view.state.assumed and rig.requested() == 0
        rig.pod("small", cpu="2")
        assert await rig.placed("small") == ["n1"]
        rig.node("n2", "3")
        rig.later()
        assert await rig.placed("a1", "a2", "a3") == ["n2"] * 3


async def test_members_beyond_the_minimum_are_placed_as_they_fit() -> None:
    async with running(lambda rig: rig.node("n1", "4")) as rig:
        for index in range(6):
            member(rig, f"a{index}")
        await rig.lead()
        await until(lambda: placed_count(rig, "a") == 4)
        rig.node("n2", "1")
        rig.later()
        await until(lambda: placed_count(rig, "a") == 5)


async def test_two_gangs_that_need_more_than_half_run_one_after_the_other() -> None:
    """Upstream each may hold a half for up to ten minutes."""
    async with running(lambda rig: rig.node("n1", "4")) as rig:
        for index in range(3):
            member(rig, f"a{index}", "a")
            member(rig, f"b{index}", "b")
        await rig.lead()
        await until(lambda: placed_count(rig, "a") + placed_count(rig, "b") == 3)
        first, other = ("a", "b") if placed_count(rig, "a") else ("b", "a")
        assert (placed_count(rig, first), placed_count(rig, other)) == (3, 0)
        for index in range(3):
            rig.server.delete(PODS, "default", f"{first}{index}")
        rig.later()
        await until(lambda: placed_count(rig, other) == 3)


async def test_gangs_of_a_group_start_together() -> None:
    groups = {"groups": '["default/a", "default/b"]'}
    async with running(lambda rig: rig.node("n1", "5")) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, "a", 2, annotations=groups)
        for name in ("b1", "b2"):
            member(rig, name, "b", 3, annotations=groups)
        rig.pod("other", cpu="100m")
        await rig.placed("other")
        assert placed_count(rig, "a") + placed_count(rig, "b") == 0
        rig.server.delete(PODS, "default", "other")
        member(rig, "b3", "b", 3, annotations=groups)
        await rig.placed("a1", "a2", "b1", "b2", "b3")


async def test_a_pod_group_says_the_minimum_and_may_change_it() -> None:
    async with running(lambda rig: rig.node("n1")) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, least=None)
        await until(lambda: rig.view.queue.counts()["gated"] == 2)
        pod_group(rig, least=3)
        await until(lambda: rig.view.gangs.why_not(GangKey("default", "a")).startswith("gang default/a has 2 of 3"))
        pod_group(rig, least=2)
        await rig.placed("a1", "a2")


async def test_what_must_be_free_in_all_is_said() -> None:
    async with running(lambda rig: rig.node("n1", "2")) as rig:
        await rig.lead()
        spec = {"minMember": 1, "minResources": {"cpu": "4"}}
        rig.server.put(POD_GROUPS, "default", "a", spec=spec, status={})
        member(rig, "a1", least=None)
        said = "gang default/a needs 4 cpu in all (minResources), and 2 is free."
        await until(lambda: rig.condition("a1")[2] == said)
        rig.node("n2", "2")
        rig.later()
        await rig.placed("a1")


async def test_what_a_server_without_pod_groups_says() -> None:
    """It has no CRD: gangs by annotations work."""

    def prepare(rig: Rig) -> None:
        rig.node("n1")
        rig.server.absent.add(("/apis/scheduling.sigs.k8s.io/v1alpha1", "podgroups"))

    async with running(prepare) as rig:
        await rig.lead()
        for name in ("a1", "a2", "a3"):
            member(rig, name)
        await rig.placed("a1", "a2", "a3")


# bindings and leaders


async def test_a_member_that_is_not_bound_is_tried_again_and_keeps_its_room() -> None:
    async with running(lambda rig: rig.node("n1", "3")) as rig:
        for name in ("a1", "a2", "a3"):
            member(rig, name)
        rig.server.faults.append(Fault("bind", status=422, reason="Invalid"))
        await rig.lead()
        await until(lambda: placed_count(rig, "a") == 2)
        await until(lambda: rig.attempts("error") == 1)
        rig.pod("small")
        await until(lambda: rig.condition("small")[1] == "Unschedulable")
        rig.later()
        await until(lambda: placed_count(rig, "a") == 3)
        assert rig.node_of("small") == ""


async def test_a_gang_of_which_no_member_was_bound_starts_anew_and_holds_nothing() -> None:
    async with running(lambda rig: rig.node("n1", "3")) as rig:
        for name in ("a1", "a2", "a3"):
            member(rig, name)
        rig.server.faults.extend([Fault("bind", status=422, reason="Invalid")] * 3)
        await rig.lead()
        await until(lambda: rig.attempts("error") == 3)
        rig.server.delete(PODS, "default", "a3")
        await until(lambda: rig.view.gangs.why_not(GangKey("default", "a")) != "")
        rig.later()
        await until(lambda: rig.view.queue.counts()["gated"] == 2)
        rig.pod("others", cpu="3")
        assert await rig.placed("others") == ["n1"]
        assert placed_count(rig, "a") == 0


async def test_after_a_restart_members_that_are_bound_count() -> None:
    """A leader ends after a part of the bindings: who leads next completes the gang."""
    async with running(lambda rig: rig.node("n1", "3")) as rig:
        for name in ("a1", "a2"):
            member(rig, name, nodeName="n1")
        member(rig, "a3")
        await rig.lead()
        assert await rig.placed("a3") == ["n1"]


async def test_a_gang_that_ended_and_begins_anew_begins_whole() -> None:
    """Upstream a gang that was satisfied once is so for ever, and its members start one by one."""
    async with running(lambda rig: rig.node("n1", "3")) as rig:
        for name in ("a1", "a2", "a3"):
            member(rig, name)
        await rig.lead()
        await rig.placed("a1", "a2", "a3")
        for name in ("a1", "a2", "a3"):
            rig.server.delete(PODS, "default", name)
        rig.pod("half", cpu="2")
        await rig.placed("half")
        for name in ("a4", "a5", "a6"):
            member(rig, name)
        await until(lambda: any("needs room for 3 members" in rig.condition(name)[2] for name in ("a4", "a5", "a6")))
        assert placed_count(rig, "a") == 0


@pytest.mark.parametrize(
    ("policy", "is_placed"), [(MatchPolicy.ONCE_SATISFIED, True), (MatchPolicy.ONLY_WAITING, False)]
)
async def test_a_member_that_is_made_anew(policy: MatchPolicy, is_placed: bool) -> None:
    profile = Profile(coscheduling=CoschedulingSettings(GangDefaults(match_policy=policy)))
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    def prepare(rig: Rig) -> None:
        rig.node("n1")
        for name in ("a1", "a2"):
            member(rig, name, nodeName="n1", status={"conditions": [condition]})
        annotations = {f"{G}name": "a", f"{G}min-available": "3"}
        rig.pod("a3", metadata={"annotations": annotations, "creationTimestamp": "2026-01-01T00:01:00Z"})

    async with running(prepare, profiles=[profile]) as rig:
        await rig.lead()
        rig.pod("last")
        await rig.placed("last")
        assert bool(rig.node_of("a3")) is is_placed


async def test_a_profile_without_coscheduling_places_members_by_themselves() -> None:
    async with running(lambda rig: rig.node("n1"), profiles=[Profile(coscheduling=None)]) as rig:
        await rig.lead()
        member(rig, "a1")
        await rig.placed("a1")


# preemption


async def test_a_gang_preempts_for_all_of_it_or_for_none() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "2").node("n2", "2")
        rig.pod("x1", cpu="2", nodeName="n1", priority=1).pod("x2", cpu="2", nodeName="n2", priority=1000)

    async with running(prepare, profiles=[PREEMPTING]) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, least=2, cpu="2", priority=100)
        why = "preemption: nobody may leave whose leaving makes room for all of them."
        await until(lambda: any(rig.condition(name)[2].endswith(why) for name in ("a1", "a2")))
        assert rig.stored("x1") is not None
        rig.server.delete(PODS, "default", "x2")
        rig.later()
        await until(lambda: placed_count(rig, "a") == 2)
        assert rig.stored("x1") is None
        assert rig.events("Preempted")


async def test_a_gang_preempts_nobody_unless_that_is_set() -> None:
    async with running(lambda rig: rig.node("n1", "2").pod("x", cpu="2", nodeName="n1", priority=1)) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, least=2, priority=100)
        why = "preemption: gangs preempt nobody, as enablePreemption is not set."
        await until(lambda: any(rig.condition(name)[2].endswith(why) for name in ("a1", "a2")))
        assert rig.stored("x") is not None


async def test_a_gang_breaks_no_budget() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "2").pod("x", cpu="2", nodeName="n1", priority=1, metadata={"labels": {"app": "web"}})
        spec = {"selector": {"matchLabels": {"app": "web"}}}
        rig.server.put(BUDGETS, "default", "web", spec=spec, status={"disruptionsAllowed": 0})

    async with running(prepare, profiles=[PREEMPTING]) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, least=2, priority=100)
        await until(lambda: any("preemption: nobody may leave" in rig.condition(name)[2] for name in ("a1", "a2")))
        assert rig.stored("x") is not None


# the status of PodGroups


def status(rig: Rig, name: str = "a") -> dict[str, Any]:
    found = rig.server.objects.get(("/apis/scheduling.sigs.k8s.io/v1alpha1", "podgroups"), {}).get(("default", name))
    return dict((found or {}).get("status", {}))


async def test_the_status_of_a_pod_group_follows_its_members() -> None:
    async with running(lambda rig: rig.node("n1")) as rig:
        await rig.lead()
        pod_group(rig, least=2)
        member(rig, "a1", least=None)
        await until(lambda: status(rig).get("phase") == "Pending")
        member(rig, "a2", least=None)
        await rig.placed("a1", "a2")
        await until(lambda: (status(rig).get("phase"), status(rig).get("scheduled")) == ("Scheduled", 2))
        assert status(rig)["scheduleStartTime"]
        for name in ("a1", "a2"):
            member(rig, name, least=None, nodeName="n1", status={"phase": "Succeeded"})
        await until(lambda: (status(rig).get("phase"), status(rig).get("succeeded")) == ("Finished", 2))
        for name in ("a1", "a2"):
            rig.server.delete(PODS, "default", name)
        written = [path for verb, path, *_ in rig.server.requests if verb == "patch" and "podgroups" in path]
        assert len(written) <= 4


# explain


async def explained(rig: Rig, name: str) -> list[str]:
    page = await Reader(rig).pod(name)
    return [line.strip() for line in lines(page, 0.0) if "gang" in line]


async def test_explain_says_who_lacks_what() -> None:
    groups = {"groups": '["default/a", "default/b"]', "total-number": "many"}
    async with running(lambda rig: rig.node("n1", "4")) as rig:
        await rig.lead()
        for name in ("a1", "a2"):
            member(rig, name, "a", 2, annotations=groups)
        member(rig, "b1", "b", 2, cpu="2", annotations=groups)
        await until(lambda: rig.view.queue.counts()["gated"] == 3)
        assert await explained(rig, "a1") == [
            "its gang default/a: 2 members must get a node together, and now there is one for each",
            "gang default/b, which starts with it: 1 of 2 members are there, 1 more must exist",
            *[f"counts as absent: {G}total-number: 'many' is no whole number above 0"] * 2,
            "what helps: room for its gang as a whole, as above",
        ]
        member(rig, "b2", "b", 2, cpu="2", annotations=groups)
        await until(lambda: rig.view.queue.counts()["gated"] == 0 and rig.attempts("unschedulable") == 4)
        assert (await explained(rig, "b1"))[:2] == [
            "its gang default/b: 2 members must get a node together, and now there is none for 1 of them",
            "gang default/a, which starts with it: 2 members must get a node together, and now there is one for each",
        ]
        assert not rig.view.state.assumed
        row = next(each for each in (await Reader(rig).queue()).rows)
        assert row.queue == "unschedulable"


async def test_members_of_a_gang_that_extenders_have_a_say_in_are_told_so() -> None:
    async with (
        ExtenderServer().serving() as served,
        running(lambda rig: rig.node("n1"), extenders=[served.settings("filter")]) as rig,
    ):
        await rig.lead()
        member(rig, "a1", least=1)
        said = "an extender has a say in members of gang default/a, which are placed at once"
        await until(lambda: rig.condition("a1")[2] == said)


# beside quotas


async def test_a_gang_is_admitted_to_its_quota_whole_or_not_at_all() -> None:
    """Koordinator admits members until the limit; then the gang stalls and holds quota."""
    labels = {quotanames.LABEL_NAME: "team"}
    async with running(lambda rig: rig.node("n1", "8"), profiles=[quota_profile()]) as rig:
        put_quota(rig, "team", "0", "2")
        for name in ("a1", "a2", "a3"):
            member(rig, name, labels=labels)
        await rig.lead()
        said = "gang default/a needs room for 3 members at once, and there is room for 2"
        await until(lambda: any(said in rig.condition(name)[2] for name in ("a1", "a2", "a3")))
        assert any("Insufficient quotas, quotaName: team" in rig.condition(name)[2] for name in ("a1", "a2", "a3"))
        rig.pod("small", cpu="2", metadata={"labels": labels})
        await rig.placed("small")
        rig.server.delete(PODS, "default", "small")
        put_quota(rig, "team", "0", "3")
        rig.later()
        await rig.placed("a1", "a2", "a3")


async def test_who_gives_back_to_a_quota_knows_gangs() -> None:
    async with running(lambda rig: rig.node("n1"), profiles=[quota_profile(ElasticQuota(monitors=True))]) as rig:
        member(rig, "a1", nodeName="n1")
        rig.pod("single", nodeName="n1")
        await until(lambda: rig.view.state.counts()["pods"] == 2)
        revocation = rig.scheduler.quotas.revocation
        assert revocation is not None
        pods = {each.name: each for each in rig.view.state.pods_on("n1")}
        assert [revocation._gang_of(pods[name]) for name in ("a1", "single")] == ["default/a", ""]
