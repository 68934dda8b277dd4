"""``koordctl pods`` as a process against a real NodeInspect server, and what it says when there is none."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from koord.host import cgroup
from koord.pb.koord import inspect_pb2 as inspect
from koord.service import rpc
from koordctl import pods
from qosd.hooks.rules import HostFacts
from qosd.inspect.runtime import Runtime
from qosd.inspect.service import Inspector
from qosd.metrics import Metrics
from qosd.rules import RulesSource
from tests.qosd.fake_cri import FakeRuntime
from tests.qosd.pods import EXTENDED, QOS, STATUS, extended
from tests.qosd.test_inspect import v1_tree


async def koordctl(*arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a run."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "koordctl", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode or 0, out.decode(), err.decode()


def three_pods(tmp_path: Path) -> FakeRuntime:
    """An LSR pod as desired, a BE pod whose quota someone lowered, and a pod with a bad annotation and no container."""
    fake = FakeRuntime()
    database = fake.add_pod("db", "/kubepods/poddb", {QOS: "LSR"}, {STATUS: '{"cpuset":"0-1"}'})
    fake.add_container(database, "postgres", "/kubepods/poddb/c1", -1)
    v1_tree(tmp_path / "cgroup", "/kubepods/poddb/c1", quota="-1")
    document = json.dumps(extended("worker", request="1500", limit="2000", memory="4Gi"))
    job = fake.add_pod("job", "/kubepods/besteffort/podjob", {QOS: "BE"}, {EXTENDED: document})
    fake.add_container(job, "worker", "/kubepods/besteffort/podjob/c2")
    v1_tree(tmp_path / "cgroup", "/kubepods/besteffort/podjob/c2", quota="150000")
    fake.add_pod("web", "/kubepods/burstable/podweb", {QOS: "LS"}, {STATUS: "{"})
    return fake


@asynccontextmanager
async def inspecting(tmp_path: Path, fake: FakeRuntime, rules_text: str = "") -> AsyncIterator[str]:
    """A NodeInspect server over ``fake``; yields its socket."""
    (tmp_path / "rules.yaml").write_text(rules_text)
    rules = RulesSource(tmp_path / "rules.yaml", HostFacts, Metrics())
    rules.load()
    async with fake.serving(tmp_path / "cri.sock") as endpoint:
        runtime = Runtime(endpoint, 5)
        inspector = Inspector(runtime, cgroup.detect(tmp_path / "cgroup", ""), rules)
        server = await rpc.listen(tmp_path / "i.sock", 0o600, [inspector.service()])
        try:
            yield str(tmp_path / "i.sock")
        finally:
            await server.stop(None)
            await runtime.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pods", "--no-such"], "No such option"),
        (["pods", "-o", "xml"], "xml"),
        (["nodes"], "nodes"),
        (["pods", "--timeout", "0"], "timeout"),
    ],
)
async def test_wrong_usage(arguments: list[str], said: str) -> None:
    code, out, err = await koordctl(*arguments)
    assert (code, out, said in err) == (1, "", True)


async def test_no_daemon(tmp_path: Path) -> None:
    code, out, err = await koordctl("pods", "--socket", f"{tmp_path}/none.sock")
    assert (code, out) == (2, "")
    assert err.startswith(f"koordctl: no socket at {tmp_path}/none.sock: is koord-qosd running")


async def test_a_dead_daemons_socket(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "i.sock")
    server.close()
    await server.wait_closed()
    if not (tmp_path / "i.sock").exists():
        pytest.skip("this Python removes the socket file on close")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock")
    assert (code, "nobody listens" in err) == (2, True)


async def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "i.sock")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock", "--timeout", "0.3")
    server.close()
    assert (code, "did not answer within 0.3 s" in err) == (2, True)


async def test_a_runtime_that_is_gone_is_the_daemons_answer(tmp_path: Path) -> None:
    rules = RulesSource(tmp_path / "rules.yaml", HostFacts, Metrics())
    runtime = Runtime(f"unix://{tmp_path}/none.sock", 2)
    inspector = Inspector(runtime, cgroup.detect(tmp_path, ""), rules)
    server = await rpc.listen(tmp_path / "i.sock", 0o600, [inspector.service()])
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock")
    await server.stop(None)
    await runtime.close()
    assert (code, "the container runtime does not answer" in err, "none.sock" in err) == (3, True, True)


async def test_table(tmp_path: Path) -> None:
    async with inspecting(tmp_path, three_pods(tmp_path), "node: {typo: 1}") as path:
        code, out, err = await koordctl("pods", "--socket", path)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == [
        "NAMESPACE",
        "POD",
        "QOS",
        "PRIORITY",
        "CONTAINER",
        "STATE",
        "CPUS",
        "QUOTA(us)",
        "SHARES",
        "MEMORY",
        "AS",
        "DESIRED",
    ]
    assert lines[1] == [
        "default",
        "db",
        "LSR",
        "koord-prod",
        "postgres",
        "running",
        "0-1",
        "none",
        "1536",
        "4Gi",
        "yes",
    ]
    assert lines[2] == [
        "default",
        "job",
        "BE",
        "koord-batch",
        "worker",
        "running",
        "all",
        "150000",
        "1536",
        "4Gi",
        "no:",
        "cpu_quota",
    ]
    assert lines[3][:6] == ["default", "web", "LS", "koord-prod", "-", "ready"]
    assert "default/web: scheduling.koordinator.sh/resource-status" in out
    assert "warning: " in err
    assert "node.typo" in err


async def test_wide_says_file_and_why(tmp_path: Path) -> None:
    async with inspecting(tmp_path, three_pods(tmp_path)) as path:
        _, out, _ = await koordctl("pods", "--socket", path, "-o", "wide", "-n", "default", "job")
    quota = next(line for line in out.splitlines() if "cpu_quota" in line)
    assert quota.split()[4:8] == ["cpu_quota", "200000", "150000", "differs"]
    assert "batchResource: batch-cpu limit 2000m" in quota
    assert quota.endswith("/cpu/kubepods/besteffort/podjob/c2/cpu.cfs_quota_us")
    assert "default/job: BE by label; cgroup parent /kubepods/besteffort/podjob" in out


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_for_programs(tmp_path: Path, output: str) -> None:
    async with inspecting(tmp_path, three_pods(tmp_path)) as path:
        code, out, _ = await koordctl("pods", "--socket", f"unix://{path}", "-o", output)
    document = json.loads(out) if output == "json" else yaml.safe_load(out)
    assert code == 0
    assert [pod["name"] for pod in document["pods"]] == ["db", "job", "web"]
    value = document["pods"][1]["containers"][0]["values"][1]
    assert (value["field"], value["desired"], value["actual"], value["unit"]) == ("cpu_quota", "200000", "150000", "us")
    assert document["pods"][2]["problems"]
    assert document["warnings"] == []


async def test_no_pods(tmp_path: Path) -> None:
    async with inspecting(tmp_path, FakeRuntime()) as path:
        assert await koordctl("pods", "--socket", path) == (0, "No pods.\n", "")


@pytest.mark.parametrize(
    ("unit", "field", "text", "human"),
    [
        ("bytes", "memory_limit_in_bytes", "4294967296", "4Gi"),
        ("bytes", "memory_limit_in_bytes", "-1", "none"),
        ("bytes", "memory_limit_in_bytes", "1500", "1500"),
        ("us", "cpu_quota", "-1", "none"),
        ("", "cpuset_cpus", "", "all"),
        ("", "cpu.bvt_warp_ns", "-1", "-1"),
        ("bytes", "memory.high", "max", "max"),
        ("bytes", "memory.min", "0", "0"),
    ],
)
def test_values_for_people(unit: str, field: str, text: str, human: str) -> None:
    assert pods.human(inspect.Value(field=field, unit=unit), text) == human


async def test_help_is_cheap_and_documents_the_exit_codes() -> None:
    code, out, _ = await koordctl("pods", "--help")
    assert code == 0
    assert "2  the daemon cannot be reached" in out
    probe = "import sys; import koordctl.__main__; sys.exit('grpc' in sys.modules or 'yaml' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", probe)
    assert await process.wait() == 0
