"""What is noted of a hook's answer: by row what kubelet requested and what it gets, before the answer goes out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from koord.host.cgroup import Tree
from koord.host.originals import ContainerKey, Original, Pending
from koord.host.undo import UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.http2.server import ServerReply
from koord.model.crifields import Field
from koord.pb.hooks import api_pb2 as hooks
from koord.pb.nri import api_pb2 as nri
from qosd.hooks.originals import SWAP_V1, SWAP_V2, RequestedResources, of_creation, of_update
from qosd.hookserver.server import PROXY_METADATA, RESTORES_METADATA, SERVICE, HookServer
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.policy import HostFacts
from qosd.nri.service import SERVICE as NRI
from qosd.nri.service import Hooks, PluginService
from qosd.originals import OriginalsRecorder
from tests.qosd.contexts import V2, policy
from tests.qosd.hookserver.test_server import BE_POD
from tests.qosd.nri import containers as nris
from tests.support.opened import opened

MIB = 1 << 20
OURS = {PROXY_METADATA: b"1", RESTORES_METADATA: b"1"}


def request(
    unified: Mapping[str, str] | None = None, swap_bytes: int = 0, swap_follows: bool = True, **values: int | str
) -> RequestedResources:
    return RequestedResources(
        {Field(name): value for name, value in values.items()},  # type: ignore[call-arg] # an enumeration's member
        unified or {},
        swap_bytes,
        swap_follows,
    )


BE = request(cpu_shares=2)
KEPT = Original("2-3", "0-1")
POD: dict[str, Any] = {**BE_POD}
Values = dict[str, tuple[Any, Any]]


@pytest.mark.parametrize(
    ("requested", "edited", "version", "noted"),
    [
        (BE, BE, 1, {}),
        (BE, request(cpu_shares=512, cpu_quota=50_000), 1, {"cpu_shares": (2, 512), "cpu_quota": (-1, 50_000)}),
        (request(), request(cpu_shares=512), 1, {"cpu_shares": (1024, 512)}),
        (request(), request(cpu_shares=512), 2, {"cpu_shares": (Weights.LINEAR.shares(100), 512)}),
        (request(cpu_quota=50_000), request(cpu_quota=-1), 1, {"cpu_quota": (50_000, -1)}),
        (request(cpu_quota=0), request(cpu_quota=-1), 1, {}),
        (request(), request(memory_limit_in_bytes=MIB), 1, {"memory_limit_in_bytes": (-1, MIB), SWAP_V1: (-1, MIB)}),
        (request(), request(memory_limit_in_bytes=MIB), 2, {"memory_limit_in_bytes": (-1, MIB), SWAP_V2: (-1, 0)}),
        (
            request(memory_limit_in_bytes=2 * MIB),
            request(memory_limit_in_bytes=MIB),
            2,
            {"memory_limit_in_bytes": (2 * MIB, MIB)},
        ),
        (
            request(memory_limit_in_bytes=MIB, swap_bytes=4 * MIB),
            request(memory_limit_in_bytes=2 * MIB, swap_bytes=4 * MIB),
            2,
            {"memory_limit_in_bytes": (MIB, 2 * MIB), SWAP_V2: (3 * MIB, 2 * MIB)},
        ),
        (
            request(unified={SWAP_V2: "0"}),
            request(memory_limit_in_bytes=MIB, unified={SWAP_V2: "0"}),
            2,
            {"memory_limit_in_bytes": (-1, MIB)},
        ),
        (request(swap_follows=False), request(memory_limit_in_bytes=MIB, swap_follows=False), 1,
         {"memory_limit_in_bytes": (-1, MIB)}),
        (request(cpuset_cpus="0-3"), request(cpuset_cpus="0,1,2,3"), 1, {}),
        (request(), request(cpuset_cpus="1"), 1, {"cpuset_cpus": ("", "1")}),
        (request(cpuset_cpus="1"), request(cpuset_cpus=""), 1, {"cpuset_cpus": ("1", "")}),
        (request(cpuset_cpus="rubbish"), request(cpuset_cpus="1"), 1, {}),
        (
            request(unified={"memory.high": "8192"}),
            request(unified={"memory.high": "max", "memory.min": "4096", "memory.low": "0"}),
            2,
            {"memory.high": (8192, -1), "memory.min": (0, 4096)},
        ),
        (request(), request(unified={"memory.high": "4096"}), 1, {"memory.high": (-1, 4096)}),
        (request(unified={"memory.high": "rubbish"}), request(unified={"memory.high": "4096"}), 2, {}),
        (request(unified={"io.weight": "5"}), request(unified={"io.weight": "6"}), 2, {}),
    ],
)  # fmt: skip
def test_what_a_creation_edits(
    requested: RequestedResources, edited: RequestedResources, version: int, noted: Values
) -> None:
    found = of_creation(requested, edited, version, Weights.LINEAR)
    assert found == {name: Original(*pair, Pending.CREATED) for name, pair in noted.items()}


@pytest.mark.parametrize(
    ("requested", "edited", "noted"),
    [
        (
            request(cpuset_cpus="0-1"),
            request(cpuset_cpus="0-1"),
            KEPT,
        ),  # what it has, of ours, laid under an update of something else
        (request(cpuset_cpus="0-1"), request(cpuset_cpus="1"), Original("2-3", "1", Pending.UPDATED)),
        (request(cpuset_cpus="0-1"), request(cpuset_cpus="2-3"), None),
        (request(cpuset_cpus="0-1"), request(cpuset_cpus=""), KEPT),  # no update empties a set
        (request(cpuset_cpus="4"), request(cpuset_cpus="0-1"), Original("4", "0-1", Pending.UPDATED)),
        (request(cpuset_cpus="4"), request(cpuset_cpus=""), Original("4", "0-1", Pending.UPDATED)),
        (request(cpuset_cpus="4"), request(cpuset_cpus="4"), None),
    ],
)
def test_what_an_update_edits_of_what_was_known(
    requested: RequestedResources, edited: RequestedResources, noted: Original | None
) -> None:
    found = of_update({"cpuset_cpus": KEPT}, requested, edited, 1, Weights.LINEAR)
    assert found == ({} if noted is None else {"cpuset_cpus": noted})


def test_an_update_that_does_not_name_a_key_leaves_what_is_known_of_it() -> None:
    known = {"memory.high": Original(-1, 4096)}
    assert of_update(known, request(cpu_shares=2), request(cpu_shares=2), 2, Weights.LINEAR) == known


class Noted:
    """The record as both front ends write it."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.undo = opened(UndoRecord(root / "undo", "boot"))
        self.metrics = Metrics()
        writer = Writer(Tree(version, root / "cgroup", {}))
        self.originals = OriginalsRecorder(self.undo, writer, self.metrics)

    def ask(self, method: str, attempt: int = 0, **resources: Any) -> hooks.ContainerResourceHookResponse:
        server = HookServer(lambda: (policy(V2), NO_LIMITS), self.metrics, originals=self.originals)
        request = hooks.ContainerResourceHookRequest(**POD)
        request.pod_meta.uid, request.container_meta.attempt = "uid", attempt
        if resources:
            request.container_resources.CopyFrom(hooks.LinuxContainerResources(**resources))
        reply = server.methods()[f"/{SERVICE}/{method}"](request.SerializeToString(), OURS)
        assert isinstance(reply, ServerReply)
        return hooks.ContainerResourceHookResponse.FromString(reply.message)

    def of(self, key: ContainerKey) -> Mapping[str, Original]:
        originals = self.undo.originals_of(key)
        return {} if originals is None else originals.values


