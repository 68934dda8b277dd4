"""What PodSource makes of what a runtime, a kubelet and a cgroup tree say, and of their failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.model.priority import PriorityClass
from koord.model.qos import DerivationRules, KubeQoS, QoSClass
from koord.pb.cri import api_pb2 as cri
from qosd.decide.decision import Op
from qosd.hooks import normalization
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import Resources
from qosd.model.snapshot import NO_FACTS
from qosd.pods import source as timing
from qosd.pods.source import KUBELET_GAP_S
from qosd.strategies.reconciler import of_pod
from tests.fakes.runtime import TIERS
from tests.qosd.contexts import policy
from tests.qosd.pods.source_rig import node
from tests.support.waiting import until

QOS = "koordinator.sh/qosClass"


# --- failure ---------------------------------------------------------------------------------------------------------


async def test_a_failing_runtime_leaves_its_pods_and_says_why(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        n.runtime.failing = True
        n.runtime.pod("web")
        await n.source.refresh()
        assert (n.source.current, n.source.age_s) == ((), None)
        assert "server is not initialized yet" in n.source.problems[0]
        n.runtime.failing = False
        await n.source.refresh()
        seen = n.source.current
        assert (n.names, n.source.problems) == (["web"], ())
        n.runtime.failing = True
        await asyncio.sleep(0.02)
        await n.source.refresh()
        assert n.source.current is seen
        assert n.source.age_s is not None and n.source.age_s >= 0.02


async def test_the_runtimes_cgroup_driver_is_asked_with_its_version(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        await n.source.refresh()
        assert n.source.cgroup_driver == "", "containerd 1.x cannot be asked"
        n.runtime.failing = True
        await n.source.refresh()
        n.runtime.failing, n.runtime.driver = False, cri.SYSTEMD
        await n.source.refresh()
        assert n.source.cgroup_driver == "systemd"


async def test_an_empty_list_while_containers_run_on_is_no_news(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        pod = n.runtime.pod("web")
        await n.source.refresh()
        kept, n.runtime.sandboxes = n.runtime.sandboxes, {}
        await n.source.refresh()
        assert n.names == ["web"]
        assert "lists no pods, but 1 cgroups of their containers exist" in n.source.problems[0]
        n.runtime.sandboxes = kept
        n.runtime.remove(pod)
        await asyncio.sleep(0.02)
        await n.source.refresh()
        assert (n.names, n.source.problems) == ([], ())


async def test_an_object_that_vanishes_between_two_calls_is_left_out(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        pod = n.runtime.pod("web")
        n.runtime.pod("gone")
        n.runtime.container(pod, "main")
        lost = n.runtime.container(pod, "lost")
        n.runtime.vanishing |= {lost, next(id_ for id_, one in n.runtime.sandboxes.items() if id_ != pod)}
        await n.source.refresh()
        assert n.names == ["web"]
        assert [view.name for view in n.pod("web").containers] == ["", "main"]
        assert n.source.problems == ()


async def test_a_bad_annotation_is_a_problem_of_its_pod(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        n.runtime.pod("bad", annotations={"scheduling.koordinator.sh/resource-status": "{"})
        n.runtime.pod("good", labels={QOS: "BE"})
        await n.source.refresh()
        assert "resource-status" in n.pod("bad").problems[0]
        assert (n.pod("good").problems, n.pod("good").qos) == ((), QoSClass.BE)


async def test_a_runtime_without_verbose_info_leaves_likely_paths(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        n.runtime.silent = True
        pod = n.runtime.pod("web")
        main = n.runtime.container(pod, "main")
        await n.source.refresh()
        assert n.pod("web").cgroup == "/kubepods/burstable/poduid-web"  # from the tree
        assert n.container("web", "main").cgroup == f"/kubepods/burstable/poduid-web/{main}"
        assert n.container("web", "main").requested == Resources()
    async with node(tmp_path / "blind", watched=False, start=False) as n:
        n.runtime.silent = True
        n.runtime.pod("web")
        await n.source.refresh()
        assert (n.pod("web").cgroup, n.pod("web").containers[0].cgroup) == ("", "")
        assert "nobody tells the pod's cgroup" in n.pod("web").problems[0]


async def test_a_cgroup_parent_that_may_be_shared_is_no_pods_own(tmp_path: Path) -> None:
    """As of a sandbox made by hand, which the runtime puts into /system.slice."""
    async with node(tmp_path, start=False) as n:
        pod = n.runtime.pod("by-hand", labels={QOS: "BE"})
        n.runtime.parents[pod] = "/system.slice"
        await n.source.refresh()
        view = n.pod("by-hand")
        assert (view.cgroup, view.containers[0].cgroup) == ("", f"/system.slice/{pod}")
        assert view.problems == (
            "cgroup parent /system.slice is no pod's of kubelet's and may be shared: it is left alone",
        )


# --- what views say --------------------------------------------------------------------------------------------------


async def test_a_pod_as_the_runtime_tells_it(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        pod = n.runtime.pod("web", labels={QOS: "LS", "koordinator.sh/priority": "17"}, handler="kata")
        n.runtime.container(pod, "main", attempt=0)
        main = n.runtime.container(pod, "main", quota_us=70_000, attempt=1)
        await n.source.refresh()
        view = n.pod("web")
        assert (view.uid, view.key, view.sandbox_id, view.state) == ("uid-web", "default/web", pod, "SANDBOX_READY")
        assert (view.cgroup, view.kube_qos) == ("/kubepods/burstable/poduid-web", KubeQoS.BURSTABLE)
        assert (view.qos, view.qos_source, view.priority_class) == (QoSClass.LS, "label", PriorityClass.PROD)
        assert (view.sub_priority, view.cpu_request_milli, view.runtime_handler) == (17, None, "kata")
        assert view.context.requested == Resources(cpu_quota_us=60_000)
        sandbox, only = view.containers
        assert (sandbox.is_sandbox, sandbox.name, sandbox.cgroup) == (True, "", f"{view.cgroup}/{pod}")
        assert (only.id, only.is_sandbox, only.requested.cpu_quota_us) == (main, False, 70_000)


MARKED = {normalization.ANNOTATION: "50000/41667"}


@pytest.mark.parametrize(
    ("listed", "adjusted", "spec_us", "ratio", "quota_us"),
    [
        pytest.param({}, MARKED, 41_667, 1.2, 41_667, id="adjusted by NRI: the mark is in the spec only"),
        pytest.param({}, MARKED, 41_667, 1.5, 33_334, id="so a new ratio begins at kubelet's value"),
        pytest.param({}, MARKED, 100_000, 1.2, 83_334, id="and a resize at the new one"),
        pytest.param(MARKED, {}, 41_667, 1.2, 41_667, id="through the proxy: the list has it too"),
        pytest.param({}, {}, 50_000, 1.2, 41_667, id="from before qosd"),
    ],
)
async def test_a_quota_that_was_scaled_at_creation_is_not_scaled_again(
    tmp_path: Path, listed: dict[str, str], adjusted: dict[str, str], spec_us: int, ratio: float, quota_us: int
) -> None:
    async with node(tmp_path, start=False) as n:
        main = n.runtime.container(n.runtime.pod("web", labels={QOS: "LS"}), "main", quota_us=spec_us)
        n.runtime.containers[main].annotations.update(listed)
        n.runtime.adjusted[main] = adjusted
        n.runtime.start(main)
        await n.source.refresh()
        opinions = of_pod(n.pod("web"), policy(cpuNormalizationRatio=ratio), NO_LIMITS).opinions
        found = opinions[Target(n.container("web", "main").cgroup, "cpu_quota")]
        assert (found.op, found.value) == (Op.SET, quota_us)


@pytest.mark.parametrize(
    ("derivation", "state", "qos"),
    [
        (DerivationRules(), cri.SANDBOX_READY, QoSClass.LS),
        (DerivationRules(cpu_manager_static=True), cri.SANDBOX_READY, QoSClass.LSR),
        (DerivationRules(cpu_manager_static=True), cri.SANDBOX_NOTREADY, QoSClass.LS),
        (DerivationRules(guaranteed_is_lsr=True), cri.SANDBOX_NOTREADY, QoSClass.LSR),
    ],
)
async def test_the_derivation_of_guaranteed_pods_follows_the_policy(
    tmp_path: Path, derivation: DerivationRules, state: cri.PodSandboxState, qos: QoSClass
) -> None:
    async with node(tmp_path, start=False) as n:
        n.runtime.sandboxes[n.runtime.pod("g", tier="")].state = state
        await n.source.refresh()
        assert n.pod("g").qos is QoSClass.LS
        context = n.pod("g").context
        n.derivation[0] = derivation
        await n.source.refresh()
        assert n.pod("g").qos is qos
        assert n.pod("g").context is context


async def test_kubelet_adds_priority_requests_and_fresh_annotations(tmp_path: Path) -> None:
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.runtime.pod("web", annotations={"a": "old"})
        resources = {"requests": {"cpu": "250m", "memory": "1Mi"}, "limits": {"cpu": "1"}}
        containers = [{"name": "main", "resources": resources}]
        n.kubelet.pod("web", priority=5500, qosClass="BestEffort", annotations={"a": "new"}, containers=containers)
        await n.source.refresh()
        view = n.pod("web")
        assert (view.priority_class, view.kube_qos, view.qos) == (PriorityClass.BATCH, KubeQoS.BEST_EFFORT, QoSClass.BE)
        assert (view.cpu_request_milli, view.memory_request_bytes) == (250, 1 << 20)
        assert (view.priority, view.phase, view.facts.owner, view.facts.deletion_unix_s) == (
            5500,
            "Running",
            None,
            None,
        )
        assert [(one.name, one.native.cpu_limit) for one in view.spec_containers or ()] == [("main", 1000)]
        assert view.context.request.annotations == {"a": "new"}
        assert view.context.requested == Resources(100_000, 100_000, None, is_assumed=True)
        assert set(n.source.ages_s) == {"runtime", "kubelet"}


async def test_a_pod_that_kubelet_admitted_is_seen_before_its_sandbox(tmp_path: Path) -> None:
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.kubelet.pod("early", qosClass="Burstable")
        n.kubelet.pod("later", qosClass="Burstable")
        n.kubelet.pod("done", qosClass="Burstable", phase="Succeeded")
        for name in ("early", "done"):
            (n.runtime.tree / f"kubepods/burstable/poduid-{name}").mkdir()
        await asyncio.sleep(0.02)
        await n.source.refresh()
        assert n.names == ["early"]
        assert (n.pod("early").sandbox_id, n.pod("early").state, n.pod("early").containers) == ("", "", ())
        assert n.pod("early").cgroup == "/kubepods/burstable/poduid-early"


async def test_kubelet_alone(tmp_path: Path) -> None:
    async with node(tmp_path, cri=False, kubelet=True, start=False) as n:
        id_ = "ab" * 32
        (n.runtime.tree / f"kubepods/poduid-web/{id_}").mkdir(parents=True)
        resources = {"limits": {"cpu": "2", "memory": "1Mi"}}
        statuses = [{"name": "main", "containerID": f"containerd://{id_}", "state": {"running": {}}}]
        n.kubelet.pod("web", containers=[{"name": "main", "resources": resources}], containerStatuses=statuses)
        await asyncio.sleep(0.02)
        await n.source.refresh()
        main = n.container("web", "main")
        assert (main.state, main.cgroup) == ("CONTAINER_RUNNING", f"/kubepods/poduid-web/{id_}")
        assert main.requested == Resources(100_000, 200_000, 1 << 20, is_assumed=True)
        assert n.source.age_s is not None


async def test_a_pod_that_kubelet_lists_strangely_loses_what_kubelet_tells_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    problem = (
        "kubelet's pod list: Pod default/odd cannot be read: Expected `str`, got `int` - at `$.metadata.labels[...]`"
    )
    async with node(tmp_path, kubelet=True, start=False) as n:
        for name in ("odd", "web"):
            n.runtime.pod(name)
            n.kubelet.pod(name, priority=5500)
        n.kubelet.pods["odd"]["metadata"]["labels"] = {"a": 1}
        await n.source.refresh()
        assert (n.pod("web").priority, n.pod("odd").priority, n.pod("odd").facts) == (5500, None, NO_FACTS)
        assert n.source.problems == (problem,)
        assert [record.message for record in caplog.records] == [problem]
        assert "kubelet" in n.source.ages_s


async def test_a_failing_kubelet_costs_its_part_only(tmp_path: Path) -> None:
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.runtime.pod("web")
        n.kubelet.failing = True
        await n.source.refresh()
        assert (n.names, n.pod("web").cpu_request_milli) == (["web"], None)
        assert "/pods: " in n.source.problems[0] and "kubelet" not in n.source.ages_s


async def test_a_slow_kubelet_keeps_no_pod_from_being_seen(tmp_path: Path) -> None:
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.kubelet.slow_s = 0.3
        n.runtime.pod("web")
        n.kubelet.pod("web", priority=5500)
        await n.source.refresh()
        assert n.pod("web").priority_class is PriorityClass.BATCH, "its first answer is waited for"
        n.kubelet.slow_s = 0.6
        n.runtime.pod("next")
        n.kubelet.pod("next", priority=5500)
        await asyncio.sleep(KUBELET_GAP_S - 0.3)
        n.source.start()
        await until(lambda: n.names == ["next", "web"], within_s=0.4)
        assert n.pod("next").priority_class is not PriorityClass.BATCH
        await until(lambda: n.pod("next").priority_class is PriorityClass.BATCH, within_s=2.0)
        assert n.source.problems == ()


async def test_no_answer_counts_before_its_pods_are_shown(tmp_path: Path) -> None:
    """The runtime has answered, and kubelet's first answer is waited for: a node without pods would be an error."""
    async with node(tmp_path, kubelet=True, start=False) as n:
        n.kubelet.slow_s = 0.3
        n.runtime.pod("web")
        n.kubelet.pod("web")
        refreshing = asyncio.create_task(n.source.refresh())
        while not refreshing.done():
            assert bool(n.source.ages_s) == bool(n.source.current)
            assert (n.source.age_s is None) == (not n.source.current)
            await asyncio.sleep(0.01)
        assert (n.names, n.source.ages_s.keys()) == (["web"], {"runtime", "kubelet"})


