"""What systemd itself says of the units: exposure (offline, no running systemd needed) and syntax.

koord-qosd's also with what its features need, each alone and all together, as koordctl writes it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.host import granted
from koord.host.cgroup import Tree
from koord.model.grants import GRANTS, Capability
from koordctl.node import grants

UNITS = Path(__file__).parent.parent / "systemd"
QOSD, LIMIT = "koord-qosd.service", 4.0
ALL = tuple(GRANTS)


def exposure(unit: Path) -> tuple[float, str]:
    """And the whole report."""
    out = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", out)
    assert found is not None, out
    return float(found[1]), out


def on_a_vendor_kernel(root: Path, features: tuple[str, ...]) -> str:
    """The drop-in of a node whose kernel has every file that these features write."""
    tree = Tree(2, root, {}, proc=root / "proc", sys=root / "sys")
    paths = {}
    for name in features:
        for row in GRANTS[name].rows:
            path = granted.path_of(row, tree)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        paths[name] = tuple(f"/{path.relative_to(root)}" for path in granted.files_of(GRANTS[name], tree))
    return grants.drop_in(paths)


@pytest.fixture
def unit_with(tmp_path: Path) -> Callable[[tuple[str, ...]], Path]:
    """The unit beside a drop-in with what these features need; its program is one that exists."""

    def made(features: tuple[str, ...]) -> Path:
        unit = tmp_path / "units" / QOSD
        unit.parent.mkdir()
        for name in (QOSD, "koord.slice"):
            shutil.copy(UNITS / name, unit.parent / name)
        unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
        text = on_a_vendor_kernel(tmp_path / "node", features)
        if text:
            (unit.parent / f"{QOSD}.d").mkdir()
            (unit.parent / f"{QOSD}.d" / Path(grants.DROP_IN).name).write_text(text)
        return unit

    return made


@pytest.mark.parametrize(("unit", "limit"), [("koord-runtime-proxy.service", 1.5), (QOSD, LIMIT)])
def test_exposure(unit: str, limit: float) -> None:
    level, report = exposure(UNITS / unit)
    assert level <= limit, report


@pytest.mark.parametrize("features", [(), *((name,) for name in GRANTS), ALL], ids="+".join)
def test_exposure_with_what_features_need(
    unit_with: Callable[[tuple[str, ...]], Path],
    features: tuple[str, ...],
    record_property: Callable[[str, object], None],
) -> None:
    level, report = exposure(unit_with(features))
    record_property("count", f"exposure of {QOSD} with {', '.join(features) or 'no grant'}: {level}")
    assert level <= LIMIT, report
    allowed = {capability for name in features for capability in GRANTS[name].capabilities}
    is_told = "✗ CapabilityBoundingSet=~CAP_(DAC_*" in report
    assert is_told == (Capability.CAP_DAC_OVERRIDE in allowed), "systemd has read the drop-in"


def test_verify(tmp_path: Path) -> None:
    """The programs are not installed here, so their places are taken by one that exists."""
    for unit in UNITS.glob("koord*"):
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    _verified(sorted(tmp_path.iterdir()))


def test_verify_with_what_features_need(unit_with: Callable[[tuple[str, ...]], Path]) -> None:
    _verified([unit_with(ALL)])


def _verified(units: list[Path]) -> None:
    done = subprocess.run(["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
