"""The policy of a whole node across restarts: what an earlier run protected stays protected."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.writer import Writer
from koord.model import core
from qosd import gauges
from qosd.decide.runner import EvictionStrategy, StrategyResult, StrategyStatus
from qosd.inspect import daemon
from qosd.node import POLICY
from qosd.policy.provenance import Origin
from qosd.tickscheduler import TickReason
from tests.qosd.machine import Machine
from tests.qosd.test_node import Living, living, on_runtime

PROTECTED = 32 << 20  # half of the batch-memory of ``Living.batch_pod``
RULES = (
    "spec: {resourceQOSStrategy: {beClass: {memoryQOS: {enable: true, lowLimitPercent: 50}}}}\n"
    "node: {features: {CgroupReconcile: true}}\n"
)
BAD = "spec: {resourceQOSStrategy: {beClass: {memoryQOS: 5}}}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path, 2)
    made.kubepods()
    made.put("rules.yaml", RULES)
    return made


def low(machine: Machine, cgroup: str) -> object:
    return Writer(machine.locator().tree).read(Target(cgroup, "memory.low"))


async def protected(machine: Machine) -> str:
    """The container that a first run of qosd protected."""
    async with living(machine) as alive:
        _, container = await alive.batch_pod()
        await alive.until(lambda: low(machine, container) == PROTECTED, "a protected container")
        await alive.until((machine.root / "state" / POLICY).exists, "a kept policy")
    return container


async def ticked(alive: Living) -> None:
    """Several ticks after the pods are known."""
    await alive.until(lambda: alive.node.pods.current, "the pods")
    for _ in range(3):
        await alive.node.tick(TickReason.BEAT)


def remove(file: Path) -> None:
    file.unlink()


def spoil(file: Path) -> object:
    return file.write_text(BAD)


def empty(file: Path) -> object:
    return file.write_text("")


@pytest.mark.parametrize("change", [remove, spoil, empty])
async def test_a_restart_without_a_good_file_releases_nothing(
    machine: Machine, change: Callable[[Path], object]
) -> None:
    async with machine.runtime.serving(machine.socket):
        container = await protected(machine)
        change(machine.root / "rules.yaml")
        async with living(machine) as alive:
            await ticked(alive)
            policy = alive.node.policy.file.provenance
            assert (policy.origin, alive.writes_done, low(machine, container)) == (Origin.LAST_GOOD, 0, PROTECTED)
            assert policy.taken_unix_s is not None and policy.problem
            assert daemon.warnings(alive.node)[0].endswith("the last good rules stay")
            assert all(result.state is not StrategyStatus.FROZEN for result in _turns(alive))


async def test_a_restart_while_kubelet_is_silent_releases_nothing(machine: Machine) -> None:
    """Its first answer is waited for, and until then nobody knows which pods there are."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async with machine.runtime.serving(machine.socket), await asyncio.start_server(silent, "127.0.0.1", 0) as kubelet:
        container = await protected(machine)
        endpoint = f"http://127.0.0.1:{kubelet.sockets[0].getsockname()[1]}"
        async with living(machine, kubelet_endpoint=endpoint) as alive:
            until_s = time.monotonic() + 0.5
            while time.monotonic() < until_s:
                await alive.node.tick(TickReason.BEAT)
                assert (alive.writes_done, low(machine, container)) == (0, PROTECTED)
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("change", [remove, spoil])
async def test_a_policy_that_nobody_can_tell_freezes(machine: Machine, change: Callable[[Path], object]) -> None:
    async with machine.runtime.serving(machine.socket):
        container = await protected(machine)
        change(machine.root / "rules.yaml")
        machine.put(f"state/{POLICY}", "no copy at all")
        async with living(machine) as alive:
            await ticked(alive)
            assert (alive.node.policy.file.provenance.origin, alive.writes_done) == (Origin.UNKNOWN, 0)
            assert low(machine, container) == PROTECTED
            states = {result.name: result.state for result in _turns(alive)}
            assert states.pop(EvictionStrategy.name) is StrategyStatus.ACTIVE, "without a shortage it holds nothing"
            assert set(states.values()) == {StrategyStatus.FROZEN}
            assert "no policy is known" in _turns(alive)[0].sentence
            machine.put("rules.yaml", "spec: {}\n")
            alive.node.reload_policy()
            await alive.until(lambda: low(machine, container) == 0, "a decision for the defaults")