@pytest.fixture
def noted(tmp_path: Path) -> Noted:
    return Noted(tmp_path)


def test_a_hook_call_notes_what_it_edits(noted: Noted) -> None:
    noted.ask("PreCreateContainerHook", attempt=3)
    assert noted.of(ContainerKey("uid", "main", 3)) == {
        "cpu_shares": Original(2, 1536, Pending.CREATED),
        "cpu_quota": Original(-1, 200_000, Pending.CREATED),
        "memory_limit_in_bytes": Original(-1, 4 << 30, Pending.CREATED),
        SWAP_V2: Original(-1, 0, Pending.CREATED),
        "cpuset_cpus": Original("0-15", "", Pending.CREATED),
    }
    noted.ask("PreUpdateContainerResourcesHook", attempt=3, cpu_shares=5, cpu_quota=200_000)
    assert noted.of(ContainerKey("uid", "main", 3))["cpu_shares"] == Original(5, 1536, Pending.UPDATED)
    assert noted.of(ContainerKey("uid", "main", 3))["cpu_quota"] == Original(-1, 200_000, Pending.CREATED)


@pytest.mark.parametrize("method", ["PreStartContainerHook", "PostStartContainerHook"])
def test_other_calls_note_nothing(noted: Noted, method: str) -> None:
    noted.ask(method)
    assert noted.undo.originals == ()


