"""The example of docs/write-a-scheduler-plugin.md: pip installs it, a configuration names it, and it places pods."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koord.scheduling.framework import Framework
from koord.scheduling.state import ClusterState
from koord_scheduler import configuration
from koord_scheduler.profiles import Profile
from koord_scheduler.userplugins import GROUP
from tests.koord_scheduler.rig import Rig, running
from tests.kube.support import NODES
from tests.scheduling.clusters import node, pod
from tests.support.waiting import until

EXAMPLE = Path(__file__).parents[2] / "examples/scheduler-plugin"
RACK = "example.com/rack"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, as its wheel has it."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, f"--target={target}", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def profile(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Profile]:
    """The profile that the example's configuration has."""
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    (found,) = configuration.read(EXAMPLE / "config.yaml").profiles
    yield found
    sys.modules.pop("rackpower", None)


def rack_node(rig: Rig, name: str, rack: str | None) -> None:
    labels = {RACK: rack} if rack else {}
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    rig.server.put(NODES, "", name, metadata={"labels": labels}, status={"allocatable": allocatable})


def prepare(rig: Rig) -> None:
    """Two racks of two nodes; ``rackpower`` lets each have 4 CPUs, of the 16 that its nodes have."""
    for index in range(4):
        rack_node(rig, f"n{index}", f"r{index // 2}")


def rack_of(rig: Rig, name: str) -> str:
    return str((rig.stored(name) or {})["metadata"].get("labels", {}).get(RACK))


def test_it_is_less_than_sixty_lines() -> None:
    assert len((EXAMPLE / "rackpower.py").read_text().splitlines()) < 60


def test_what_is_installed(site: Path) -> None:
    (entry_points,) = site.glob("rackpower-*.dist-info/entry_points.txt")
    assert entry_points.read_text().split() == [f"[{GROUP}]", "RackPower", "=", "rackpower:RackPower"]


async def test_racks_fill_evenly_up_to_their_power(profile: Profile) -> None:
    async with running(prepare, profiles=(profile,)) as rig:
        await rig.lead()
        names = [f"p{index}" for index in range(8)]
        for name in names:
            rig.pod(name)
            await rig.placed(name)
        racks = [rack_of(rig, name) for name in names]
        assert [racks.count(rack) for rack in ("r0", "r1")] == [4, 4]
        assert all(racks[index] != racks[index + 1] for index in range(0, 8, 2)), "the emptier one, each time"
        assert all(rack_of(rig, name) == f"r{int(rig.node_of(name)[1:]) // 2}" for name in names)
        rig.pod("more")
        await until(lambda: rig.condition("more")[1] == "Unschedulable")
        message = "0/4 nodes are available: 4 node(s) in racks without enough power."
        assert rig.condition("more")[2].startswith(message)
        rack_node(rig, "n4", None)
        rig.offset_s += 20
        assert await rig.placed("more") == ["n4"]
        assert rack_of(rig, "more") == "None", "a node that is in no rack is free"


async def test_a_pod_that_leaves_gives_its_power_back(profile: Profile) -> None:
    def full(rig: Rig) -> None:
        prepare(rig)
        for index in range(4):
            rig.pod(f"x{index}", "2", nodeName=f"n{index}")

    async with running(full, profiles=(profile,)) as rig:
        await rig.lead()
        rig.pod("p")
        await until(lambda: rig.condition()[1] == "Unschedulable")
        rig.server.delete("/api/v1/pods", "default", "x3")
        rig.offset_s += 20
        assert await rig.placed("p") in (["n2"], ["n3"])


@pytest.mark.parametrize("requested", [None, "cpu"])
def test_filter_and_score_agree_with_the_explanation(profile: Profile, requested: Any) -> None:
    state = ClusterState()
    for index in range(3):
        state.put_node(node(f"n{index}", labels={RACK: f"r{index}"}))
    if requested:
        state.put_pod(pod("x", {"cpu": "3"}, nodeName="n1"))
    framework, waiting = Framework(state, profile.plugins), pod("p", {"cpu": "2"})
    said = {f"n{index}": framework.explain(waiting, f"n{index}").by_plugin["RackPower"] for index in range(3)}
    assert {name: each.score for name, each in said.items()} == {"n0": 100, "n1": None if requested else 100, "n2": 100}
    assert [bool(each.reasons) for each in said.values()] == [False, bool(requested), False]


@pytest.mark.parametrize("file", ["rackpower.py", "pyproject.toml", "config.yaml"])
def test_the_page_shows_it_as_it_is(file: str) -> None:
    page = (EXAMPLE.parents[1] / "docs/write-a-scheduler-plugin.md").read_text()
    assert f"\n{(EXAMPLE / file).read_text()}```\n" in page


def test_the_examples_of_the_page_say_what_it_says(profile: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLE.parents[1] / "docs/write-a-scheduler-plugin.md").read_text()
    _, code, output, *_ = [part for part in page.partition("**4. The test.**")[2].split("```")[:4] if part.strip()]
    exec(compile(code.removeprefix("python\n"), "page", "exec"), {})
    assert capsys.readouterr().out == output.lstrip()
