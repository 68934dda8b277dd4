"""koord-runtime-proxy, and koord-qosd as its hook server, as processes of their own between a client and containerd.

Both run from this checkout with the interpreter that runs the tests. Every path is below one directory, which also
keeps their logs.
"""

from __future__ import annotations

import contextlib
import socket as socket_module
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from integration.harness.processes import Process

START_S = 15.0
UNIT = Path(__file__).parents[2] / "systemd" / "koord-runtime-proxy.service"

# LS pods get CPU 1, so that on two CPUs an LSR pod bound to CPU 0 has it for itself and BE.
RULES = """\
node:
  sharedPools:
    ls: [{socket: 0, node: 0, cpuset: "1"}]
"""


@contextlib.contextmanager
def proxy(backend: Path, directory: Path, hooks: bool = True, rules: str = RULES) -> Iterator[Path]:
    """The proxy's CRI socket, with ``koord-qosd`` behind it if ``hooks``; both are stopped at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        hook_files = directory / "hookserver.d"
        hook_files.mkdir(exist_ok=True)
        if hooks:
            stack.callback(start_qosd(backend, directory, hook_files, rules).stop)
        running = start_proxy(backend, directory, hook_files)
        stack.callback(running.stop)
        yield socket_of(directory)


def socket_of(directory: Path) -> Path:
    """The proxy's CRI socket."""
    return directory / "proxy.sock"


def unit_environment() -> dict[str, str]:
    """The variables that the proxy's unit sets."""
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith("Environment=")]
    words = " ".join(line.partition("=")[2] for line in lines).split()
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def start_proxy(backend: Path, directory: Path, hook_files: Path, flags: Sequence[str] = ()) -> Process:
    """Start only the proxy and wait until it listens."""
    socket = socket_of(directory)
    argv = [
        *(sys.executable, "-m", "runtimeproxy"),
        *("--koord-runtimeproxy-endpoint", str(socket)),
        *("--remote-runtime-service-endpoint", str(backend)),
        *("--hookserver-dir", str(hook_files)),
        *("--metrics-endpoint", str(directory / "metrics.sock")),
        *flags,
    ]
    process = Process(argv, directory / "proxy.log", environment=unit_environment())
    process.wait_until_serving(lambda: _listens(socket), START_S, f"{socket} to be listened on")
    return process


def start_qosd(
    backend: Path,
    directory: Path,
    hook_files: Path,
    rules: str = RULES,
    flags: Sequence[str] = (),
    *,
    acts: bool = False,
    prefix: Sequence[str] = (),
    module: str = "qosd",
) -> Process:
    """Start only koord-qosd and wait until it serves; its hook-server file is the one in ``hook_files``.

    Unless it ``acts``, it writes no kernel file itself: then what the kernel holds is the proxy's doing alone.
    ``prefix``: a program, with its arguments, that runs it. ``module``: a test's own way into it.
    """
    rules_file = directory / "rules.yaml"
    rules_file.write_text(rules)
    argv = [
        *(*prefix, sys.executable, "-m", module),
        *("--rules-file", str(rules_file)),
        *("--hook-socket", str(directory / "hooks.sock")),
        *("--inspect-socket", str(directory / "inspect.sock")),
        *("--hookserver-dir", str(hook_files)),
        *("--runtime-endpoint", f"unix://{backend}"),
        *("--run-dir", str(directory / "run")),
        *("--state-dir", str(directory / "state")),
        *("--kubelet-state-dir", str(directory / "kubelet")),
        *("--metrics-endpoint", str(directory / "qosd.sock")),
        *("--nri-socket", ""),
        *(() if acts else ("--dry-run",)),
        *flags,
    ]
    process = Process(argv, directory / "qosd.log")
    process.wait_until_serving(
        lambda: any(hook_files.glob("*.json")), START_S, "koord-qosd to write its hook-server file"
    )
    return process


def _listens(path: Path) -> bool:
    """A socket exists before a process listens on it."""
    with socket_module.socket(socket_module.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
