"""Layers over the machine's directories: what is written there is seen inside, recorded, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from integration.harness.overlays import layered

scratch = Path(sys.argv[1])
shared = Path(sys.argv[2])
with layered(scratch, ("/etc",), ("/run",), {"/run/koord-test": shared, "/etc/apt": shared}) as layers:
    assert layers.written() == set() and Path("/etc/passwd").exists() and os.listdir("/run") == ["koord-test"]
    assert os.listdir("/etc/apt") == []
    Path("/etc/koord-test").mkdir()
    subprocess.run(["sh", "-c", "echo new > /etc/koord-test/file; echo other > /etc/hostname"], check=True)
    Path("/run/koord-file").write_text("")
    Path("/run/koord-test/file").write_text("for all")
    print(sorted(layers.written()), flush=True)
    sys.stdin.readline()
print(Path("/etc/koord-test").exists(), Path("/run/koord-test").exists(), scratch.exists())
"""


def test_only_those_inside_see_what_is_written(tmp_path: Path) -> None:
    """In a process of its own, which then has another mount namespace; this one is outside."""
    hostname = Path("/etc/hostname").read_text()
    (shared := tmp_path / "shared").mkdir()
    argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "layers"), str(shared)]
    inside = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert inside.stdout is not None
    written = inside.stdout.readline()
    assert (shared / "file").read_text() == "for all"
    assert not Path("/etc/koord-test").exists() and Path("/etc/hostname").read_text() == hostname
    rest = inside.communicate("\n", timeout=10)
    assert written == "['/etc/hostname', '/etc/koord-test/file', '/run/koord-file']\n", rest
    assert (inside.returncode, rest) == (0, ("False False False\n", ""))
