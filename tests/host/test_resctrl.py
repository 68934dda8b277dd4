"""resctrl read from directory trees that hold what kernels print (emulated: no RDT needed), and Koordinator's masks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host import resctrl
from koord.host.kernelfile import ParseError
from koord.host.resctrl import BandwidthInfo, CacheInfo

INTEL = BandwidthInfo(minimum=10, step=10, num_closids=8, linear=True)
AMD = BandwidthInfo(minimum=0, step=1, num_closids=16, linear=True)


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
            "info/L3/min_cbm_bits": "2\n",
            "info/L3/num_closids": "8\n",
            "info/MB/min_bandwidth": "10\n",
            "info/MB/bandwidth_gran": "10\n",
            "info/MB/num_closids": "8\n",
            "info/MB/delay_linear": "1\n",
            "info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
            "info/L3_MON/num_rmids": "176\n",
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
    assert resctrl.info(tmp_path) is None
    assert resctrl.schemata(tmp_path, "BE") is None
    assert resctrl.groups(tmp_path / "none") == []
    assert resctrl.counters(tmp_path, "BE") == []
    assert resctrl.last_status(tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "why"), [("L3 0=f\n", "no colon"), ("L3:0=xyz\n", "invalid literal"), ("MB:0\n", "not enough values")]
)
def test_broken_schemata_name_the_line(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why) as caught:
        resctrl.parse_schemata(text, "BE/schemata")
    assert (caught.value.file, caught.value.text) == ("BE/schemata", text.strip())
    assert resctrl.parse_schemata("L2:0=f\n" + text) == {"L2": {0: 15}}


def test_broken_info_names_the_file(tmp_path: Path) -> None:
    for name in ("info/L3/cbm_mask", "info/L3/num_closids"):
        root = mounted(tmp_path / name.replace("/", "_"))
        fill(root, {name: "many\n"})
        with pytest.raises(ParseError) as caught:
            resctrl.info(root)
        assert caught.value.file == str(root / name)


def test_what_the_mount_can_do(tmp_path: Path) -> None:
    info = resctrl.info(mounted(tmp_path))
    assert info is not None
    assert dict(info.caches) == {"L3": CacheInfo(0x7FF, 2, 8, sparse=False)}
    assert info.bandwidth == INTEL
    assert info.features == {"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"}
    assert info.num_rmids == 176


def test_groups_and_their_schemata(tmp_path: Path) -> None:
    root = mounted(tmp_path)
    assert resctrl.groups(root) == ["BE"]
    assert resctrl.mon_groups(root, "BE") == ["pod1"]
    assert resctrl.schemata(root, "BE") == {"MB": {0: 30, 1: 30}, "L3": {0: 15, 1: 15}}
    assert resctrl.last_status(root) == "ok"


def test_code_and_data_prioritised_caches() -> None:
    assert resctrl.parse_schemata("L3CODE:0=f0;4=f\nL3DATA:0=f;4=f\n") == {
        "L3CODE": {0: 0xF0, 4: 0xF},
        "L3DATA": {0: 0xF, 4: 0xF},
    }


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


@pytest.mark.parametrize(
    ("cbm", "start", "end", "min_bits", "mask"),
    [
        (0x7FF, 0, 30, 1, 0xF),
        (0xFFFFF, 0, 30, 1, 0x3F),
        (0x7FF, 10, 50, 1, 0x3C),
        (0x3FF, 10, 80, 1, 0xFE),
        (0x7FFF, 30, 100, 1, 0x7FE0),
        (0x7FF, 0, 100, 1, 0x7FF),
        (0x7FF, 10, 15, 1, 0x4),
        (0x7FF, 10, 15, 2, 0xC),
        (0x7FF, 99, 100, 1, 0x400),
        (0x7FF, 99, 100, 2, 0x600),
    ],
)
def test_cache_masks(cbm: int, start: int, end: int, min_bits: int, mask: int) -> None:
    assert resctrl.cache_mask(CacheInfo(cbm, min_bits, 8, sparse=False), start, end) == mask


@pytest.mark.parametrize(("start", "end"), [(-1, 10), (10, 10), (50, 20), (0, 101)])
def test_ranges_that_are_none(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="cache range"):
        resctrl.cache_mask(CacheInfo(0x7FF, 1, 8, sparse=False), start, end)


@given(st.integers(1, 20), st.integers(0, 99), st.integers(1, 100), st.integers(1, 4))
def test_every_mask_is_one_the_kernel_takes(ways: int, start: int, width: int, min_bits: int) -> None:
    cache = CacheInfo((1 << ways) - 1, min(min_bits, ways), 8, sparse=False)
    mask = resctrl.cache_mask(cache, start, min(start + width, 100))
    assert mask & ~cache.cbm_mask == 0
    assert mask.bit_count() >= cache.min_cbm_bits
    assert f"{mask:b}".strip("0").count("0") == 0


@pytest.mark.parametrize(
    ("percent", "limits", "vendor", "setting"),
    [
        (5, INTEL, "GenuineIntel", 10),
        (95, INTEL, "GenuineIntel", 100),
        (30, INTEL, "GenuineIntel", 30),
        (50, AMD, "AuthenticAMD", 80),
        (100, AMD, "AuthenticAMD", 2048),
        (7, BandwidthInfo(20, 5, 8, True), "GenuineIntel", 20),
    ],
)
def test_bandwidths(percent: int, limits: BandwidthInfo, vendor: str, setting: int) -> None:
    assert resctrl.bandwidth(percent, limits, vendor) == setting


MOUNT = "60 25 0:44 / /sys/fs/resctrl rw,relatime shared:30 - resctrl resctrl rw"


@pytest.mark.parametrize(
    ("mountinfo", "in_mbps"),
    [("", False), (MOUNT, False), (f"{MOUNT},cdp", False), (f"x\n{MOUNT},cdp,mba_MBps\n", True), (" - resctrl", False)],
)
def test_a_mount_whose_bandwidths_are_no_percentages(tmp_path: Path, mountinfo: str, in_mbps: bool) -> None:
    found = resctrl.info(mounted(tmp_path), mountinfo)
    assert found is not None and found.bandwidth is not None and found.bandwidth.in_mbps is in_mbps
    if in_mbps:
        with pytest.raises(ValueError, match="mounted with mba_MBps, so settings are MB/s"):
            resctrl.bandwidth(50, found.bandwidth, "GenuineIntel")
    else:
        assert resctrl.bandwidth(50, found.bandwidth, "GenuineIntel") == 50


@pytest.mark.parametrize("percent", [0, 101, -5])
def test_bandwidths_that_are_none(percent: int) -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        resctrl.bandwidth(percent, INTEL, "GenuineIntel")


@given(st.dictionaries(st.integers(0, 300), st.integers(1, (1 << 20) - 1), min_size=1))
def test_schemata_read_back(masks: dict[int, int]) -> None:
    assert resctrl.parse_schemata(f"L3:{resctrl.format_domains(masks, hexadecimal=True)}\n") == {"L3": masks}
    assert resctrl.parse_schemata(f"MB:{resctrl.format_domains(masks, hexadecimal=False)}\n") == {"MB": masks}


@pytest.mark.parametrize("cbm_mask", [0, 0b1101, 0xFF0, 0x7FE, 0b1010])
def test_a_cache_mask_with_a_hole_or_without_bits_is_refused(cbm_mask: int) -> None:
    with pytest.raises(ValueError, match=f"cbm_mask {cbm_mask:x} is not a row of ways from the lowest bit on"):
        resctrl.cache_mask(CacheInfo(cbm_mask, 1, 8, sparse=True), 0, 30)
