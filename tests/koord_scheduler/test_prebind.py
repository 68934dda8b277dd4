"""What plugins want on a pod is written on it before it is bound, in one patch, however the API server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from koord.scheduling.plugin import Plugin, PodPatch
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.rig import Rig, running
from tests.kube.server import Fault
from tests.kube.support import NODES, PODS
from tests.support.waiting import until


class Writer(Plugin):
    """Writes the node's name, and holds it meanwhile."""

    def __init__(self, name: str, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]) -> None:
        self.name = name  # type: ignore[misc] # of this one
        self.labels, self.annotations = labels, annotations
        self.held: list[str] = []

    def reserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self.held.append(pod.name)

    def unreserve(self, state: ClusterState, pod: PodInfo, node: str) -> None:
        self.held.remove(pod.name)

    def pre_bind_patch(self, state: ClusterState, pod: PodInfo, node: str) -> PodPatch | None:
        annotations = {key: value and f"{value} on {node}" for key, value in self.annotations.items()}
        return PodPatch(annotations, self.labels) if annotations or self.labels else None


FIRST = Writer("First", {"rack": "r1"}, {"devices": "0,1"})
SECOND = Writer("Second", {"old": None}, {"cpus": "3-4"})
SILENT = Writer("Silent", {}, {})


def profile(*plugins: Plugin) -> Profile:
    return Profile(reserve=plugins, pre_bind=plugins)


def writes(rig: Rig) -> list[str]:
    """The verbs of what was sent for the pod, in order."""
    paths = {f"{PODS.rpartition('/')[0]}/namespaces/default/pods/p{end}" for end in ("", "/binding")}
    return [verb for verb, path, *_ in rig.server.requests if path in paths and verb != "get"]


def prepare(rig: Rig) -> None:
    rig.node("n1").pod(metadata={"labels": {"old": "x", "kept": "y"}})


def written(rig: Rig) -> tuple[dict[str, str], dict[str, str]]:
    metadata = (rig.stored() or {})["metadata"]
    return metadata.get("labels", {}), metadata.get("annotations", {})


async def test_one_patch_before_the_binding() -> None:
    async with running(prepare, profiles=(profile(FIRST, SILENT, SECOND),)) as rig:
        await rig.lead()
        await rig.placed("p")
        assert writes(rig) == ["patch", "bind"]
        labels, annotations = written(rig)
        assert labels == {"kept": "y", "rack": "r1"}
        assert annotations == {"devices": "0,1 on n1", "cpus": "3-4 on n1"}
        await until(lambda: not rig.view.state.assumed)
        assert rig.requested() == 1000


@pytest.mark.parametrize("plugins", [(), (SILENT,)])
async def test_nothing_to_write_costs_nothing(plugins: tuple[Plugin, ...]) -> None:
    async with running(prepare, profiles=(profile(*plugins),)) as rig:
        await rig.lead()
        await rig.placed("p")
        assert writes(rig) == ["bind"]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([Fault("patch", drop=True)], id="lost on the way"),
        pytest.param([Fault("patch", drop=True, done=True)], id="answer lost"),
        pytest.param([Fault("patch", status=409, reason="Conflict")] * 2, id="others write, too"),
        pytest.param([Fault("patch", status=429, reason="TooManyRequests")], id="too many"),
        pytest.param([Fault("patch", status=500, reason="InternalError"), Fault("patch", drop=True)], id="several"),
    ],
)
async def test_a_patch_is_sent_until_it_is_answered(faults: list[Fault]) -> None:
    async with running(prepare, profiles=(profile(FIRST),)) as rig:
        rig.server.faults += faults
        await rig.lead()
        await rig.placed("p")
        assert writes(rig) == ["patch"] * (len(faults) + 1) + ["bind"]
        assert written(rig)[1] == {"devices": "0,1 on n1"}


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (422, "Invalid")])
async def test_nothing_is_bound_without_its_patch(status: int, reason: str) -> None:
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        rig.server.faults.append(Fault("patch", status=status, reason=reason))
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert rig.condition()[2] == f"binding rejected: {status} {reason}: the server says {reason}"
        assert (rig.node_of(), rig.requested(), writer.held, rig.server.count("bind")) == ("", 0, [], 0)
        rig.offset_s += 20
        rig.view.changed()
        await rig.placed("p")


async def test_a_pod_that_is_being_deleted_is_not_bound() -> None:
    """The server takes the patch all the same, and its answer says it."""
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("patch", until=held, drop=True))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        metadata = {**(rig.stored() or {})["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        rig.pod(metadata=metadata)
        held.set()
        await until(lambda: not writer.held)
        assert (rig.node_of(), rig.requested(), rig.server.count("bind")) == ("", 0, 0)
        assert len(rig.view.queue) == 0


@pytest.mark.parametrize("status", [409, 422])
async def test_another_pod_of_the_name_gets_its_own(status: int) -> None:
    """A server says of a patch with another UID that it is a conflict, or invalid."""
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("patch", until=held, status=status, reason="Conflict"))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        first = next(iter(rig.view.state.assumed))
        rig.server.delete(PODS, "default", "p")
        rig.pod()
        held.set()
        await rig.placed("p")
        await until(lambda: not rig.view.state.assumed)
        assert (rig.requested(), rig.view.state.node_of(first), writer.held) == (1000, None, ["p"])


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("patch", until=held, drop=True))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.server.delete(PODS, "default", "p")
        held.set()
        await until(lambda: not writer.held)
        assert (rig.requested(), rig.server.count("bind"), rig.events("FailedScheduling")) == (0, 0, [])


async def test_a_node_that_goes_under_a_patch_gets_no_pod() -> None:
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        held = asyncio.Event()
        rig.server.faults.append(Fault("patch", until=held, drop=True))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.server.delete(NODES, "", "n1")
        await until(lambda: "n1" not in rig.view.state.table)
        held.set()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert rig.condition()[2] == "binding rejected: node n1 is gone"
        assert (rig.server.count("bind"), writer.held) == (0, [])


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_what_another_scheduler_has_bound_stays_there(node: str) -> None:
    writer = Writer("W", {"a": "b"}, {})
    async with running(prepare, profiles=(profile(writer),)) as rig:
        rig.node("n2", unschedulable=True)
        held = asyncio.Event()
        rig.server.faults.append(Fault("patch", until=held, status=409, reason="Conflict"))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        rig.pod(nodeName=node)
        held.set()
        await until(lambda: not rig.view.state.assumed)
        await until(lambda: not writer.held)
        assert [rig.requested(name) for name in ("n1", "n2")] == [1000 * (name == node) for name in ("n1", "n2")]
        assert (rig.server.count("bind"), rig.events("Scheduled"), rig.events("FailedScheduling")) == (0, [], [])


async def test_two_plugins_that_write_different_things_on_one_key() -> None:
    profiles = (profile(FIRST, Writer("Third", {"rack": "r2"}, {})),)
    async with running(prepare, profiles=profiles) as rig:
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        message = "plugin Third: pre_bind_patch: rack: 'r2' in labels, where First has 'r1'"
        assert rig.condition()[2] == message
        assert [verb for verb in writes(rig) if verb == "bind"] == []


async def test_two_plugins_that_agree() -> None:
    other: Any = Writer("Third", {"rack": "r1"}, {})
    async with running(prepare, profiles=(profile(FIRST, other),)) as rig:
        await rig.lead()
        await rig.placed("p")
        assert writes(rig) == ["patch", "bind"]
