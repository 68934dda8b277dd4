"""The process of a component: its exit codes, and what it may have of the machine."""

from __future__ import annotations

import logging
import platform
import resource
import subprocess
import sys
from collections.abc import Sequence

import pytest

from koord.cluster import program
from koord.kube.errors import KubeError
from koord.service.options import OptionError

NAME = "koord-x"


def load(arguments: Sequence[str]) -> program.Work:
    """``--bad``: a usage error."""
    if arguments:
        raise OptionError(f"{arguments[0]}: no")
    return _work()


async def _work() -> None:
    raise ExceptionGroup("outer", [ExceptionGroup("inner", [KubeError("no server")]), OSError("port in use")])


def test_what_ended_it_is_said_in_sentences(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", [NAME])
    with caplog.at_level(logging.ERROR, "koord_x"), pytest.raises(SystemExit) as ended:
        program.run(NAME, load)
    assert (ended.value.code, caplog.messages) == (1, ["no server", "port in use"])


def test_a_usage_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [NAME, "--bad"])
    with pytest.raises(SystemExit) as ended:
        program.run(NAME, load)
    assert (ended.value.code, capsys.readouterr().err) == (2, "koord-x: --bad: no\n")


@pytest.mark.parametrize(("soft", "hard", "allowed"), [(256, 4096, 4096), (512, 512, 512), (1024, 70_000, 65_536)])
def test_it_has_as_many_descriptors_as_it_may(soft: int, hard: int, allowed: int) -> None:
    """In a process of its own; nobody may have more than his hard limit."""
    script = (
        "import resource, sys; from koord.cluster import program; soft, hard = map(int, sys.argv[1:]);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)); program._allow_descriptors();"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    _, machines = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard > machines != resource.RLIM_INFINITY:
        hard, allowed = machines, min(machines, allowed)
    argv = [sys.executable, "-c", script, str(soft), str(hard)]
    assert subprocess.check_output(argv, text=True).split() == [str(allowed), str(hard)]


_LARGE_BUFFERS = """
import sys
from koord.cluster import program

def anonymous_mib():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) >> 10

if sys.argv[1] == "set":
    program._give_back_large_buffers()
before_mib = anonymous_mib()
bytearray(7_000_000)  # the first that is freed
large, small = [], []
for _ in range(32):
    large.append(bytearray(1_000_000))
    large[-1][::4096] = bytes(1_000_000)[::4096]
    small.append(bytearray(60_000))  # what stays between them
large.clear()
print(anonymous_mib() - before_mib)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libcs have no such setting")
def test_large_buffers_that_are_freed_are_the_kernels_again() -> None:
    left_mib = {
        how: int(subprocess.check_output([sys.executable, "-c", _LARGE_BUFFERS, how], text=True))
        for how in ("set", "default")
    }
    assert left_mib["set"] <= 2
    assert left_mib["default"] >= 20, "glibc does this by itself now"
