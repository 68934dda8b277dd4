"""One booted guest, from QEMU's start to its end.

Each has a throw-away copy of the disk (a qcow2 overlay), so nothing that a test does is seen by the next. A guest can
be saved, disk and memory, and others go on from there: a second instead of a boot. KVM is tried once per machine and
emulation used where it does not start the kernel; emulated CPUs are slow, so tests wait for events, with deadlines that
only a broken guest reaches.

Invariant: after ``close()`` no process and no file but the logs is left. A guest that fails keeps its console in
``console.log``, whose tail is in the error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from integration.build import cache_directory
from integration.guest.channel import Channel, Done
from integration.guest.image import Image
from integration.guest.qmp import QMP
from integration.harness.processes import HarnessError, Process, tail

Result = TypeVar("Result")
BOOT_S = 400.0
SPEAKS_S = 150.0  # from power on; four times what the slowest machine took
POWER_ONS = 3
COMMAND_S = 400.0
JOURNAL_S = 60.0  # of a guest that may hang
EMULATED = "tcg,thread=multi"
CPU = {
    "kvm": "host",
    EMULATED: "Nehalem",  # has no AVX, which is dear to emulate, and a clock that the kernel trusts
}
CPUS, ONLINE = 16, 2
"""All that there are, and those that a boot starts, which takes twice as long on all. The rest come up by a write."""
MEMORY_MIB = 4096
COMMAND_LINE = (
    f"console=ttyS0 net.ifnames=0 mitigations=off quiet maxcpus={ONLINE} "
    "systemd.show_status=0 systemd.default_timeout_start_sec=300 systemd.log_target=journal"
)
KVM_S = 10.0


class GuestError(HarnessError):
    """A command in the guest failed, or the guest itself did."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Of CPUs and memory. ``nodes``: of NUMA, each with a socket of its own; ``threads``: of each core."""

    nodes: int = 1
    threads: int = 1

    def arguments(self) -> list[str]:
        """What QEMU is told of CPUs and memory."""
        of_node, cpus = MEMORY_MIB // self.nodes, CPUS // self.nodes
        smp = f"{CPUS},sockets={self.nodes},cores={cpus // self.threads},threads={self.threads}"
        numa = [
            argument
            for node in range(self.nodes if self.nodes > 1 else 0)
            for argument in (
                *("-object", f"memory-backend-ram,id=m{node},size={of_node}M"),
                *("-numa", f"node,nodeid={node},memdev=m{node},cpus={node * cpus}-{(node + 1) * cpus - 1}"),
            )
        ]
        return ["-smp", smp, "-m", str(MEMORY_MIB), *numa]


@dataclass(frozen=True, slots=True)
class Saved:
    """A guest as it was when it was saved. ``boot_id``: of the boot that goes on."""

    disk: Path
    memory: Path
    boot_id: str


