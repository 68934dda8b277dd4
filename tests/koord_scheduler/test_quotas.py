"""Quotas in the scheduler, on an API server in memory: who is placed, what is written, who is made to leave."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from koord.kube.kind import Key
from koord.quota import names
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import WeightedPlugin
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord_scheduler import quotapages
from koord_scheduler.decisions import Decisions
from koord_scheduler.explaining import Explainer
from koord_scheduler.profiles import Profile
from koord_scheduler.quotastatus import QuotaStatusWriter
from tests.koord_scheduler.rig import Rig, running
from tests.kube.server import Fault
from tests.scheduling.quotaobjects import document
from tests.support.waiting import until

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"


def profile(plugin: ElasticQuota | None = None, **more: Any) -> Profile:
    plugins = (*default_plugins(), WeightedPlugin(plugin or ElasticQuota(), 1))
    return Profile(plugins=plugins, preempts_in_quota=True, **more)


def put_quota(rig: Rig, name: str, *amounts: Any, **more: Any) -> None:
    made = document(name, *amounts, **more)
    metadata = {key: value for key, value in made["metadata"].items() if key not in ("name", "namespace")}
    rig.server.put(QUOTAS, "default", name, metadata=metadata, spec=made["spec"])


def member(rig: Rig, name: str, of: str = "a", cpu: str = "1", **more: Any) -> None:
    rig.pod(name, cpu, metadata={"labels": {names.LABEL_NAME: of, **more.pop("labels", {})}}, **more)


def stored(rig: Rig, name: str = "a") -> dict[str, Any]:
    return rig.server.objects[("/apis/scheduling.sigs.k8s.io/v1alpha1", "elasticquotas")]["default", name]


def said(rig: Rig, key: str, name: str = "a") -> Any:
    text = stored(rig, name)["metadata"]["annotations"].get(key)
    return None if text is None else json.loads(text)


async def test_pods_are_placed_as_far_as_their_quota_goes_and_go_on_when_it_has_room() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "0", "2")
        for name in "pqr":
            member(rig, name)

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: rig.attempts("unschedulable") == 1)
        await until(lambda: sum(bool(rig.node_of(name)) for name in "pqr") == 2)
        (waiting,) = [name for name in "pqr" if not rig.node_of(name)]
        assert rig.condition(waiting)[2].startswith(
            "0/1 nodes are available: Insufficient quotas, quotaName: a, runtime: cpu:2, used: cpu:2, pod's request: "
            "cpu:1, exceedDimensions: [cpu]. preemption: "
        )
        put_quota(rig, "a", "0", "3")
        rig.later()
        assert await rig.placed(waiting) == ["n1"]


async def test_a_pod_that_ends_leaves_its_room_to_one_that_waits() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "0", "1")
        member(rig, "p", nodeName="n1")
        member(rig, "q")

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: rig.attempts("unschedulable") == 1)
        member(rig, "p", nodeName="n1", status={"phase": "Succeeded"})
        rig.later()
        assert await rig.placed("q") == ["n1"]


async def test_a_request_elsewhere_that_ends_lets_a_pod_in() -> None:
    """No pod leaves a node and no quota changes: another quota wants less."""

    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "1", "100")
        put_quota(rig, "b", "6", "100")
        member(rig, "p", cpu="5")
        member(rig, "other", "b", "50", scheduler="another")

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: rig.attempts("unschedulable") == 1)
        rig.server.delete("/api/v1/pods", "default", "other")
        rig.later()
        assert await rig.placed("p") == ["n1"]


async def test_within_a_quota_lesser_pods_make_room() -> None:
    def prepare(rig: Rig) -> None:
        rig.nodes("n1", "n2")
        put_quota(rig, "a", "0", "3")
        member(rig, "low", cpu="2", nodeName="n1", priority=1)
        member(rig, "others", "b", cpu="1", nodeName="n2")
        member(rig, "high", cpu="3", priority=10)

    async with running(prepare, profiles=[profile(preemption=None)]) as rig:
        await rig.lead()
        await until(lambda: rig.stored("low") is None)
        rig.later()
        assert await rig.placed("high") == ["n1"]
        assert rig.stored("others") is not None


async def test_what_a_quota_comes_to_is_written_once_and_again_when_it_changes() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "1", "4")
        member(rig, "p")
        member(rig, "big", cpu="7", labels={names.LABEL_PREEMPTIBLE: "false"})

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: stored(rig).get("status") == {"used": {"cpu": "1"}})
        assert said(rig, names.ANNOTATION_RUNTIME) == {"cpu": "4"}
        assert said(rig, names.ANNOTATION_REQUEST) == {"cpu": "8"}
        assert said(rig, names.ANNOTATION_CHILD_REQUEST) == {"cpu": "8"}
        assert said(rig, names.ANNOTATION_FIXED_REQUEST) == {"cpu": "7"}
        assert said(rig, names.ANNOTATION_FIXED_USED) == {"cpu": "0"}
        writes = rig.server.count("patch")
        await asyncio.sleep(1.3)
        assert rig.server.count("patch") == writes, "nothing has changed"


async def test_a_write_that_fails_is_made_again() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "1", "4")
        rig.server.faults.append(Fault("patch", 422, "Invalid"))

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: said(rig, names.ANNOTATION_RUNTIME) == {"cpu": "0"})
        assert not rig.server.faults


async def test_one_quota_that_cannot_be_written_keeps_no_other_from_being_written() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        for name in "abc":
            put_quota(rig, name, "1", "4")
        rig.server.faults.append(Fault("patch", 422, "Invalid"))

    async with running(prepare, profiles=[profile()]) as rig:
        sleeps: list[float] = []

        async def sleep(seconds: float) -> None:
            sleeps.append(seconds)
            await asyncio.sleep(0)

        writer = QuotaStatusWriter(rig.scheduler.binding._binder._client, rig.view.state, sleep)
        task = asyncio.create_task(writer.run())
        await until(lambda: all(said(rig, names.ANNOTATION_RUNTIME, name) for name in "abc"))
        assert writer.writes == 4
        assert sleeps[0] == 2.0, "longer than after a success"
        task.cancel()


async def test_what_is_used_too_much_for_long_is_given_back() -> None:
    plugin = ElasticQuota(monitors=True, overuse_s=60.0, revoke_interval_s=0.01)

    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="8")
        put_quota(rig, "a", "2", "8")
        put_quota(rig, "b", "6", "8")
        for name, priority in (("p", 3), ("q", 2), ("r", 1)):
            member(rig, name, cpu="2", nodeName="n1", priority=priority)

    async with running(prepare, profiles=[profile(plugin)]) as rig:
        await rig.lead()
        await asyncio.sleep(0.1)
        member(rig, "late", "b", "6")
        await until(lambda: rig.attempts("unschedulable") == 1)
        revocation = rig.scheduler.quotas.revocation
        assert revocation is not None
        await asyncio.sleep(0.1)
        assert revocation.evictions == 0, "not for long yet"
        rig.offset_s += 60
        rig.view.changed()
        revocation.changed()
        await until(lambda: rig.stored("q") is None and rig.stored("r") is None and revocation.evictions == 2)
        assert rig.stored("p") is not None
        rig.later()
        assert await rig.placed("late") == ["n1"]


async def test_an_api_server_without_the_kind_has_no_quotas() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1").server.absent.add(("/apis/scheduling.sigs.k8s.io/v1alpha1", "elasticquotas"))
        member(rig, "p")

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        assert await rig.placed("p") == ["n1"]


async def test_what_a_quota_may_use_is_explained() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", cpu="100")
        put_quota(rig, "ml", "40", "90", annotations={"shared-weight": '{"cpu":"60"}'})
        put_quota(rig, "a", "40", "80", parent="ml")
        put_quota(rig, "b", "30", "80", annotations={"shared-weight": '{"cpu":"30"}'})
        put_quota(rig, "c", "20", "80")
        for name, of, cpu in (("p", "a", "90"), ("q", "b", "50"), ("r", "c", "5"), ("s", "none", "1")):
            member(rig, name, of, cpu, scheduler="another")

    async with running(prepare, profiles=[profile()]) as rig:
        member(rig, "s", "none", "1", scheduler="another", nodeName="n1")
        await until(lambda: rig.view.state.node_of(rig.uid("s")) is not None)
        page = quotapages.quota(rig.view.state, "a")
        assert page is not None and (page.namespace, page.parent, page.problem) == ("default", "ml", "")
        (amounts,) = page.amounts
        assert (amounts.minimum, amounts.maximum, amounts.request, amounts.used) == ("40", "80", "90", "0")
        assert amounts.steps == (
            "the tree: 99 = 100 of all nodes - 1 that koordinator-default-quota uses",
            "ml: 56 of 99 cpu of the tree: min 40, and 16 of 24 that is left, by weight 60 of 90; it requests 24 more",
            "a: 56 of 56 cpu of ml: min 40, and 16 of 16 that is left, by weight 80 of 80; it requests 24 more",
        )
        assert quotapages.quota(rig.view.state, "gone") is None
        every = await quotapages.quotas(rig.view.state)
        assert [each.name for each in every.quotas] == [
            "a", "b", "c", "koordinator-default-quota", "koordinator-system-quota", "ml",
        ]  # fmt: skip
        member(rig, "new", cpu="60")
        await until(lambda: rig.uid("new") in rig.view.queue)
        explained = Explainer(rig.view, Decisions(), time.monotonic, time.time).pod(Key("default", "new"))
        assert explained is not None and explained.waiting is not None
        assert explained.waiting.obstacles[0].plugin == "ElasticQuota"
        assert explained.waiting.helps == ("that quota a uses 4 less cpu, or may use so much more",)
        examples = explained.waiting.obstacles[0].examples
        assert [each.node for each in examples] == ["ml", "a"]
        assert examples[0].detail.startswith("may use 56 of 99 cpu of the tree: min 40, and 16 of 24 that is left")


async def test_nobody_of_another_quota_leaves_for_a_pod_that_its_quota_keeps_out() -> None:
    """Kubernetes' preemption goes by nodes: it would evict pods whose room the quota does not let the pod have."""

    def prepare(rig: Rig) -> None:
        rig.node("n1")
        put_quota(rig, "a", "0", "2")
        member(rig, "equal", cpu="2", nodeName="n1", priority=10)
        member(rig, "others", "b", cpu="2", nodeName="n1")
        member(rig, "high", cpu="1", priority=10)

    async with running(prepare, profiles=[profile()]) as rig:
        await rig.lead()
        await until(lambda: "Insufficient quotas" in rig.condition("high")[2])
        assert rig.condition("high")[2].endswith(
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )
        await asyncio.sleep(0.1)
        assert rig.stored("others") is not None and not rig.events("Preempted")
