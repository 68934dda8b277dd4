"""The proxy under malformed input: ``python -m integration.fuzz`` (environment: SECONDS=60, SEED=random).

Attackers, a lying hook server and a scribbler of hook-server files work on one proxy process at once. All along it must
stay the same process, stay small, and answer a well-behaved client rightly. A violation prints what happened just
before it and the seed; the seed repeats the attacks, though not their timing. The last line is the summary. No root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import grpc
import grpc.aio
import uvloop

from integration.fuzz.attacks import SERVICE, Attack, attack
from integration.fuzz.peers import digest, lying_hook_server, runtime
from integration.harness.processes import Process
from integration.harness.proxy import socket_of, start_proxy
from koord.pb.cri import api_pb2 as pb

ATTACKERS = 3
ATTACK_S = 0.5  # longest that one attack may last
ANSWER_S = 5.0  # a good call must be answered within
HOOK_TIMEOUT = "200ms"
HELD_BUDGET_MIB = 16
RSS_LIMIT_MIB = 120  # 40 of its own, held bytes, and each attacker's buffers
STAGES = ["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources", "*"]


class Violation(Exception):
    """The proxy did what it must not."""


@dataclass(slots=True)
class Tally:
    """What happened so far; ``recent`` are the last attacks, newest last."""

    attacks: int = 0
    sent_bytes: int = 0
    good_calls: int = 0
    slowest_ms: float = 0.0
    hook_files: int = 0
    rss_mib: float = 0.0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def summary(self, seed: int, seconds: float) -> str:
        return (
            f"fuzz-proxy: seed {seed}, {seconds:.0f} s: {self.attacks:,} attacks, {self.sent_bytes / 1e6:,.0f} MB "
            f"sent, {self.hook_files:,} hook files; {self.good_calls:,} good calls right, "
            f"slowest {self.slowest_ms:.0f} ms; proxy alive, at most {self.rss_mib:.0f} MiB"
        )


async def attack_on(path: Path, chance: Random, tally: Tally) -> None:
    """One attack after the other."""
    while True:
        chosen = attack(chance)
        tally.attacks += 1
        tally.recent.append(f"{chosen.name} ({len(chosen.pieces)} pieces, {sum(map(len, chosen.pieces))} bytes)")
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ATTACK_S):
                await _deliver(path, chosen, tally)


async def _deliver(path: Path, chosen: Attack, tally: Tally) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 16)
    listening = asyncio.create_task(_discard(reader)) if chosen.reads else None
    try:
        for piece in chosen.pieces:
            for part in [piece[n : n + 1] for n in range(len(piece))] if chosen.drips else [piece]:
                writer.write(part)
                tally.sent_bytes += len(part)
                await writer.drain()
        await asyncio.sleep(0.02)  # what follows hanging up at once is another test than what follows a silence
    finally:
        writer.transport.abort()
        if listening is not None:
            listening.cancel()


async def _discard(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def good_client(path: Path, chance: Random, tally: Tally) -> None:
    """Version and CreateContainer over one connection, for ever; raises ``Violation`` on a wrong or late answer."""
    async with grpc.aio.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")]) as channel:
        version: grpc.aio.UnaryUnaryMultiCallable[pb.VersionRequest, pb.VersionResponse] = channel.unary_unary(
            SERVICE + "Version", pb.VersionRequest.SerializeToString, pb.VersionResponse.FromString
        )
        create: grpc.aio.UnaryUnaryMultiCallable[pb.CreateContainerRequest, pb.CreateContainerResponse] = (
            channel.unary_unary(
                SERVICE + "CreateContainer",
                pb.CreateContainerRequest.SerializeToString,
                pb.CreateContainerResponse.FromString,
            )
        )
        while True:
            request = _create_request(chance)
            started = time.perf_counter()
            try:
                name = (await version(pb.VersionRequest(version="0.1.0"), timeout=ANSWER_S)).runtime_name
                container_id = (await create(request, timeout=ANSWER_S)).container_id
            except grpc.aio.AioRpcError as error:
                raise Violation(f"a good call failed: {error.code().name}: {error.debug_error_string()}") from error
            if (name, container_id) != ("fuzz", digest(request)):
                raise Violation(f"wrong answers: {name!r}, {container_id!r} for a request of {digest(request)}")
            tally.good_calls += 2
            tally.slowest_ms = max(tally.slowest_ms, (time.perf_counter() - started) * 1e3)
            await asyncio.sleep(0.005)


def _create_request(chance: Random) -> pb.CreateContainerRequest:
    resources = pb.LinuxContainerResources(cpu_shares=2, oom_score_adj=1000)
    return pb.CreateContainerRequest(
        pod_sandbox_id=f"{chance.getrandbits(256):064x}",
        config=pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=f"container-{chance.randrange(1000)}"),
            image=pb.ImageSpec(image="localhost/busybox:1"),
            command=["sh", "-c", "x" * chance.choice([0, 10, 100_000])],
            linux=pb.LinuxContainerConfig(resources=resources),
        ),
        sandbox_config=pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name="pod", uid="uid", namespace="default"),
            labels={"koordinator.sh/qosClass": "BE"},
            linux=pb.LinuxPodSandboxConfig(cgroup_parent="/kubepods/besteffort/poduid"),
        ),
    )


async def scribble(directory: Path, hook_socket: Path, chance: Random, tally: Tally) -> None:
    """Write, replace and delete hook-server files, of which few are good."""
    while True:
        target = directory / f"{chance.randrange(4)}{chance.choice(['.json', 'json', '.yaml', '.json'])}"
        _scribble_once(target, hook_socket, chance)
        tally.hook_files += 1
        await asyncio.sleep(chance.random() * 0.1)


def _scribble_once(target: Path, hook_socket: Path, chance: Random) -> None:
    good = {
        "remote-endpoint": str(hook_socket),
        "failure-policy": "Ignore",  # Fail would make refusals the right answer
        "runtime-hooks": chance.sample(STAGES, chance.randrange(1, 4)),
    }
    values = ["", 5, None, [], {}, "Fial", ["NoSuchHook"], "/nowhere", "x" * 5_000, True, [None]]
    text = json.dumps(good)
    if target.is_dir() and not target.is_symlink():
        target.rmdir()
    elif not target.is_file() or chance.random() < 0.5:
        target.unlink(missing_ok=True)
    match chance.randrange(8):
        case 0 | 1 | 2:
            target.write_text(text)
        case 3:
            target.write_text(json.dumps({**good, chance.choice([*good, "other"]): chance.choice(values)}))
        case 4:
            target.write_bytes(text.encode()[: chance.randrange(len(text))] + chance.randbytes(chance.randrange(20)))
        case 5:
            target.write_text("[" * chance.choice([10, 100_000]))
        case 6:
            target.unlink(missing_ok=True)
            make: Callable[[], None] = chance.choice(
                [target.mkdir, lambda: target.symlink_to(target.name), lambda: os.mkfifo(target)]
            )
            make()
        case _:
            target.unlink(missing_ok=True)


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


async def watch(process: Process, tally: Tally) -> None:
    """Raises ``Violation`` when the proxy dies or grows."""
    while True:
        if not process.running:
            raise Violation("the proxy died")
        tally.rss_mib = max(tally.rss_mib, rss_mib(process.pid))
        if tally.rss_mib > RSS_LIMIT_MIB:
            raise Violation(f"the proxy has grown to {tally.rss_mib:.0f} MiB, {RSS_LIMIT_MIB} are allowed")
        await asyncio.sleep(0.05)


async def fuzz(directory: Path, seed: int, seconds: float, tally: Tally) -> None:
    """Everything at once for so many seconds; raises ``Violation``."""
    hook_files, backend, hooks = directory / "hookserver.d", directory / "runtime.sock", directory / "hooks.sock"
    hook_files.mkdir()
    async with runtime(backend), lying_hook_server(hooks, Random(f"{seed}/hooks")):
        flags = ["--hook-timeout", HOOK_TIMEOUT, "--held-bytes-budget", f"{HELD_BUDGET_MIB}MiB"]
        process = await asyncio.to_thread(start_proxy, backend, directory, hook_files, flags)
        proxy = socket_of(directory)
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(watch(process, tally))
                group.create_task(good_client(proxy, Random(f"{seed}/good"), tally))
                group.create_task(scribble(hook_files, hooks, Random(f"{seed}/files"), tally))
                for number in range(ATTACKERS):
                    group.create_task(attack_on(proxy, Random(f"{seed}/{number}"), tally))
        except TimeoutError:
            pass  # the time is up: that is the good end
        finally:
            process.stop()


def main() -> int:
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    seconds = float(os.environ.get("SECONDS") or 60)
    tally = Tally()
    print(f"fuzz-proxy: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="koord-fuzz-") as name:
        reasons: list[str] = []
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(fuzz(Path(name), seed, seconds, tally))
        except* Violation as violations:
            reasons += [str(violation) for violation in violations.exceptions]
        if not tally.good_calls:
            reasons.append("not one good call")
        if reasons:
            log = Path(name, "proxy.log").read_text(errors="replace").splitlines()
            print("\n".join([*log[-20:], "attacks, newest last:", *tally.recent]))
            print(f"fuzz-proxy: seed {seed}: VIOLATION after {tally.attacks:,} attacks: {'; '.join(reasons)}")
            return 1
    print(tally.summary(seed, seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