def test_while_another_front_end_acts_nothing_is_noted(noted: Noted) -> None:
    server = HookServer(lambda: (policy(V2), NO_LIMITS), noted.metrics, acts=lambda: False, originals=noted.originals)
    request = hooks.ContainerResourceHookRequest(**POD).SerializeToString()
    server.methods()[f"/{SERVICE}/PreCreateContainerHook"](request, {})
    assert noted.undo.originals == ()


def test_an_edit_that_cannot_be_noted_is_answered_counted_and_logged(
    noted: Noted, caplog: pytest.LogCaptureFixture
) -> None:
    noted.undo.close()
    with caplog.at_level(logging.WARNING):
        answer = noted.ask("PreCreateContainerHook")
    assert answer.container_resources.cpu_shares == 1536
    assert noted.metrics.unrecorded_edits == 1
    assert "container main (attempt 0) of pod uid: what kubelet requested is not noted" in caplog.text


def test_nri_notes_what_it_edits(noted: Noted) -> None:
    hooks_ = Hooks(
        lambda: (policy(HostFacts(), limitsInCRI=True), NO_LIMITS),
        noted.metrics,
        lambda: True,
        lambda target: "0-7",
        originals=noted.originals,
    )
    methods = PluginService(hooks_, lambda peer: None).methods()
    of = nris.be()
    spec = nris.resources(shares=2)
    made = nris.container(of, spec, {"io.kubernetes.container.restartCount": "2"})
    key = ContainerKey("uid", made.name, 2)
    methods[NRI, "CreateContainer"](nri.CreateContainerRequest(pod=of, container=made).SerializeToString())
    assert noted.of(key) == {
        "cpu_shares": Original(2, 512, Pending.CREATED),
        "cpu_quota": Original(-1, 100_000, Pending.CREATED),
        "memory_limit_in_bytes": Original(-1, 64 * MIB, Pending.CREATED),
    }
    spec.cpu.shares.value, spec.cpu.quota.value, spec.memory.limit.value = 512, 100_000, 64 * MIB
    made.linux.resources.CopyFrom(spec)
    wanted = nris.resources(shares=7)
    update = nri.UpdateContainerRequest(pod=of, container=made, linux_resources=wanted)
    methods[NRI, "UpdateContainer"](update.SerializeToString())
    assert noted.of(key)["cpu_shares"] == Original(7, 512, Pending.UPDATED)
    assert noted.of(key)["cpu_quota"] == Original(-1, 100_000, Pending.CREATED)


