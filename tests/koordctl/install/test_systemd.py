"""systemctl is called as a program: one that records what it was asked, and answers as systemd does."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordctl.install.machine import Systemd, SystemdError, runner

SCRIPT = """#!/bin/sh
printf '%s\\n' "$*" >>"$0.log"
case "$*" in
"show --property=ActiveState --value up.service") echo active ;;
"show --property=MainPID --value up.service") echo 42 ;;
"show "*) echo ;;
"start bad.service") echo "Job for bad.service failed." >&2; exit 1 ;;
"start slow.service") exec sleep 20 ;;
"reset-failed "*) echo "Unit not loaded." >&2; exit 1 ;;
esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "systemctl"
    file.write_text(SCRIPT)
    file.chmod(0o755)
    return file


def test_commands(program: Path) -> None:
    systemd = Systemd(runner(10), str(program))
    systemd.reload()
    systemd.start("up.service")
    systemd.restart("up.service")
    systemd.stop("up.service")
    systemd.stop("down.service")
    systemd.terminate("up.service")
    systemd.forget_failure("up.service")
    assert (systemd.state("up.service"), systemd.state("down.service")) == ("active", "inactive")
    asked = Path(f"{program}.log").read_text().splitlines()
    assert [line for line in asked if not line.startswith("show")] == [
        "daemon-reload",
        "start up.service",
        "restart up.service",
        "stop up.service",
        "kill --signal=TERM --kill-whom=all up.service",
        "reset-failed up.service",
    ]


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ("bad.service", "systemctl start bad.service: Job for bad.service failed$"),
        ("slow.service", "no end after 0.2 s"),
    ],
)
def test_failures(program: Path, unit: str, why: str) -> None:
    with pytest.raises(SystemdError, match=why):
        Systemd(runner(0.2 if unit == "slow.service" else 10), str(program)).start(unit)


def test_no_systemctl(tmp_path: Path) -> None:
    with pytest.raises(SystemdError, match="No such file or directory"):
        Systemd(runner(1), f"{tmp_path}/none").reload()
