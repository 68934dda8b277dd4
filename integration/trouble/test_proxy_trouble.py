"""The whole proxy while its log hangs, disks are full, protobuf is broken, or descriptors are gone: calls go on."""

from __future__ import annotations

import fcntl
import mmap
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

import koord.pb
from koord.pb.cri import api_pb2 as cri
from tests.runtimeproxy.processes import ECHO, Node
from tests.support.waiting import wait_until

Figure = Callable[[str], None]
Call: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
RUN = "/runtime.v1.RuntimeService/RunPodSandbox"
HOOKS = '{"remote-endpoint": "%s/hook.sock", "runtime-hooks": ["PreRunPodSandbox"], "failure-policy": "Ignore"}'
CALLS = 50
POD = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="p", uid="u", namespace="n"))
REQUEST = cri.RunPodSandboxRequest(config=POD).SerializeToString()
WITH_PACKAGES = "import sys; sys.path.insert(0, {!r}); from runtimeproxy.__main__ import main; sys.exit(main())"


@pytest.fixture
def node() -> Iterator[Node]:
    directory = Path(tempfile.mkdtemp(prefix="koord-trouble-", dir="/run"))
    node = Node(directory)
    (directory / "hooks").mkdir()
    yield node
    node.close()
    shutil.rmtree(directory)


def calls(node: Node, path: str = ECHO, message: bytes = b"hello") -> int:
    """The number of calls of one connection whose answer is the request."""
    with node.channel() as channel:
        call: Call = channel.unary_unary(path)
        return sum(call(message, timeout=20) == message for _ in range(CALLS))


@contextmanager
def descriptors(process: subprocess.Popen[str], most: int) -> Iterator[None]:
    """Within the block the process may have no more than ``most`` open."""
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def ready(node: Node, program: tuple[str, ...] = (sys.executable, "-m", "runtimeproxy")) -> subprocess.Popen[str]:
    process = node.start(program=program)
    node.told("READY=1", 20)
    wait_until(lambda: "200 OK" in node.get("/healthz"), within_s=20)
    return process


@contextmanager
def full(directory: Path) -> Iterator[None]:
    """A small file system of its own at ``directory``, with no room left."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=16", "koord-full", str(directory)], check=True)
    try:
        with (directory / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
            while True:
                filler.write(bytes(4096))
        with pytest.raises(OSError, match="No space"):
            for number in range(64):
                (directory / f"inode{number}").touch()
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_log_that_hangs(node: Node, figure: Figure) -> None:
    process = ready(node)
    assert process.stderr is not None
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    for number in range(200):
        (node.directory / "hooks" / f"{number}.json").write_text("{")
    wait_until(lambda: node.metric("koord_runtimeproxy_hook_file_errors") == 200)
    answered = calls(node)
    figure(f"trouble: log unread, 200 lines waiting: {answered} of {CALLS} calls answered")
    assert answered == CALLS
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_no_room_where_the_bypass_file_and_the_pages_are(node: Node, figure: Figure) -> None:
    """It starts, serves, and obeys SIGUSR1 all the same: the switch is the process's own then."""
    run = node.directory / "run"
    run.mkdir()
    with full(run):
        process = node.start(f"--bypass-file={run}/bypass", f"--metrics-endpoint={run}/status.sock")
        node.told("READY=1", 20)
        assert process.stderr is not None
        assert any(f"no status pages at {run}/status.sock yet" in line for line in process.stderr)  # waits for it
        answered = calls(node)
        process.send_signal(signal.SIGUSR1)
        answered += calls(node)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        said = process.stderr.read()
    assert "bypass ends with this process" in said
    assert "bypass is on" in said
    figure(f"trouble: /run full: {answered} of {2 * CALLS} calls answered")
    assert answered == 2 * CALLS


def test_protobuf_that_cannot_be_loaded(node: Node, figure: Figure) -> None:
    """A package whose generated code is broken, as half a change leaves it: edits are lost, calls are not."""
    packages = node.directory / "packages"
    source = Path(koord.pb.__file__ or "").parent
    shutil.copytree(source.parent, packages / "koord", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (packages / "koord/pb").rglob("*_pb2.py"):
        file.write_text("raise ImportError('half a change')\n")
    (node.directory / "hooks/x.json").write_text(HOOKS % node.directory)
    process = ready(node, (sys.executable, "-c", WITH_PACKAGES.format(str(packages))))
    answered = calls(node, RUN, REQUEST) + calls(node)
    figure(f"trouble: protobuf broken: {answered} of {2 * CALLS} calls answered, half of them to be edited")
    assert answered == 2 * CALLS
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert process.stderr is not None
    assert "half a change" in process.stderr.read()


def test_out_of_descriptors_towards_hooks(node: Node, figure: Figure) -> None:
    """An open connection goes on; a hook server that cannot be asked is treated by its policy."""
    (node.directory / "hooks/x.json").write_text(HOOKS % node.directory)
    process = ready(node)
    with node.channel() as channel:
        call: Call = channel.unary_unary(RUN)
        assert call(REQUEST, timeout=20) == REQUEST
        with descriptors(process, 3):
            answered = sum(call(REQUEST, timeout=20) == REQUEST for _ in range(CALLS))
    asked = sum(
        map(float, re.findall(r"^koord_runtimeproxy_hook_calls_total\{.*\} (\S+)$", node.get("/metrics"), re.M))
    )
    figure(f"trouble: no descriptors towards hooks: {answered} of {CALLS} calls answered, {asked:g} hook calls in vain")
    assert answered == CALLS
    assert asked >= CALLS


def test_out_of_descriptors_to_accept(node: Node, figure: Figure) -> None:
    """Who comes waits in the socket's queue, and is served once there are descriptors again."""
    process = ready(node)
    assert calls(node) == CALLS
    with node.channel() as channel:
        with descriptors(process, 3):
            call: Call = channel.unary_unary(ECHO)
            waiting = [call.future(b"later", timeout=30, wait_for_ready=True) for _ in range(10)]
            assert process.stderr is not None
            assert any("no connection can be accepted" in line for line in process.stderr)  # waits for it
            meanwhile = sum(each.done() for each in waiting)
        answered = sum(each.result() == b"later" for each in waiting)
    figure(f"trouble: no descriptors to accept: {meanwhile} of 10 calls answered meanwhile, {answered} afterwards")
    assert (meanwhile, answered) == (0, 10)
    assert process.poll() is None