class Guest:
    """A guest on ``image``; ``payload`` is a tar that appears as the disk /dev/vdb.

    ``saved``: one of the same image, payload, topology and kernel arguments, from which it goes on. ``reaches_host``:
    what listens on this machine's loopback is at 10.0.2.2 there.
    """

    def __init__(
        self,
        image: Image,
        directory: Path,
        payload: Path | None = None,
        topology: Topology = Topology(),
        kernel_arguments: str = "",
        saved: Saved | None = None,
        reaches_host: bool = False,
    ) -> None:
        self.directory = directory
        self.console = directory / "console.log"
        self._overlay = directory / "disk.qcow2"
        self._image, self._payload, self._topology = image, payload, topology
        self._arguments, self._saved, self._reaches_host = kernel_arguments, saved, reaches_host
        self._process: Process | None = None
        self._channel: Channel | None = None

    def start(self) -> None:
        """Power on and wait until the agent speaks and systemd has done starting.

        An emulated guest hangs now and then before its kernel has said a word, with both CPUs busy. It holds nothing of
        ours then, so it is powered off and on again, and that is said.
        """
        self._power_on()
        if self._saved is not None:
            self.do("date", "--set", f"@{time.time():.3f}", timeout_s=SPEAKS_S)  # it knows that of back then
            return
        for _ in range(POWER_ONS - 1):
            with contextlib.suppress(TimeoutError):
                self.channel.wait_boot(1, SPEAKS_S)
                break
            print(f"  {self.directory.name} did not start within {SPEAKS_S:g} s: powered off and on again")
            self._power_off()
            self._power_on()
        self._wait_boot(1)

    def _power_on(self) -> None:
        """With a new copy of the disk."""
        below, kind = (self._image.disk, "raw") if self._saved is None else (self._saved.disk, "qcow2")
        _run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", str(below), str(self._overlay)])
        self._process = Process(self._argv(), self.directory / "qemu.log")
        socket = self.directory / "agent.sock"
        self._process.wait_for(socket.exists, 20, "QEMU's agent socket")
        self._channel = Channel(socket, boot_id="" if self._saved is None else self._saved.boot_id)

    def _power_off(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process = None
        (self.directory / "agent.sock").unlink(missing_ok=True)

    def reboot(self) -> None:
        """``systemctl reboot``, until it is up again."""
        boots = self.channel.boots
        self._leave("reboot")
        self._wait_boot(boots + 1)

    def crash(self) -> None:
        """Reboot without shutting down, as after a power cut (unsynced data is lost)."""
        boots = self.channel.boots
        self._leave_by(["sh", "-c", "echo b > /proc/sysrq-trigger"])
        self._wait_boot(boots + 1)

    def save(self) -> Saved:
        """As it is now, in its directory; it is over itself."""
        self.do("sync")
        saved = Saved(self.directory / "saved.qcow2", self.directory / "saved.memory", self.channel.boot_id)
        with QMP(self.directory / "qmp.sock") as qmp:
            qmp.save(saved.memory)
        self._power_off()
        self._overlay.rename(saved.disk)
        return saved

    def close(self) -> None:
        self._power_off()
        self._overlay.unlink(missing_ok=True)

    @property
    def channel(self) -> Channel:
        if self._channel is None:
            raise GuestError("the guest was not started")
        return self._channel

    def run(self, *argv: str, timeout_s: float = COMMAND_S, data: bytes = b"", **environment: str) -> Done:
        """Run a program to its end, whatever its exit code."""
        return self.channel.run(argv, timeout_s, data, environment)

    def do(self, *argv: str, timeout_s: float = COMMAND_S, data: bytes = b"", **environment: str) -> str:
        """Run a program that must succeed; returns its output."""
        done = self.run(*argv, timeout_s=timeout_s, data=data, **environment)
        if done.returncode != 0:
            raise GuestError(
                f"{' '.join(argv)} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
            )
        return done.stdout

    def sh(self, script: str, timeout_s: float = COMMAND_S) -> str:
        """Run a shell script that must succeed (``set -e``); returns its output."""
        return self.do("bash", "-euo", "pipefail", "-c", script, timeout_s=timeout_s)

    def text(self, path: str) -> str:
        """A file's text, without the last newline. Raises OSError with the guest's errno."""
        (found,) = self.channel.read([path], COMMAND_S)
        if isinstance(found, int):
            raise OSError(found, os.strerror(found), path)
        return found.decode(errors="replace").removesuffix("\n")

    def texts(self, paths: Sequence[str]) -> list[str | None]:
        """Many files at once; None for one that cannot be read."""
        found = self.channel.read(paths, COMMAND_S)
        return [None if isinstance(each, int) else each.decode(errors="replace").removesuffix("\n") for each in found]

    def exists(self, path: str) -> bool:
        return self.run("test", "-e", path).returncode == 0

    def get(self, port: int, path: str) -> str:
        """What a server on the guest's loopback answers; "" if it does not, or with an error."""
        return (self.channel.get(port, path, COMMAND_S) or b"").decode()

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Make or replace a file; its directory must exist."""
        self.channel.write(path, content.encode() if isinstance(content, str) else content, mode, COMMAND_S)

    def write(self, path: str, content: str) -> None:
        """One unbuffered write to a file that exists, such as a kernel file."""
        self.channel.write(path, content.encode(), None, COMMAND_S)

    def wait(
        self,
        predicate: Callable[[], Result | None],
        what: str,
        timeout_s: float = COMMAND_S,
        evidence: Callable[[], str] = str,
    ) -> Result:
        """The first true result of ``predicate``; without one, GuestError, which ends with ``evidence``.

        It runs in the guest, which has few CPUs, so it pauses for as long as it took before it asks again.
        """
        end = time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            result = predicate()
            if result:
                return result
            now = time.monotonic()
            if now > end:
                raise GuestError(f"{what}: not within {timeout_s:g} s {evidence()}".rstrip())
            time.sleep(max(0.05, now - began))

    def journal(self, unit: str = "") -> str:
        argv = ["journalctl", "--no-pager", "-o", "short-monotonic", *(["-u", unit] if unit else [])]
        return self.do(*argv)

    def active(self, unit: str) -> bool:
        return self.run("systemctl", "is-active", "--quiet", unit).returncode == 0

    def main_pid(self, unit: str) -> int:
        """0 if the unit has none."""
        return int(self.do("systemctl", "show", "--property=MainPID", "--value", unit))

    def unpack_payload(self) -> None:
        """The payload's files, in /srv/payload."""
        self.do("tar", "-xf", "/dev/vdb", "-C", "/srv/payload")

    def save_journal(self) -> None:
        """For a failed test: the whole journal, beside the console's log."""
        with contextlib.suppress(HarnessError, TimeoutError):
            said = self.do("journalctl", "--no-pager", "-o", "short-monotonic", timeout_s=JOURNAL_S)
            (self.directory / "journal.log").write_text(said)

    def diagnosis(self) -> str:
        """Where the logs are, the end of the console, and what QEMU's threads took of a second just now."""
        threads = self._thread_ticks()
        time.sleep(1)
        used = {name: ticks - threads.get(name, 0) for name, ticks in self._thread_ticks().items()}
        busy = ", ".join(f"{name} {ticks} ticks" for name, ticks in used.items() if ticks) or "none ran"
        return f"logs in {self.directory}\nQEMU's threads in a second: {busy}\n{tail(self.console, 40)}"

    def _thread_ticks(self) -> dict[str, int]:
        """User and system time of each thread of QEMU, by name and id."""
        found = {}
        for task in Path(f"/proc/{self._process.pid}/task").glob("*") if self._process else ():
            with contextlib.suppress(OSError):
                name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
                found[f"{name} ({task.name})"] = sum(map(int, fields.split()[11:13]))
        return found

    def _wait_boot(self, number: int) -> None:
        try:
            self.channel.wait_boot(number, BOOT_S)
            self.run("systemctl", "is-system-running", "--wait", timeout_s=BOOT_S)
        except (HarnessError, TimeoutError) as error:
            raise GuestError(f"{error}\n{tail(self.console, 30)}\n{tail(self.directory / 'qemu.log')}") from error

    def _leave(self, verb: str) -> None:
        self._leave_by(["systemctl", verb])

    def _leave_by(self, argv: Sequence[str]) -> None:
        with contextlib.suppress(HarnessError):
            self.channel.run(argv, BOOT_S)

    def _argv(self) -> list[str]:
        accelerated = accelerator(self._image.kernel)
        restricted = "off" if self._reaches_host else "on"
        disks = [
            (self._overlay, "qcow2,cache=unsafe,discard=unmap"),
            *([(self._payload, "raw,readonly=on")] if self._payload else []),
        ]
        drives = [
            argument
            for number, (path, options) in enumerate(disks)
            for argument in (
                *("-drive", f"file={path},format={options},if=none,id=d{number}"),
                *("-device", f"virtio-blk-pci,drive=d{number},serial=d{number}"),
            )
        ]
        return [
            *("qemu-system-x86_64", "-accel", accelerated, "-cpu", CPU[accelerated]),
            *(*self._topology.arguments(), "-nographic", "-display", "none"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)),
            *("-append", f"{COMMAND_LINE} {self._arguments}"),
            *drives,
            *("-netdev", f"user,id=n0,restrict={restricted}", "-device", "virtio-net-pci,netdev=n0,romfile="),
            *("-chardev", f"socket,id=agent,path={self.directory / 'agent.sock'},server=on,wait=off"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=koord.agent"),
            *("-serial", f"file:{self.console}", "-monitor", "none", "-device", "virtio-rng-pci"),
            *("-qmp", f"unix:{self.directory / 'qmp.sock'},server=on,wait=off"),
            *(() if self._saved is None else ("-incoming", f"exec:cat {self._saved.memory}")),
        ]


@contextlib.contextmanager
def booted(
    image: Image,
    directory: Path,
    payload: Path | None = None,
    topology: Topology = Topology(),
    kernel_arguments: str = "",
    saved: Saved | None = None,
    reaches_host: bool = False,
) -> Iterator[Guest]:
    """A started guest, with its payload unpacked, for the time of the block; its journal is kept if the block fails."""
    directory.mkdir(parents=True, exist_ok=True)
    guest = Guest(image, directory, payload, topology, kernel_arguments, saved, reaches_host)
    try:
        guest.start()
        if payload is not None and saved is None:
            guest.unpack_payload()
        yield guest
    except BaseException:
        guest.save_journal()
        raise
    finally:
        guest.close()


@functools.cache
def accelerator(kernel: Path) -> str:
    """``kvm`` if it starts this kernel here; found out once per boot of this machine, and kept in the cache."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    kept = cache_directory(os.environ) / "guest" / f"accelerator-{boot_id}"
    try:
        return kept.read_text()
    except FileNotFoundError:
        found = "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and _starts_with_kvm(kernel) else EMULATED
        kept.write_text(found)
        return found


def _starts_with_kvm(kernel: Path) -> bool:
    """Whether the kernel gets as far as missing its root disk."""
    with tempfile.TemporaryDirectory() as name:
        console = Path(name, "console")
        argv = [
            *("qemu-system-x86_64", "-accel", "kvm", "-cpu", CPU["kvm"], "-m", "512", "-nographic", "-display", "none"),
            *("-kernel", str(kernel), "-append", "console=ttyS0 panic=-1", "-no-reboot", "-monitor", "none"),
            *("-serial", f"file:{console}"),
        ]
        process = Process(argv, Path(name, "log"))
        end = time.monotonic() + KVM_S
        try:
            while process.running and time.monotonic() < end:
                if "Kernel panic" in tail(console, 200):
                    return True
                time.sleep(0.1)
            return "Kernel panic" in tail(console, 200)
        finally:
            process.kill()


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise GuestError(f"{' '.join(argv)}: {done.stderr.strip()}")
