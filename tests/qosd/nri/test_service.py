"""The Plugin service, called as a runtime calls it: answers, counts, and what no pod and no error can do."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.protobuf.message import Message
from msgspec import structs

from koord.pb.nri import api_pb2 as nri
from koord.service.metrics import render
from qosd.metrics import PREFIX, Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import PodContext
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.nri import mux
from qosd.nri.service import SERVICE, Hooks, Peer, PluginService, events
from tests.qosd.contexts import EXTENDED, STATUS, policy
from tests.qosd.nri.containers import be, container, ls, lsr, pod, resources, said

BEFORE_0_10, FROM_0_10 = 0x7FF, 0x3FFF  # the events that NRI knows


class Called:
    """A session and what it told."""

    def __init__(self, by: EffectivePolicy | None = None, acting: bool = True, listed_milli: int | None = None) -> None:
        self.metrics, self.acting = Metrics(), acting
        self.announced: list[PodContext] = []
        self.changes = 0
        self.peers: list[Peer] = []
        hooks = Hooks(
            lambda: (by or policy(HostFacts()), NO_LIMITS),
            self.metrics,
            lambda: self.acting,
            lambda target: "0-7",
            self.announced.append,
            self._changed,
            as_listed=lambda request: structs.replace(request, cpu_request_milli=listed_milli),
        )
        self.methods = PluginService(hooks, self.peers.append).methods()

    def _changed(self) -> None:
        self.changes += 1

    def __call__(self, method: str, request: Message, answer: Any) -> Any:
        return answer.FromString(self.raw(method, request.SerializeToString()))

    def raw(self, method: str, message: bytes) -> bytes:
        return self.methods[SERVICE, method](message)

    def count(self, stage: str, result: str) -> int | None:
        return self.metrics.hook_calls.get((stage, "nri", result))


def create(of: nri.PodSandbox) -> nri.CreateContainerRequest:
    return nri.CreateContainerRequest(pod=of, container=container(of))


@pytest.mark.parametrize(
    "method", ["CreateContainer", "UpdateContainer", "Synchronize", "RunPodSandbox", "StateChange"]
)
def test_a_message_that_cannot_be_read_is_answered_with_nothing(method: str, caplog: pytest.LogCaptureFixture) -> None:
    assert Called().raw(method, b"\xff") == b""
    assert "answered without edits" in caplog.text


def test_configure_that_cannot_be_read_still_asks_for_no_unknown_event() -> None:
    answer = nri.ConfigureResponse.FromString(Called().raw("Configure", b"\xff"))
    assert answer.events
    assert not answer.events & ~BEFORE_0_10


@pytest.mark.parametrize(
    ("version", "known"),
    [("", BEFORE_0_10), ("unknown", BEFORE_0_10), ("v0.9.0", BEFORE_0_10), ("v0.10.0", FROM_0_10),
     ("0.12.1-3-gabc", FROM_0_10), ("v1.0.0", FROM_0_10)],
)  # fmt: skip
def test_events_are_only_those_that_the_runtime_knows(version: str, known: int) -> None:
    called = Called()
    request = nri.ConfigureRequest(runtime_name="c", runtime_version="v2", NRI_version=version, request_timeout=2000)
    answer = called("Configure", request, nri.ConfigureResponse)
    assert not answer.events & ~known
    assert answer.events & 0b1000_1001 == 0b1000_1001  # RunPodSandbox, CreateContainer, UpdateContainer
    assert (answer.events == events("")) == (known == BEFORE_0_10)
    assert called.peers == [Peer("c", "v2", version, 2.0)]


def test_a_bad_pod_is_answered_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    called = Called()
    with caplog.at_level(logging.WARNING, "qosd"):
        answer = called(
            "CreateContainer", create(pod("BE", "BestEffort", {EXTENDED: "{"})), nri.CreateContainerResponse
        )
    assert not answer.HasField("adjust")
    assert "pod default/p container main" in caplog.text
    assert called.metrics.pod_problems["PreCreateContainer"] == 1


def test_an_error_of_ours_is_no_edit(caplog: pytest.LogCaptureFixture) -> None:
    called = Called(object())  # type: ignore[arg-type]
    assert called.raw("CreateContainer", create(lsr()).SerializeToString()) == b""
    assert called.count("PreCreateContainer", "error") == 1
    found = called(
        "Synchronize", nri.SynchronizeRequest(pods=[lsr()], containers=[container(lsr())]), nri.SynchronizeResponse
    )
    assert found == nri.SynchronizeResponse()
    assert "answered without edits" in caplog.text


@pytest.mark.parametrize("limits_in_cri", [None, False, True])
def test_create_and_update(limits_in_cri: bool | None) -> None:
    """Kubelet would take limits that the runtime is told for its own."""
    called = Called(policy(HostFacts(), limitsInCRI=limits_in_cri))
    edited = {"cpus": "2-3", "quota": -1} if limits_in_cri else {"cpus": "2-3"}
    answer = called("CreateContainer", create(lsr()), nri.CreateContainerResponse)
    assert said(answer.adjust.linux.resources) == edited
    update = nri.UpdateContainerRequest(pod=lsr(), container=container(lsr()), linux_resources=resources("0-7"))
    answer = called("UpdateContainer", update, nri.UpdateContainerResponse)
    assert [(each.container_id, said(each.linux.resources)) for each in answer.update] == [("c1", edited)]
    assert (called.count("PreCreateContainer", "edited"), called.count("PreUpdateContainerResources", "edited")) == (
        1,
        1,
    )


def test_while_another_front_end_acts_nothing_is_edited() -> None:
    called = Called(acting=False)
    assert called.raw("CreateContainer", create(lsr()).SerializeToString()) == b""
    update = nri.UpdateContainerRequest(pod=lsr(), container=container(lsr()))
    assert called.raw("UpdateContainer", update.SerializeToString()) == b""
    everything = nri.SynchronizeRequest(pods=[lsr()], containers=[container(lsr())])
    assert called.raw("Synchronize", everything.SerializeToString()) == b""
    assert called.count("PreCreateContainer", "yielded") == 1
    called.acting = True
    assert called("CreateContainer", create(lsr()), nri.CreateContainerResponse).HasField("adjust")


def test_what_ran_before_is_updated_though_it_comes_in_parts() -> None:
    """Containers may precede their pods; one whose pod never comes is left alone."""
    called = Called(policy(HostFacts(), limitsInCRI=True))
    be_pod, lsr_pod = be(), lsr()
    be_pod.id = "another"
    orphan = container(ls())
    orphan.pod_sandbox_id = "gone"
    first = nri.SynchronizeRequest(pods=[be_pod], containers=[container(lsr_pod, number=1), orphan], more=True)
    assert called("Synchronize", first, nri.SynchronizeResponse) == nri.SynchronizeResponse(more=True)
    last = nri.SynchronizeRequest(pods=[lsr_pod], containers=[container(be_pod, number=2)])
    answer = called("Synchronize", last, nri.SynchronizeResponse)
    assert not answer.more
    assert {each.container_id: said(each.linux.resources) for each in answer.update} == {
        "c1": {"cpus": "2-3", "quota": -1},
        "c2": {"shares": 512, "quota": 100_000, "limit": 64 << 20},
    }
    assert all(each.ignore_failure for each in answer.update)
    assert called("Synchronize", nri.SynchronizeRequest(), nri.SynchronizeResponse) == nri.SynchronizeResponse()


def test_one_answer_never_outgrows_what_the_runtime_can_read(caplog: pytest.LogCaptureFixture) -> None:
    called = Called()
    one = container(lsr())
    one.id = "c" * 64 * 1024
    many = nri.SynchronizeRequest(pods=[lsr()], containers=[one] * 12)
    message = called.raw("Synchronize", many.SerializeToString())
    assert 0 < len(message) < mux.MAX_SENT_BYTES
    assert "are left to the reconciler" in caplog.text


@pytest.mark.parametrize(
    ("method", "request_", "announced"),
    [
        ("RunPodSandbox", nri.RunPodSandboxRequest(pod=lsr()), ["2-3"]),
        ("StateChange", nri.StateChangeEvent(event=nri.RUN_POD_SANDBOX, pod=lsr()), ["2-3"]),
        ("StateChange", nri.StateChangeEvent(event=nri.POST_START_CONTAINER, pod=lsr()), []),
        ("RemovePodSandbox", nri.Empty(), []),
        ("PostUpdateContainer", nri.Empty(), []),
        ("UpdatePodSandbox", nri.Empty(), []),
    ],
)
def test_events_are_told(method: str, request_: Message, announced: list[str]) -> None:
    called = Called()
    assert called.raw(method, request_.SerializeToString()) == b""
    assert [each.bound_cpus for each in called.announced] == announced
    assert called.changes == 1


@pytest.mark.parametrize(
    ("pod_shares", "own_shares", "listed_milli", "cpus"),
    [
        (10, 10, None, "1"),
        (2, 2, None, ""),
        (2048, 1024, None, "1-2"),
        (10, 10, 3000, "1-3"),
        (65536, 65536, 1000, "1"),
    ],
    ids=["a claim", "requests nothing", "containers that share", "resized", "kubelet's list goes first"],
)
def test_no_container_is_made_with_more_cpus_than_its_pod_requests(
    pod_shares: int, own_shares: int, listed_milli: int | None, cpus: str
) -> None:
    called = Called(policy(HostFacts(), limitsInCRI=True), listed_milli=listed_milli)
    of = pod("LSE", "Burstable", {STATUS: '{"cpuset":"1-63"}'}, shares=pod_shares)
    request = nri.CreateContainerRequest(pod=of, container=container(of, resources(shares=own_shares)))
    answer = called("CreateContainer", request, nri.CreateContainerResponse)
    assert said(answer.adjust.linux.resources) == ({"cpus": cpus, "quota": -1} if cpus else {})
    called("RunPodSandbox", nri.RunPodSandboxRequest(pod=of), nri.Empty)
    assert [each.bound_cpus for each in called.announced] == [cpus]


def test_every_method_that_a_runtime_relies_on_is_there() -> None:
    """All but ValidateContainerAdjustment, whose event we never ask for."""
    assert {name for _, name in Called().methods} == {
        "Configure", "Synchronize", "Shutdown", "CreateContainer", "UpdateContainer", "StopContainer", "StateChange",
        "UpdatePodSandbox", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PostUpdatePodSandbox",
        "PostCreateContainer", "StartContainer", "PostStartContainer", "PostUpdateContainer", "RemoveContainer",
    }  # fmt: skip


def test_edits_are_counted_by_hook() -> None:
    called = Called()
    called("CreateContainer", create(be()), nri.CreateContainerResponse)
    rendered = render(PREFIX, called.metrics.take()).decode()
    assert 'koord_qosd_hook_edits_total{field="cpu_shares",hook="batchResource"} 1.0' in rendered
    assert 'koord_qosd_hook_seconds_count{stage="PreCreateContainer"} 1.0' in rendered
