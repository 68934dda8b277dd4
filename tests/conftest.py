"""Settings of all unit tests, and the end of what they opened."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.opened import close_all

settings.register_profile("koord", deadline=None)  # a slow machine is no failure
settings.load_profile("koord")

MAX_DESCRIPTORS = 128  # that a worker may hold after its last test; pytest itself has about 15

MEMORY, ROOM = "/dev/shm", 1 << 30  # where trees are made and removed in a fraction of a disk's time


def _will_do(directory: str) -> bool:
    """There is room, and programs that a test writes can be run."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    is_free = os.access(directory, os.W_OK) and not found.f_flag & os.ST_NOEXEC
    return is_free and found.f_bavail * found.f_frsize >= ROOM


if "TMPDIR" not in os.environ and _will_do(MEMORY):
    tempfile.tempdir = MEMORY


def pytest_collection_finish() -> None:
    """What collection made lives to the end: no garbage collection need look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[0o077, 0o022, 0o777], ids="umask {:04o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The process's umask during a test: the units', a shell's, and the worst."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted: ``record_property("count", "9 exceptions in the place of 9 calls")``."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "count" and report.when == "call":
                terminalreporter.write_line(f"{report.location[0]}: {value}")


@pytest.fixture(autouse=True)
def _closed_at_the_end() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(scope="session", autouse=True)
def _no_descriptors_left() -> Iterator[None]:
    yield
    gc.collect()
    left = [os.readlink(path) for path in _descriptors()]
    assert len(left) < MAX_DESCRIPTORS, f"tests left {len(left)} open (see tests.support.opened): {sorted(left)}"


def _descriptors() -> list[str]:
    paths = [entry.path for entry in os.scandir("/proc/self/fd")]
    return [path for path in paths if os.path.lexists(path)]
