"""``koordctl explain`` says of each file what it holds, who decided that and what the value was made of."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from koord.host.files import Target
from koord.host.placement import Membership
from koord.model import formulas
from koord.model.formulas import FORMULA
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import StrategyResult, StrategyStatus
from tests.koordctl.commands.fullnode import full_scene, lines_of
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import batch_scene, inspecting, v1_files

QUOTA = Target("/kubepods/besteffort/podjob/worker", "cpu_quota")


async def test_explain(tmp_path: Path) -> None:
    lines = await lines_of(tmp_path, "explain", "pod", "default/job")
    assert lines[:9] == [
        "default/job: BE by label; koord-prod; ready; cgroup /kubepods/besteffort/podjob",
        "",
        "/cpu/kubepods/besteffort/podjob/worker/cpu.cfs_quota_us",
        "cpu_quota of container worker of default/job, decided by hooks",
        "holds 150000; written 12 s ago, before that -1 (none); base -1 (none); DIFFERS from 200000",
        "result 200000 = cpu_quota(limit_milli=2000, period_us=100000)",
        "cpu_quota: floor(limit_milli * period_us / 1000), at least 1000; -1 if there is no limit",
        "because batchResource: batch-cpu limit 2000m",
        "",
    ]
    assert "worker cpu_shares 1536 /cpu/kubepods/besteffort/podjob/worker/cpu.shares" in lines


async def test_explain_says_why_a_file_is_left_alone(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    left = Target(QUOTA.cgroup.rpartition("/")[0], "cpu_quota")
    v1_files(tmp_path, left.cgroup, "-1")
    why = "batchResource: left alone: the native amounts of istio-proxy are unknown"
    node.results[0] = replace(node.results[0], decision=Decision("", {left: Opinion.release(why, "default/job")}))
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
    lines = [" ".join(line.split()).replace(str(tmp_path), "") for line in out.splitlines()]
    assert f"- cpu_quota none {'/cpu' + left.cgroup}/cpu.cfs_quota_us {why}" in lines


async def test_explain_shows_what_the_only_change_was_made_of(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    bound = Opinion.at_most(90_000, "busy", {FORMULA: "cpu_quota", "limit_milli": 900})
    node.results[0] = replace(node.results[0], decision=Decision("", {QUOTA: bound}))
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "file", f"{QUOTA.cgroup}/{QUOTA.name}", "--socket", path)
    lines = [line.strip() for line in out.splitlines()]
    assert "result 90000 = composed(value=-1, minimum=1000, spec_at_most=90000)" in lines
    assert "spec: hooks: at most 90000 = cpu_quota(limit_milli=900) → 90000; busy" in lines


async def test_explain_shows_every_stage_of_a_composition(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    node.results += [
        StrategyResult(
            "half",
            Stage.NORMALIZATION,
            StrategyStatus.ACTIVE,
            Decision("", {QUOTA: Opinion.scale(Fraction(1, 2), "a faster CPU")}),
        ),
        StrategyResult("other", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", {QUOTA: Opinion.set(1, "mine")})),
        StrategyResult(
            "limit", Stage.SUPPRESSION, StrategyStatus.ACTIVE, Decision("", {QUOTA: Opinion.at_most(90_000, "busy")})
        ),
        StrategyResult(
            "floor",
            Stage.ENFORCEMENT,
            StrategyStatus.ACTIVE,
            Decision("", {QUOTA: Opinion.at_least(95_000, "a promise")}),
        ),
    ]
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "file", f"{QUOTA.cgroup}/{QUOTA.name}", "--socket", path)
    lines = [line.strip() for line in out.splitlines()]
    fed = "value=200000, minimum=1000, normalization_factor=1/2, suppression_at_most=90000, enforcement_at_least=95000"
    assert f"result 95000 = composed({fed})" in lines
    assert "normalization: half: scale 0.5 → 100000; a faster CPU" in lines
    assert "suppression: limit: at most 90000 → 90000; busy" in lines
    assert "enforcement: floor: at least 95000 → 95000; a promise" in lines
    assert (
        "spec: other: set 1; mine; NOT FOLLOWED: SPEC of /kubepods/besteffort/podjob/worker/cpu_quota is hooks's"
        in lines
    )


async def test_explain_says_in_which_resctrl_group_tasks_are_kept(tmp_path: Path) -> None:
    node = full_scene(tmp_path)
    membership = (Membership(QUOTA.cgroup, "BE", "BE pods belong to group BE", "default/job"),)
    node.results.append(StrategyResult("resctrl", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", acts=membership)))
    node.placed = {QUOTA.cgroup: "BE"}
    async with inspecting(tmp_path / "i.sock", node) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
    block = out[out.index("/BE/tasks") :].splitlines()
    assert [line.strip() for line in block[1:5]] == [
        "resctrl.tasks of container worker of default/job, decided by resctrl",
        "holds BE",
        "result BE",
        "because BE pods belong to group BE",
    ]


async def test_the_result_can_be_computed_again_from_what_is_printed(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        _, out, _ = await koordctl("explain", "pod", "job", "-o", "json", "--socket", path)
    decided = [file for file in json.loads(out)["files"] if file["owner"]]
    assert [str(formulas.recompute({FORMULA: f["formula"], **f["inputs"]})) for f in decided] == ["200000"]
    assert [file["result"] for file in decided] == ["200000"]
