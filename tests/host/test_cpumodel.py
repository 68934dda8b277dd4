"""What kind of CPU it is, from trees: model, vendor, turbo, the ways of the L3 cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host import cpumodel
from koord.host.cgroup import ReadError, Tree
from koord.host.cpumodel import CPUModel
from koord.host.kernelfile import ParseError

CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8269CY\nflags\t\t: fpu vme\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
NO_TURBO = "sys/devices/system/cpu/intel_pstate/no_turbo"


def tree(root: Path, files: Mapping[str, str]) -> Tree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Tree(1, root, {}, proc=root / "proc", sys=root / "sys", resctrl=root / "resctrl")


@pytest.mark.parametrize(
    ("files", "error", "named"),
    [({NO_TURBO: "maybe\n"}, ParseError, "no_turbo"), ({"proc/cpuinfo/x": ""}, ReadError, "cpuinfo")],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, files: Mapping[str, str], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        cpumodel.read(tree(tmp_path, files))


@pytest.mark.parametrize(
    ("files", "model"),
    [
        ({}, CPUModel()),
        ({"proc/cpuinfo": CPUINFO}, CPUModel("Xeon 8269CY", "GenuineIntel")),
        ({"proc/cpuinfo": ARM}, CPUModel("", "0x41")),
        ({NO_TURBO: "0\n"}, CPUModel(has_turbo=True)),
        ({NO_TURBO: "1\n"}, CPUModel(has_turbo=False)),
        ({"resctrl/schemata": "L3:0=7ff\n", "resctrl/info/L3/cbm_mask": "7ff\n"}, CPUModel(l3_mask=0x7FF)),
        ({"resctrl/schemata": "MB:0=100\n", "resctrl/info/MB/min_bandwidth": "10\n"}, CPUModel()),
        ({"resctrl/info/L3/cbm_mask": "7ff\n"}, CPUModel()),
    ],
    ids=["nothing", "x86", "arm64", "turbo", "no turbo", "CAT", "bandwidth alone", "not mounted"],
)
def test_what_is_there(tmp_path: Path, files: Mapping[str, str], model: CPUModel) -> None:
    assert cpumodel.read(tree(tmp_path, files)) == model


def test_of_a_long_file_the_first_cpu_is_read(tmp_path: Path) -> None:
    assert cpumodel.read(tree(tmp_path, {"proc/cpuinfo": CPUINFO * 1000})).name == "Xeon 8269CY"
