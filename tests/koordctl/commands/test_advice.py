"""``koordctl explain pod`` and the wide list of pods advise the owner of a limit that throttles its container."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from qosd.model.metric import Scope
from qosd.model.pod import Resources
from qosd.sense.usage import USAGE
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import Scene, batch_scene, inspecting, v1_files
from tests.qosd.podviews import view


def throttled_scene(tmp_path: Path) -> Scene:
    """An LS pod whose container runs into its quota all the time."""
    half = Resources(cpu_period_us=100_000, cpu_quota_us=50_000)
    web = view("web", "LS", containers=[("nginx", "CONTAINER_RUNNING")], container_requested=half)
    node, cgroup, usage = batch_scene(tmp_path), web.containers[1].cgroup, USAGE[Scope.CONTAINER]
    v1_files(tmp_path, cgroup, "50000")
    node.steady = {
        (usage.cpu_usage_cores, cgroup): 0.5,
        (usage.cpu_throttled_ratio, cgroup): 0.38,
        (usage.cpu_throttled_us_per_s, cgroup): 300_000.0,
    }
    assert node.snapshot is not None
    node.snapshot = replace(node.snapshot, pods=(*node.snapshot.pods, web))
    return node


ADVICE = (
    "advice for nginx: limit 500m: throttled 38 % of the periods of the last 2 min; 900m would have sufficed. "
    "To do: set limit to 900m: kubelet can do that in place (Kubernetes 1.33)"
)


async def test_explain_advises_whose_own_limit_hurts_it(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", throttled_scene(tmp_path)) as path:
        _, out, _ = await koordctl("explain", "pod", "web", "--socket", path)
        assert out.splitlines()[1:3] == [
            f"  {ADVICE}",
            "  Koord does none of this itself: beyond CPU burst, limits and requests are their owner's.",
        ]
        _, out, _ = await koordctl("explain", "pod", "web", "-o", "json", "--socket", path)
        assert json.loads(out)["pods"][0]["advice"][0]["topic"] == "throttled"
        _, out, _ = await koordctl("explain", "pod", "job", "--socket", path)
        assert "advice" not in out and "Koord does none" not in out


async def test_a_wide_list_of_pods_advises_and_no_other_pays_for_it(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", throttled_scene(tmp_path)) as path:
        _, out, _ = await koordctl("pods", "-o", "wide", "--socket", path)
        assert f"default/web: {ADVICE}" in out.splitlines()
        _, out, _ = await koordctl("pods", "--socket", path)
        assert "advice" not in out
        _, out, _ = await koordctl("pods", "-o", "json", "--socket", path)
        assert [pod["advice"] for pod in json.loads(out)["pods"]] == [[], []]