async def test_a_removed_file_does_not_stop_a_running_node(machine: Machine) -> None:
    async with on_runtime(machine) as alive:
        _, container = await alive.batch_pod()
        await alive.until(lambda: low(machine, container) == PROTECTED, "a protected container")
        (machine.root / "rules.yaml").unlink()
        alive.node.reload()
        await ticked(alive)
        assert (low(machine, container), alive.node.policy.file.provenance.origin) == (PROTECTED, Origin.LAST_GOOD)
        node = alive.node
        values = {family.name: read() for family, read in gauges.of(node.loop, node.journal, node.files, node.policy)}
        assert (values["policy_is_last_good"], values["policy_is_unknown"]) == (1, 0)


async def test_kubelets_place_may_be_found_while_the_file_is_being_saved(machine: Machine) -> None:
    """What the host supports is looked up again then, and the file is not."""
    async with on_runtime(machine) as alive:
        before = alive.node.policy.file.provenance
        machine.put("rules.yaml", "node: {half")
        alive.node.host.look(["/kubepods"])
        assert alive.node.policy.file.provenance is before


async def test_a_first_start_without_a_file_is_the_built_in_defaults(machine: Machine) -> None:
    (machine.root / "rules.yaml").unlink()
    async with on_runtime(machine) as alive:
        _, container = await alive.batch_pod()
        await alive.until_decided(container)
        assert alive.node.policy.file.provenance.origin is Origin.DEFAULTS
        assert alive.node.policy.file.provenance.taken_unix_s is None
    assert not (machine.root / "state" / POLICY).exists()


async def test_a_policy_read_at_the_very_end_is_kept(machine: Machine) -> None:
    async with living(machine):
        await asyncio.sleep(0)
    assert (machine.root / "state" / POLICY).read_text().endswith(RULES)


NODE = core.Node(core.ObjectMeta("worker-1", annotations={"node.koordinator.sh/reservation": '{"reservedCPUs":"0"}'}))
SPEC = {"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": True, "lowLimitPercent": 50}}}}
CLUSTER = {"kubeconfig": "/etc/kubernetes/kubelet.conf"}
AWAY = "https://10.0.0.1:6443: Connection refused"


async def test_the_clusters_policy_is_waited_for_and_outlives_the_cluster(machine: Machine) -> None:
    machine.put("rules.yaml", "node: {features: {CgroupReconcile: true}}")
    async with machine.runtime.serving(machine.socket):
        async with living(machine, **CLUSTER) as alive:
            _, container = await alive.batch_pod()
            await ticked(alive)
            assert alive.writes_done == 0, "nobody has said what shall be"
            assert {result.state for result in _turns(alive)} <= {StrategyStatus.FROZEN, StrategyStatus.ACTIVE}
            alive.node.cluster_policy.take_slo(SPEC, 7)
            alive.node.cluster_policy.take_node(NODE)
            await alive.until(lambda: low(machine, container) == PROTECTED, "a protected container")
            snapshot = alive.node.loop.snapshot
            assert snapshot is not None
            assert (snapshot.policy.slo_generation, snapshot.policy.node.reserved_cpus) == (7, "0")
        for restart in range(2):
            async with living(machine, **CLUSTER) as alive:
                if restart:
                    alive.node.cluster_policy.lost(AWAY)
                await ticked(alive)
                assert (alive.writes_done, low(machine, container)) == (0, PROTECTED)
                assert alive.node.policy.overall.origin is Origin.LAST_GOOD
        async with living(machine, **CLUSTER) as alive:
            alive.node.cluster_policy.take_slo(None, 0)
            alive.node.cluster_policy.take_node(NODE)
            await alive.until(lambda: low(machine, container) == 0, "a decision for the defaults")


async def test_where_the_policy_of_a_cluster_comes_from(machine: Machine) -> None:
    async with living(machine, **CLUSTER) as alive:
        now_ns = int(1e9 * time.time())
        assert daemon.policy(alive.node, now_ns).origin == Origin.UNKNOWN
        alive.node.cluster_policy.take_slo(SPEC, 7)
        alive.node.cluster_policy.take_node(NODE)
        alive.node.cluster_policy.lost(AWAY)
        policy = daemon.policy(alive.node, now_ns)
        assert (policy.origin, policy.source) == (Origin.LAST_GOOD, "Node worker-1 of the API server")
        assert [(each.layer, each.origin, each.problem) for each in policy.layers] == [
            ("rules file", Origin.SOURCE, ""),
            ("NodeSLO", Origin.LAST_GOOD, AWAY),
            ("Node", Origin.LAST_GOOD, AWAY),
        ]


def _turns(alive: Living) -> tuple[StrategyResult, ...]:
    return alive.node.loop.report.decisions.results
