"""A koord-qosd of a test's own that acts on the kernel, and all that can be seen of it from outside.

Nothing here imports ``qosd``: the journal is read as SQLite, the undo record as lines, descriptors and watches as
/proc tells them, and questions are asked through ``koordctl``. Invariant: everything it writes besides kernel files is
below its directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration.harness.processes import HarnessError, Process, descriptors
from integration.harness.proxy import start_qosd

ASK_S = 20.0
Value = int | str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the journal."""

    tick: int
    owner: str
    pod: str
    cgroup: str
    name: str
    path: str
    before: Value
    after: Value
    result: str
    why: str


class Daemon:
    """``runtime``: CRI socket. Started by ``start``, as often as wanted; its directories stay between two starts."""

    def __init__(
        self, runtime: Path, directory: Path, rules: str = "", flags: Sequence[str] = (), module: str = "qosd"
    ) -> None:
        self.runtime, self.directory, self.rules, self.flags = runtime, directory, rules, tuple(flags)
        self.module = module
        self.socket = directory / "inspect.sock"
        self.pages = directory / "qosd.sock"
        self.log_file = directory / "qosd.log"
        self.journal_file = directory / "state/journal.db"
        self.undo_file = directory / "run/undo.jsonl"
        self._process: Process | None = None
        directory.mkdir(parents=True, exist_ok=True)

    # life

    def start(self, prefix: Sequence[str] = ()) -> None:
        """``prefix``: a program that runs it, such as strace."""
        hook_files = self.directory / "hookserver.d"
        hook_files.mkdir(exist_ok=True)
        for file in hook_files.iterdir():
            file.unlink()  # the new one's says that it serves
        self._process = start_qosd(
            self.runtime,
            self.directory,
            hook_files,
            self.rules,
            self.flags,
            acts=True,
            prefix=prefix,
            module=self.module,
        )

    def stop(self) -> int:
        """SIGTERM; the exit status. Nothing to do if it does not run."""
        return self._end(Process.stop)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(lambda process: process.kill() or 0)

    def give_back(self, *flags: str) -> None:
        """``koord-qosd give-back``, as systemd and kubelet run it. Raises CalledProcessError."""
        argv = [sys.executable, "-m", "qosd", "give-back", "--run-dir", str(self.undo_file.parent), *flags]
        subprocess.run(argv, check=True, timeout=ASK_S)

    @property
    def process(self) -> Process:
        if self._process is None:
            raise HarnessError("koord-qosd is not running")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def _end(self, how: Any) -> int:
        process, self._process = self._process, None
        return 0 if process is None else how(process)

    # what it says

    def koordctl(self, *words: str) -> Any:
        """``koordctl`` with these words, asked of this daemon; its answer as JSON. Raises HarnessError."""
        return json.loads(self.run_koordctl(*words, "-o", "json", "--socket", str(self.socket)))

    def restore(self) -> Any:
        """``koordctl restore --yes``; the files of its report."""
        words = ("restore", "--yes", "--undo-file", str(self.undo_file), "-o", "json")
        return json.loads(self.run_koordctl(*words))["files"]

    def run_koordctl(self, *words: str) -> str:
        """What ``koordctl`` prints. Raises HarnessError with what it says besides."""
        argv = [sys.executable, "-m", "koordctl", *words]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=ASK_S)
        if done.returncode:
            raise HarnessError(f"koordctl {' '.join(words)}: {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def page(self, path: str) -> tuple[int, str]:
        """HTTP status and body of ``/healthz``, ``/readyz`` or ``/metrics``."""
        with socket.socket(socket.AF_UNIX) as asker:
            asker.settimeout(ASK_S)
            asker.connect(str(self.pages))
            asker.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            with asker.makefile("r", encoding="utf-8", newline="") as answer:
                head, _, body = answer.read().partition("\r\n\r\n")
        return int(head.split()[1]), body

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """Lines of the log that no run may have: exceptions that escaped."""
        signs = ("Traceback (most recent call last)", "a tick failed", "listing pods failed", "never retrieved")
        return [line for line in self.log.splitlines() if any(sign in line for sign in signs)]

    def journal(self) -> list[Row]:
        """All entries on disk, oldest first; what is still queued is missing until the daemon has stopped."""
        return read_journal(self.journal_file)

    def held(self) -> dict[str, Value]:
        """The undo record: base by path of every file held."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for line in self.undo_file.read_text().splitlines()[1:]:
            event = json.loads(line)
            if event["type"] == "file":
                found[event["group"], event["name"]] = event
            elif event["type"] == "dropped" and event["kind"] == "file":
                cgroup, name = event["key"]
                found.pop((cgroup, name), None)
        return {event["path"]: event["base"] for event in found.values()}

    # what the kernel says of it

    def descriptors(self) -> list[str]:
        """What each open descriptor leads to."""
        return descriptors(self.pid)

    def inotify_watches(self) -> int:
        count = 0
        for name in os.listdir(f"/proc/{self.pid}/fdinfo"):
            with contextlib.suppress(FileNotFoundError):
                text = Path(f"/proc/{self.pid}/fdinfo/{name}").read_text()
                count += sum(line.startswith("inotify ") for line in text.splitlines())
        return count

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def read_journal(file: Path) -> list[Row]:
    """All entries of the journal in ``file``, oldest first."""
    columns = "tick, who, pod, cgroup, name, path, before, after, result, why"
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        return [Row(*row) for row in database.execute(f"SELECT {columns} FROM entries ORDER BY id")]