# --- identity --------------------------------------------------------------------------------------------------------


async def test_what_does_not_change_stays_the_same_object(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        web, other = n.runtime.pod("web"), n.runtime.pod("other")
        main = n.runtime.container(web, "main")
        n.runtime.container(other, "main")
        await n.source.refresh()
        before = n.source.current
        old = {pod.name: pod for pod in before}
        await n.source.refresh()
        assert n.source.current is before
        assert len(n.changes) == 1
        n.runtime.start(main)
        await n.source.refresh()
        assert n.pod("other") is old["other"]
        assert n.pod("web") is not old["web"]
        assert n.pod("web").context is old["web"].context
        assert n.pod("web").containers[0] is old["web"].containers[0]
        assert n.container("web", "main").state == "CONTAINER_RUNNING"


async def test_details_are_fetched_for_what_is_new_or_changed_only(tmp_path: Path) -> None:
    async with node(tmp_path, start=False) as n:
        pod = n.runtime.pod("web")
        main = n.runtime.container(pod, "main")
        for _ in range(3):
            await n.source.refresh()
        assert (n.runtime.calls.count("PodSandboxStatus"), n.runtime.calls.count("ContainerStatus")) == (1, 1)
        n.runtime.start(main)
        for _ in range(3):
            await n.source.refresh()
        assert n.runtime.calls.count("ContainerStatus") == 2
        n.runtime.quotas_us[main] = 80_000
        await n.source.refresh()
        assert n.container("web", "main").requested.cpu_quota_us == 50_000
        await n.source.refresh(recheck=True)
        assert n.container("web", "main").requested.cpu_quota_us == 80_000


# --- hints -----------------------------------------------------------------------------------------------------------


async def test_a_pod_s_life_is_followed_by_the_tree_alone(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        await until(lambda: n.source.age_s is not None)
        assert n.source.hints == ("tree",)
        pod = n.runtime.pod("web")
        await until(lambda: n.names == ["web"], within_s=1)
        main = n.runtime.container(pod, "main")
        n.runtime.start(main)
        await until(lambda: len(n.pod("web").containers) == 2, within_s=1)
        n.runtime.stop(main)
        await until(lambda: n.container("web", "main").state == "CONTAINER_EXITED", within_s=1)
        n.runtime.remove(pod)
        await until(lambda: n.names == [], within_s=1)
        await asyncio.sleep(0.3)
        calls = n.runtime.calls.count("ListPodSandbox")
        await asyncio.sleep(0.5)
        assert n.runtime.calls.count("ListPodSandbox") == calls  # settled: nobody polls


async def test_a_sandbox_that_is_listed_long_after_its_directory(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        await until(lambda: n.source.age_s is not None)
        pod = n.runtime.pod("web")
        listed = n.runtime.sandboxes.pop(pod)
        await asyncio.sleep(0.7)
        assert n.names == []
        n.runtime.sandboxes[pod] = listed
        await until(lambda: n.names == ["web"], within_s=1)


async def test_hints_are_coalesced(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        await until(lambda: n.source.age_s is not None)
        calls = n.runtime.calls.count("ListPodSandbox")
        began_s = asyncio.get_running_loop().time()
        for number in range(40):
            n.runtime.pod(f"p{number:02}")
            await asyncio.sleep(0)
        await until(lambda: len(n.names) == 40, within_s=3)
        took_s = asyncio.get_running_loop().time() - began_s
        assert n.runtime.calls.count("ListPodSandbox") - calls <= took_s / timing.GAP_S + 2


async def test_somebody_else_s_write_shows_as_changed_asked(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        pod = n.runtime.pod("web")
        main = n.runtime.container(pod, "main")
        n.runtime.start(main)
        ours, theirs = n.runtime.directory(main) / "cpu.cfs_quota_us", n.runtime.directory(main) / "cpu.shares"
        n.owned.add(str(ours))
        ours.write_text("1")
        theirs.write_text("1")
        await until(lambda: n.names and n.container("web", "main").state == "CONTAINER_RUNNING")
        await asyncio.sleep(0.4)
        n.written.clear()
        calls = n.runtime.calls.count("ContainerStatus")
        ours.write_text("2")
        await until(lambda: str(ours) in n.written)
        await asyncio.sleep(0.3)
        assert n.runtime.calls.count("ContainerStatus") == calls
        n.runtime.quotas_us[main] = 90_000
        n.source.refetch([n.container("web", "main").cgroup])
        await until(lambda: n.container("web", "main").requested.cpu_quota_us == 90_000)
        n.runtime.quotas_us[main] = 95_000
        theirs.write_text("2")
        await until(
            lambda: n.container("web", "main").requested.cpu_quota_us == 95_000, within_s=2 * timing.WRITES_GAP_S
        )


async def test_a_runtime_that_comes_back_is_found(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        n.runtime.failing = True
        await until(lambda: n.source.problems)
        n.runtime.failing = False
        n.runtime.pod("web")
        await until(lambda: n.names == ["web"])
        assert n.source.problems == ()


async def test_without_a_tree_pods_are_polled_and_it_is_said(tmp_path: Path) -> None:
    async with node(tmp_path, watched=False) as n:
        n.source.follow(tmp_path / "absent", TIERS)
        await until(lambda: n.source.age_s is not None)
        assert n.source.hints == ()
        assert "cannot be watched" in n.source.problems[0]
        n.runtime.pod("web")
        n.source.hint()
        await until(lambda: n.names == ["web"], within_s=1)


async def test_a_tree_without_containers_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an old kubepods was left behind, and kubelet has another by now."""
    monkeypatch.setattr(timing, "POLL_S", 0.2)
    async with node(tmp_path, watched=False) as n:
        n.source.follow(tmp_path / "cgroup", ("/left/kubepods",))
        await until(lambda: n.source.age_s is not None)
        assert n.source.hints == ("tree",)
        n.runtime.pod("web")
        await until(lambda: n.names == ["web"], within_s=2)


async def test_churn_leaves_nothing_behind(tmp_path: Path) -> None:
    async with node(tmp_path) as n:
        await until(lambda: n.source.age_s is not None)
        for number in range(60):
            pod = n.runtime.pod(f"p{number}", tier=("", "/burstable", "/besteffort")[number % 3])
            main = n.runtime.container(pod, "main")
            n.runtime.start(main)
            if number % 4 == 0:
                n.runtime.vanishing.add(main)
            await asyncio.sleep(0.01)
            n.runtime.remove(pod)
        await until(lambda: n.names == [])
        watch, lists = n.source._watch, n.source._lists
        assert watch is not None and lists is not None
        await until(lambda: (watch.watches, watch.pods, watch.containers) == (4, set(), set()))  # root and three tiers
        assert (lists.details, lists._states, n.source._merger._built) == ({}, {}, {})
        assert n.source.problems == ()
