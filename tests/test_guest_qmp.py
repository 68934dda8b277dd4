"""What QEMU's control makes of answers, events, refusals and a machine that cannot be saved."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.guest.qmp import QMP
from integration.harness.processes import HarnessError

GREETING: dict[str, Any] = {"QMP": {"version": {}}}
EMPTY: dict[str, Any] = {"return": {}}
EVENT = {"event": "STOP"}


@contextmanager
def qemu(tmp_path: Path, *answers: dict[str, Any]) -> Iterator[tuple[QMP, list[dict[str, Any]]]]:
    """A connection to one that gives these answers, events before them, and the commands that it has got."""
    path = tmp_path / "qmp.sock"
    commands: list[dict[str, Any]] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as lines:
            lines.write(json.dumps(GREETING).encode() + b"\n")
            lines.flush()
            for answer in (EMPTY, *answers):
                commands.append(json.loads(lines.readline()))
                lines.write(b"".join(json.dumps(each).encode() + b"\n" for each in (EVENT, answer)))
                lines.flush()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        with QMP(path) as control:
            yield control, commands
        thread.join()


def test_events_are_skipped(tmp_path: Path) -> None:
    with qemu(tmp_path, {"return": {"running": True}}) as (control, commands):
        assert control.command("query-status") == {"running": True}
        assert [command["execute"] for command in commands] == ["qmp_capabilities", "query-status"]


def test_a_refusal_is_said(tmp_path: Path) -> None:
    refusal = {"error": {"class": "GenericError", "desc": "State blocked by non-migratable device"}}
    with (
        qemu(tmp_path, refusal) as (control, _),
        pytest.raises(HarnessError, match="QEMU refuses migrate: State blocked"),
    ):
        control.command("migrate", uri="exec:true")


def test_saved_once_it_is_complete(tmp_path: Path) -> None:
    states = ({"return": {"status": status}} for status in ("setup", "active", "completed"))
    with qemu(tmp_path, EMPTY, EMPTY, *states) as (control, commands):
        control.save(tmp_path / "memory")
        assert commands[2]["arguments"] == {"uri": f"exec:cat > {tmp_path}/memory"}
        assert len(commands) == 6


def test_a_machine_that_cannot_be_saved(tmp_path: Path) -> None:
    failed = {"return": {"status": "failed", "error-desc": "No space left on device"}}
    with (
        qemu(tmp_path, EMPTY, EMPTY, failed) as (control, _),
        pytest.raises(HarnessError, match="cannot save the machine: No space left"),
    ):
        control.save(tmp_path / "memory")


def test_one_that_ends_before_its_answer(tmp_path: Path) -> None:
    with qemu(tmp_path) as (control, _), pytest.raises(HarnessError, match="QEMU ended before its answer"):
        control.command("query-status")
