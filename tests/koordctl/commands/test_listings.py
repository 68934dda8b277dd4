"""Pods, planned writes, the journal and metrics are listed as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.koordctl.commands.fullnode import full_scene, lines_of
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


async def test_pods(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "pods")
    assert lines == [
        "NAMESPACE POD QOS PRIORITY CONTAINER STATE CPUS QUOTA(us) SHARES MEMORY AS DESIRED",
        "default db LSR koord-prod postgres running 0-1 none 1536 4Gi yes",
        "default job BE koord-prod worker running all 150000 1536 4Gi no: cpu_quota",
        "default web LS koord-prod - ready - - - - -",
        "",
        "default/web: resource-status: '{' is no JSON; treated as absent",
    ]


async def test_pods_wide_says_file_and_why(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "pods", "-o", "wide", "-n", "default", "job")
    assert (
        "default job BE worker cpu_quota 200000 150000 differs hooks: batchResource: batch-cpu limit 2000m "
        "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us"
    ) in lines


async def test_no_pods(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        assert (await koordctl("pods", "nobody", "--socket", path))[:2] == (0, "No pods.\n")


async def test_plan_and_journal(tmp_path: Path) -> None:
    path = "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us"
    lines = await lines_of(tmp_path / "plan", "plan")
    assert lines[:4] == [
        "POD VALUE BEFORE AFTER BY WHY FILE",
        f"default/job cpu_quota 150000 200000 hooks batchResource: batch-cpu limit 2000m {path}",
        "",
        "STRATEGY STAGE STATE FILES SAYS",
    ]
    assert "cpuNormalization normalization disabled 0 disabled by configuration" in lines[4:], "those that are not on"
    assert await lines_of(tmp_path, "journal") == [
        "TIME POD VALUE BEFORE AFTER RESULT BY FILE",
        f"1970-01-01 00:16:28.000 default/job cpu_quota none 200000 done hooks {path}",
    ]
    assert (await lines_of(tmp_path, "journal", "-o", "wide"))[1].endswith("limit_milli=2000, period_us=100000")
    assert await lines_of(tmp_path, "journal", "--since", "10m") == ["No entries."]


async def test_metrics(tmp_path: Path) -> None:
    assert await lines_of(tmp_path, "metrics", "pod_") == [
        "METRIC OBJECT VALUE UNIT",
        "pod_cpu_usage_cores default/job 0.5 cores",
        "pod_memory_usage_bytes default/job 3.0Mi bytes",
    ]
    assert await lines_of(tmp_path, "metrics", "node_cpu", "--history") == [
        "METRIC OBJECT VALUE UNIT HISTORY",
        "node_cpu_usage_cores node 1.25 cores ▄█",
    ]
    assert await lines_of(tmp_path, "metrics", "node_memory") == ["No samples."]


@pytest.mark.parametrize("arguments", [("top", "--once"), ("top",)], ids=["once", "no terminal"])
async def test_one_picture_of_top_needs_no_terminal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    lines = await lines_of(tmp_path, *arguments)
    assert lines[0].endswith("1970-01-01 00:16:40 16 CPUs 16.0 GiB 1 pods")
    assert [line.split()[0] for line in lines[1:6]] == ["CPU", "BE", "memory", "stalled", "history"]
    assert lines[6:] == [
        "",
        "POD QOS CPU MEMORY THR% CPUW% MEMW% HISTORY",
        "default/job BE 0.50 3.0Mi - - -",
    ]
