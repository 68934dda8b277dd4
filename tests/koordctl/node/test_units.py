"""Units as systemd reads them, from the files of a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from koordctl.node import units
from koordctl.node.files import NodeFiles

FRAGMENT = "usr/lib/systemd/system/x.service"
ETC, RUN, LIB = (f"{top}/systemd/system/x.service.d" for top in ("etc", "run", "usr/lib"))
EXEC = "[Service]\nExecStart=/bin/x\n"


def node(root: Path, files: Mapping[str, str]) -> NodeFiles:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return NodeFiles(root)


def reset(value: str) -> str:
    return f"[Service]\nExecStart=\nExecStart={value}\n"


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({FRAGMENT: EXEC}, ("/bin/x",)),
        ({FRAGMENT: EXEC, "etc/systemd/system/x.service": "[Service]\nExecStart=/bin/y\n"}, ("/bin/y",)),
        ({FRAGMENT: EXEC, "run/systemd/system/x.service": "[Service]\nExecStart=/bin/y\n"}, ("/bin/y",)),
        ({FRAGMENT: EXEC, f"{LIB}/10-a.conf": reset("/bin/a")}, ("/bin/a",)),
        ({FRAGMENT: EXEC, f"{LIB}/20-b.conf": reset("/bin/b"), f"{ETC}/10-a.conf": reset("/bin/a")}, ("/bin/b",)),
        ({FRAGMENT: EXEC, f"{LIB}/10-a.conf": reset("/bin/b"), f"{ETC}/10-a.conf": reset("/bin/a")}, ("/bin/a",)),
        ({FRAGMENT: EXEC, f"{LIB}/10-a.conf": reset("/bin/a"), f"{RUN}/10-a.conf": ""}, ("/bin/x",)),
        ({FRAGMENT: EXEC, f"{ETC}/10-a.conf": "[Service]\nExecStart=/bin/a\n"}, ("/bin/x", "/bin/a")),
        ({FRAGMENT: EXEC, f"{ETC}/10-a.conf": "[Service]\nExecStart=\n"}, ()),
        ({FRAGMENT: EXEC, f"{ETC}/10-a.txt": reset("/bin/a")}, ("/bin/x",)),
        ({FRAGMENT: EXEC, "etc/systemd/system/service.d/10-a.conf": reset("/bin/a")}, ("/bin/a",)),
        (
            {
                FRAGMENT: EXEC,
                "etc/systemd/system/service.d/10-a.conf": reset("/bin/a"),
                f"{LIB}/10-a.conf": reset("/bin/own"),
            },
            ("/bin/own",),
        ),
        ({FRAGMENT: "[Unit]\nExecStart=/bin/a\n[Service]\nExecStart=/bin/x\n"}, ("/bin/x",)),
    ],
)
def test_which_files_count(tmp_path: Path, files: Mapping[str, str], commands: tuple[str, ...]) -> None:
    unit = units.find(node(tmp_path, files), "x.service")
    assert unit is not None
    assert unit.values("Service", "ExecStart") == commands


def test_no_fragment_no_unit(tmp_path: Path) -> None:
    assert units.find(node(tmp_path, {f"{ETC}/10-a.conf": reset("/bin/a")}), "x.service") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ExecStart=/bin/x --a", "/bin/x --a"),
        ("  ExecStart =  /bin/x --a  ", "/bin/x --a"),
        ("ExecStart=/bin/x \\\n    --a \\\n--b", "/bin/x  --a  --b"),
        ("ExecStart=/bin/x \\\n# not this\n; nor this\n--a", "/bin/x  --a"),
        ("# ExecStart=/bin/y\nExecStart=/bin/x", "/bin/x"),
        ('ExecStart=/bin/x "--a=%i $B" ${C}', '/bin/x "--a=%i $B" ${C}'),
        ("ExecStart=/bin/x --a=b=c", "/bin/x --a=b=c"),
        ("ExecStart=/bin/x \\", "/bin/x"),
    ],
)
def test_values_stay_as_they_are_written(text: str, value: str) -> None:
    assert [each[2] for each in units.assignments(f"[Service]\n{text}\n")] == [value]
