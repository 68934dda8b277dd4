"""Disks, interfaces and cache domains."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping

import pytest

from qosd.sense.devices import DiskRow, DisksCollector, InterfaceRow, NetworkCollector
from qosd.sense.rdt import CacheRow, ResctrlCollector
from qosd.sense.tick import NotApplicable
from tests.qosd.sense.trees import World, run

NAN = math.nan


def diskstats(reads: int, sectors: int, ms: int) -> str:
    numbers = f"{reads} 0 {sectors} {ms} 0 0 0 0 0 {ms} {ms}"
    return "".join(f"8 {minor} {name} {numbers}\n" for minor, name in enumerate(("sda", "sda1", "loop0", "zram0")))


def test_disks_are_whole_disks(v2: World) -> None:
    (v2.root / "sys/block/sda").mkdir(parents=True)
    (v2.root / "sys/block/loop0").mkdir()
    collector = DisksCollector(v2.host)
    seen = []
    for numbers in ((10, 100, 50), (20, 300, 1050), (5, 0, 0)):
        v2.put("proc/diskstats", diskstats(*numbers))
        seen.append(run(v2, collector)[DiskRow.panel])
        v2.clock.advance(5)
    assert seen[0] == {}
    assert {name: list(row) for name, row in seen[1].items()} == {"sda": [20480.0, 0.0, 2.0, 0.0, 0.2, 100_000.0]}
    assert list(seen[2]["sda"])[:3] == pytest.approx([NAN, 0.0, NAN], nan_ok=True)


def test_interfaces_are_those_that_stand_alone(v2: World) -> None:
    for index, (name, below) in enumerate({"lo": 0, "eth0": 1, "veth1": 77, "eth0.5": 1}.items()):
        v2.put(f"sys/class/net/{name}/ifindex", f"{index}\n")
        v2.put(f"sys/class/net/{name}/iflink", f"{below}\n")
    collector = NetworkCollector(v2.host)
    for count in (100, 1100):
        row = f"{count} {count} 0 {count} 0 0 0 0 {count} {count} 0 0 0 0 0 0"
        lines = "".join(f"{name}: {row}\n" for name in ("lo", "eth0", "veth1", "eth0.5"))
        v2.put("proc/net/dev", f"Inter-|\n face |\n{lines}")
        rows = run(v2, collector)[InterfaceRow.panel]
        v2.clock.advance(5)
    assert {name: list(row) for name, row in rows.items()} == {"eth0": [200.0] * 5}


def monitored(world: World, group: str, cache: str, **texts: str) -> None:
    for name, text in texts.items():
        world.put(f"resctrl/{group}/mon_data/mon_L3_{cache}/{name}", text + "\n")
    world.put(f"resctrl/{group}/tasks", "")


def test_emulated_resctrl_counters_become_rates(v2: World) -> None:
    v2.put("resctrl/schemata", "L3:0=7ff\n")
    collector = ResctrlCollector(v2.host)
    near_wrap = 2**64 - 1000
    monitored(v2, "LS", "00", llc_occupancy="4096", mbm_total_bytes=str(near_wrap), mbm_local_bytes="500")
    monitored(v2, "BE", "01", llc_occupancy="Unavailable", mbm_total_bytes="Error")
    first = run(v2, collector)[CacheRow.panel]
    assert set(first) == {"LS/0"}
    v2.clock.advance(10)
    monitored(v2, "LS", "00", llc_occupancy="8192", mbm_total_bytes="1000", mbm_local_bytes="100")
    monitored(v2, "BE", "01", mbm_total_bytes="7")
    rows = run(v2, collector)[CacheRow.panel]
    assert {name: list(row) for name, row in rows.items()} == {
        "LS/0": pytest.approx([8192.0, 200.0, NAN, 1000.0, 100.0], nan_ok=True),
        "BE/1": pytest.approx([NAN, NAN, NAN, 7.0, NAN], nan_ok=True),
    }
    shutil.rmtree(v2.root / "resctrl/LS")
    assert set(run(v2, collector)[CacheRow.panel]) == {"BE/1"}


@pytest.mark.parametrize(
    ("files", "reason"), [({}, "no resctrl mount"), ({"resctrl/schemata": ""}, "monitors neither")]
)
def test_why_there_is_no_resctrl(v2: World, files: Mapping[str, str], reason: str) -> None:
    for path, text in files.items():
        v2.put(path, text)
    with pytest.raises(NotApplicable, match=reason):
        run(v2, ResctrlCollector(v2.host))