class NriRuntime:
    """A runtime that makes a container of a batch pod, and tells NRI's plugins."""

    def __init__(self, noted: Noted, root: Path, version: int) -> None:
        hooks_ = Hooks(
            lambda: (policy(HostFacts()), NO_LIMITS),
            noted.metrics,
            lambda: True,
            lambda target: "0-7",
            originals=noted.originals,
        )
        self._methods = PluginService(hooks_, lambda peer: None).methods()
        self.pod, self.noted = nris.be(), noted
        self.container = nris.container(self.pod, nris.resources(shares=2))
        self.key = ContainerKey("uid", self.container.name, 0)
        self.cgroup = self.container.linux.cgroups_path
        self._files = FILES[version]
        self._root = root / "cgroup"
        for name, (value, _) in self._files.items():
            self.path(name).parent.mkdir(parents=True, exist_ok=True)
            self.path(name).write_text(f"{value}\n")

    def path(self, name: str) -> Path:
        """Of one of ``FILES``."""
        return self._root / name.format(cgroup=self.cgroup.strip("/"))

    def create(self) -> nri.ContainerAdjustment:
        request = nri.CreateContainerRequest(pod=self.pod, container=self.container)
        return nri.CreateContainerResponse.FromString(self._call("CreateContainer", request)).adjust

    def start(self, since_0_12: bool = True) -> None:
        if since_0_12:
            self._call("StartContainer", nri.StartContainerRequest(pod=self.pod, container=self.container))
        else:
            event = nri.StateChangeEvent(event=nri.START_CONTAINER, pod=self.pod, container=self.container)
            self._call("StateChange", event)

    def update(self, wanted: nri.LinuxResources) -> bytes:
        request = nri.UpdateContainerRequest(pod=self.pod, container=self.container, linux_resources=wanted)
        return self._call("UpdateContainer", request)

    def held(self) -> dict[str, str]:
        """What the kernel's files hold."""
        return {name: self.path(name).read_text().strip() for name in self._files}

    def expected(self, position: int) -> dict[str, str]:
        """What they should hold: 0 = as requested, 1 = with our limits."""
        return {name: values[position] for name, values in self._files.items()}

    def _call(self, method: str, request: Message) -> bytes:
        return self._methods[NRI, method](request.SerializeToString())


FILES = {
    1: {
        "cpu/{cgroup}/cpu.shares": ("2", "512"),
        "cpu/{cgroup}/cpu.cfs_quota_us": ("-1", "100000"),
        "memory/{cgroup}/memory.limit_in_bytes": ("9223372036854771712", str(64 * MIB)),
    },
    2: {
        "{cgroup}/cpu.weight": ("1", "20"),
        "{cgroup}/cpu.max": ("max 100000", "100000 100000"),
        "{cgroup}/memory.max": ("max", str(64 * MIB)),
    },
}
"""By cgroup version: files with what they hold as kubelet requested, and with our limits."""


@pytest.fixture(params=[1, 2])
def nri_runtime(request: pytest.FixtureRequest, tmp_path: Path) -> NriRuntime:
    return NriRuntime(Noted(tmp_path, request.param), tmp_path, request.param)


@pytest.mark.parametrize("since_0_12", [True, False])
def test_nri_is_not_told_of_limits_which_are_there_before_the_start(nri_runtime: NriRuntime, since_0_12: bool) -> None:
    adjusted = nri_runtime.create()
    assert nris.said(adjusted.linux.resources) == {}
    assert nri_runtime.noted.of(nri_runtime.key) == {
        "cpu_shares": Original(2, 512, Pending.STARTED),
        "cpu_quota": Original(-1, 100_000, Pending.STARTED),
        "memory_limit_in_bytes": Original(-1, 64 * MIB, Pending.STARTED),
    }
    assert nri_runtime.held() == nri_runtime.expected(0)
    nri_runtime.start(since_0_12)
    assert nri_runtime.held() == nri_runtime.expected(1)


def test_an_update_of_something_else_before_the_start_forgets_no_limit(nri_runtime: NriRuntime) -> None:
    nri_runtime.create()
    nri_runtime.update(nris.resources(cpus="0-1"))
    nri_runtime.start()
    assert nri_runtime.held() == nri_runtime.expected(1)


def test_an_update_of_a_limit_before_the_start_is_what_is_put_back(nri_runtime: NriRuntime) -> None:
    nri_runtime.create()
    nri_runtime.update(nris.resources(shares=7))
    assert nri_runtime.noted.of(nri_runtime.key)["cpu_shares"] == Original(7, 512, Pending.STARTED)


def test_what_is_not_noted_is_not_written(nri_runtime: NriRuntime) -> None:
    nri_runtime.noted.undo.close()
    nri_runtime.create()
    nri_runtime.start()
    assert nri_runtime.held() == nri_runtime.expected(0)


def test_a_limit_that_cannot_be_written_stops_no_start_and_no_other_limit(nri_runtime: NriRuntime) -> None:
    nri_runtime.create()
    name, value = next(iter(nri_runtime.expected(1).items()))
    nri_runtime.path(name).unlink()
    nri_runtime.start()
    nri_runtime.path(name).write_text(value)
    assert nri_runtime.held() == nri_runtime.expected(1)
    assert nri_runtime.noted.metrics.late_limits == 1
