"""What systemd itself says of the units: exposure (offline, no running systemd needed) and syntax."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parent.parent / "systemd"


@pytest.mark.parametrize(("unit", "limit"), [("koord-runtime-proxy.service", 1.5), ("koord-qosd.service", 4.0)])
def test_exposure(unit: str, limit: float) -> None:
    out = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / unit)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", out)
    assert found is not None, out
    assert float(found[1]) <= limit, out


def test_verify(tmp_path: Path) -> None:
    """The programs are not installed here, so their places are taken by one that exists."""
    for unit in UNITS.glob("koord*"):
        text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
