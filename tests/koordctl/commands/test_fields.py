"""``--fields`` and ``--sort-by`` choose and order the columns of every listing, and the members of its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qosd.strategies import speakers
from tests.koordctl.commands.fullnode import full_scene, lines_of
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import inspecting


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["pods", "--fields", "cpu_quota,name,uid"],
            ["QUOTA(us) POD UID", "none db db", "150000 job job", "- web web"],
        ),
        (
            ["pods", "--fields", "name,as_desired", "--sort-by", "as_desired"],
            ["POD AS DESIRED", "job no: cpu_quota", "db yes", "web -"],
        ),
        (["pods", "--fields", "name", "--sort-by=-cpu_quota"], ["POD", "job", "db", "web"]),
        (
            ["pods", "-n", "default", "job", "-o", "wide", "--fields", "field,actual", "--sort-by", "-field"],
            [
                "VALUE ACTUAL",
                "memory_limit_in_bytes 4Gi",
                "cpuset_cpus all",
                "cpu_shares 1536",
                "cpu_quota 150000",
            ],
        ),
        (
            ["metrics", "--sort-by", "-value", "--fields", "name,value", "pod_"],
            ["METRIC VALUE", "pod_memory_usage_bytes 3.0Mi", "pod_cpu_usage_cores 0.5"],
        ),
        (["journal", "--fields", "tick,result"], ["TICK RESULT", "1 done"]),
        (
            ["plan", "--fields", "pod,after,inputs"],
            ["POD AFTER INPUTS", "default/job 200000 limit_milli=2000, period_us=100000"],
        ),
        (
            ["node", "--section", "loops", "--fields", "name,age_s", "--sort-by", "-age_s"],
            ["LOOP AGE", "node 0.9 s", "pods never"],
        ),
        (["node", "--section", "contested"], ["contested: none"]),
        (
            ["disable", "all", "--fields", "state,name", "--sort-by", "name"],
            ["STATE STRATEGY", *(f"disabled {name}" for name in sorted(each.name for each in speakers()))],
        ),
    ],
    ids=" ".join,
)
async def test_fields_and_order(tmp_path: Path, arguments: list[str], lines: list[str]) -> None:
    assert (await lines_of(tmp_path, *arguments))[: len(lines)] == lines


@pytest.mark.parametrize(
    ("arguments", "key", "objects"),
    [
        (["pods", "--fields", "name,cpu_quota"], "pods", [
            {"name": "db", "cpu_quota": "-1"}, {"name": "job", "cpu_quota": "150000"}, {"name": "web"},
        ]),
        (["metrics", "pod_", "--fields", "object,value", "--sort-by", "value"], "metrics", [
            {"object": "default/job", "value": 0.5}, {"object": "default/job", "value": 3.0 * (1 << 20)},
        ]),
        (["journal", "--fields", "name,after"], "entries", [{"name": "cpu_quota", "after": "200000"}]),
        (["plan", "--fields", "inputs"], "writes", [
            {"inputs": {"limit_milli": 2000, "period_us": 100_000}},
        ]),
        (["node", "--section", "loops", "--fields", "name"], "loops", [{"name": "node"}, {"name": "pods"}]),
        (["enable", "all", "--fields", "name", "--sort-by", "-stage"], "strategies", [
            {"name": each.name} for each in sorted(speakers(), key=lambda each: each.stage.name.lower(), reverse=True)
        ]),
        (["top", "--once", "--fields", "pod,memory_usage_bytes"], "pods", [
            {"pod": "default/job", "memory_usage_bytes": 3.0 * (1 << 20)},
        ]),
    ],
)  # fmt: skip
async def test_fields_and_order_for_programs(
    tmp_path: Path, arguments: list[str], key: str, objects: list[dict[str, object]]
) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "-o", "json", "--socket", path)
        whole = await koordctl(*arguments[: arguments.index("--fields")], "-o", "json", "--socket", path)
    assert (code, json.loads(out)[key]) == (0, objects), err
    assert json.loads(out).keys() == json.loads(whole[1]).keys()
