"""A node whose three pods give every command something to say, the commands that ask, and what they print."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from qosd.model.metric import Scope
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.cgroups import Cgroups
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import SECOND, Scene, batch_scene, inspecting, v1_files
from tests.qosd.podviews import view

ASKING = [
    ("node",),
    ("pods",),
    ("explain", "pod", "job"),
    ("explain", "node"),
    ("plan",),
    ("journal",),
    ("metrics",),
    ("disable", "all"),
    ("enable", "hooks"),
]


def full_scene(tmp_path: Path) -> Scene:
    """The BE pod with a quota that someone lowered, an LSR pod as desired, and a pod with a bad annotation."""
    node = batch_scene(tmp_path, quota="150000")
    database = view("db", "LSR", "Guaranteed", containers=[("postgres", "CONTAINER_RUNNING")], cpus="0-1")
    v1_files(tmp_path, database.containers[1].cgroup)
    broken = replace(view("web", "LS", containers=[]), problems=("resource-status: '{' is no JSON; treated as absent",))
    assert node.snapshot is not None
    values = {
        NodeRow.cpu_usage_cores: {"": 1.25},
        USAGE[Scope.POD].cpu_usage_cores: {"/kubepods/besteffort/podjob": 0.5},
        USAGE[Scope.POD].memory_usage_bytes: {"/kubepods/besteffort/podjob": 3.0 * (1 << 20)},
    }
    node.snapshot = replace(node.snapshot, pods=(*node.snapshot.pods, database, broken), values=values)
    node.history = {NodeRow.cpu_usage_cores: [(99 * SECOND, 0.5), (100 * SECOND, 1.25)]}
    node.rules_file = "spec: {typo: 1}\n"
    Cgroups(tmp_path).put("/kubepods/besteffort", {"cpu.idle": "0"})
    return node


async def lines_of(tmp_path: Path, *arguments: str) -> list[str]:
    """The command's lines, each blank run one space, the tree's directory left out."""
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "--socket", path, TZ="UTC")
    assert code == 0, err
    return [" ".join(line.split()).replace(str(tmp_path), "") for line in out.splitlines()]
