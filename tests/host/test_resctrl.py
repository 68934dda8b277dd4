"""resctrl read from directory trees that hold what kernels print (emulated: no RDT needed)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host import resctrl
from koord.host.kernelfile import ParseError


def fill(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def mounted(root: Path) -> Path:
    fill(
        root,
        {
            "schemata": "    MB:0= 100;1= 100\n    L3:0=7ff;1=7ff\n",
            "tasks": "1\n",
            "info/L3/cbm_mask": "7ff\n",
            "info/last_cmd_status": "ok\n",
            "mon_data/mon_L3_00/llc_occupancy": "1048576\n",
            "BE/schemata": "    MB:0=  30;1=  30\n    L3:0=00f;1=00f\n",
            "BE/tasks": "",
            "BE/mon_data/mon_L3_00/llc_occupancy": "65536\n",
            "BE/mon_data/mon_L3_00/mbm_total_bytes": "Unavailable\n",
            "BE/mon_data/mon_L3_08/llc_occupancy": "Error\n",
            "BE/mon_data/mon_sub_L3_00/llc_occupancy": "1\n",
            "BE/mon_groups/pod1/tasks": "",
            "BE/mon_groups/pod1/mon_data/mon_L3_08/mbm_local_bytes": "7\n",
        },
    )
    (root / "mon_groups").mkdir()
    return root


def test_without_a_mount_there_is_nothing(tmp_path: Path) -> None:
    assert resctrl.l3_mask(tmp_path) == 0
    assert resctrl.groups(tmp_path / "none") == []
    assert resctrl.counters(tmp_path, "BE") == []
    assert resctrl.last_status(tmp_path) == ""


def test_a_mask_of_another_form_names_the_file(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    fill(root, {"info/L3/cbm_mask": "many\n"})
    with pytest.raises(ParseError) as caught:
        resctrl.l3_mask(root)
    assert caught.value.file == str(root / "info/L3/cbm_mask")


def test_what_is_there(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    assert resctrl.groups(root) == ["BE"]
    assert resctrl.mon_groups(root, "BE") == ["pod1"]
    assert resctrl.l3_mask(root) == 0x7FF
    assert resctrl.last_status(root) == "ok"


def test_counters_are_found_by_their_directories_and_may_have_nothing_to_say(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    read = {
        (one.resource, one.domain, one.feature): resctrl.parse_counter(one.path.read_bytes(), str(one.path))
        for one in resctrl.counters(root, "BE")
    }
    assert read == {
        ("L3", 0, "llc_occupancy"): 65536,
        ("L3", 0, "mbm_total_bytes"): None,
        ("L3", 8, "llc_occupancy"): None,
    }
    assert [one.domain for one in resctrl.counters(root, "BE", "pod1")] == [8]
    assert [one.domain for one in resctrl.counters(root)] == [0]


def test_a_counter_of_another_form_is_named() -> None:
    with pytest.raises(ParseError, match="mbm_total_bytes"):
        resctrl.parse_counter("soon\n", "mbm_total_bytes")


MOUNT = "60 25 0:44 / /sys/fs/resctrl rw,relatime shared:30 - resctrl resctrl rw"


@pytest.mark.parametrize(
    ("mountinfo", "in_mbps"),
    [("", False), (MOUNT, False), (f"{MOUNT},cdp", False), (f"x\n{MOUNT},cdp,mba_MBps\n", True), (" - resctrl", False)],
)
def test_a_mount_whose_bandwidths_are_no_percentages(mountinfo: str, in_mbps: bool) -> None:
    assert resctrl.is_in_mbps(mountinfo) is in_mbps
