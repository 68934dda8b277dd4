"""The proxy under malformed input: ``python -m integration.fuzz`` (environment: SECONDS=60, SEED=random, SIEGE=all).

Attackers, sieges and flooding hook servers in shifts, a lying hook server and a scribbler of hook-server files work on
one proxy process at once. All along it must stay the same process, stay within its idle memory, the budget of held
bytes and 32 MiB, and answer a well-behaved client rightly and edited; afterwards its memory must come back.
``SIEGE=part of a name`` lays that siege for the whole time, without any other attack. A violation prints what happened
just before it and the seed; the seed repeats the attacks, though not their timing. The last line is the summary. No
root.
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
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import grpc
import grpc.aio
import uvloop

from integration.fuzz.attacks import SERVICE, Attack, attack
from integration.fuzz.calls import create_request
from integration.fuzz.hookfiles import good, scribble
from integration.fuzz.hookservers import hook_servers
from integration.fuzz.memory import Memory, Violation
from integration.fuzz.peers import EDITED_MARK, digest, runtime
from integration.fuzz.shifts import in_shifts, works
from integration.harness.proxy import socket_of, start_proxy
from koord.pb.cri import api_pb2 as pb

ATTACKERS = 3
ATTACK_S = 0.5  # longest that one attack may last, which a siege goes on after
ANSWER_S = 20.0  # a good call must be answered within, whoever else keeps the proxy busy
HOOK_TIMEOUT = "1s"
HELD_BUDGET_MIB = 16
QUIET_CALLS = 20
EDITED_SHARE = 0.95  # of good creations; a few may meet a hook timeout where everybody is busy


@dataclass(slots=True)
class Tally:
    """What happened so far; ``recent`` are the last attacks, newest last; ``edited`` are creations of good calls."""

    attacks: int = 0
    sent_bytes: int = 0
    sieges: Counter[str] = field(default_factory=Counter)  # bytes sent
    good_calls: int = 0
    edited: int = 0
    slowest_ms: float = 0.0
    hook_files: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def lay(self, siege: str) -> None:
        self.sieges[siege] += 0
        self.recent.append(f"siege: {siege}")

    def count_file(self) -> None:
        self.hook_files += 1

    @property
    def edited_share(self) -> float:
        return 2 * self.edited / max(1, self.good_calls)

    def summary(self, seed: int, seconds: float, memory: Memory) -> str:
        sieges = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in self.sieges.items())
        return (
            f"MB sent by sieges: {sieges}\n"
            f"fuzz-proxy: seed {seed}, {seconds:.0f} s: {self.attacks:,} attacks, {self.sent_bytes / 1e6:,.0f} MB, "
            f"{len(self.sieges)} sieges, {self.sieges.total() / 1e6:,.0f} MB sent, {self.hook_files:,} hook "
            f"files; {self.good_calls:,} good calls right, {100 * self.edited_share:.0f} % of creations edited, "
            f"slowest {self.slowest_ms:.0f} ms; proxy alive, {memory.idle_mib:.0f} MiB at rest, at most "
            f"{memory.peak_mib:.0f} of {memory.limit_mib:.0f}, {memory.after_mib:.0f} afterwards"
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


async def good_client(path: Path, chance: Random, tally: Tally, calls: int | None = None) -> None:
    """Version and CreateContainer over one connection; raises ``Violation`` on a wrong or late answer."""
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
        while calls is None or tally.good_calls < calls:
            request = create_request(chance)
            started = time.perf_counter()
            try:
                name = (await version(pb.VersionRequest(version="0.1.0"), timeout=ANSWER_S)).runtime_name
                container_id = (await create(request, timeout=ANSWER_S)).container_id
            except grpc.aio.AioRpcError as error:
                raise Violation(f"a good call failed: {error.code().name}: {error.debug_error_string()}") from error
            if (name, container_id.removesuffix(EDITED_MARK)) != ("fuzz", digest(request)):
                raise Violation(f"wrong answers: {name!r}, {container_id!r} for a request of {digest(request)}")
            tally.good_calls += 2
            tally.edited += container_id.endswith(EDITED_MARK)
            tally.slowest_ms = max(tally.slowest_ms, (time.perf_counter() - started) * 1e3)
            await asyncio.sleep(0.005)


async def fuzz(directory: Path, seed: int, seconds: float, siege: str, tally: Tally) -> Memory:
    """Everything for so many seconds, or only the sieges whose name contains ``siege``; raises ``Violation``."""
    hook_files, backend = directory / "hookserver.d", directory / "runtime.sock"
    hook_files.mkdir()
    async with runtime(backend), hook_servers(directory, Random(f"{seed}/hooks")) as hooks:
        (hook_files / "editor.json").write_text(json.dumps(good(hooks.pop("editor"), ["PreCreateContainer"])))
        silent = good(hooks.pop("silent"), ["PreUpdateContainerResources"]) | {"timeout": "20s"}
        (hook_files / "silent.json").write_text(json.dumps(silent))
        liar = hooks.pop("liar")
        flags = ["--hook-timeout", HOOK_TIMEOUT, "--held-bytes-budget", f"{HELD_BUDGET_MIB}MiB"]
        process = await asyncio.to_thread(start_proxy, backend, directory, hook_files, flags)
        proxy, memory = socket_of(directory), Memory(process, HELD_BUDGET_MIB)
        sieges = works(proxy, hook_files, hooks, tally.sieges)
        chosen = {name: work for name, work in sieges.items() if siege in name}
        try:
            await good_client(proxy, Random(f"{seed}/quiet"), tally, QUIET_CALLS)
            await memory.settle()
            async with asyncio.TaskGroup() as cgroup:
                beside = [memory.watch(), good_client(proxy, Random(f"{seed}/good"), tally)]
                if not siege:
                    beside.append(scribble(hook_files, liar, Random(f"{seed}/files"), tally.count_file))
                    beside += [attack_on(proxy, Random(f"{seed}/{number}"), tally) for number in range(ATTACKERS)]
                tasks = [cgroup.create_task(work) for work in beside]
                await in_shifts(chosen, Random(f"{seed}/sieges"), seconds, tally.lay)
                for task in tasks:
                    task.cancel()
            await memory.come_back()
        finally:
            process.stop()
    return memory


def _violations(errors: BaseExceptionGroup[Violation]) -> Iterator[str]:
    """What they say, however deep they lie in groups."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _violations(error)
        else:
            yield str(error)


def main() -> int:
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    seconds = float(os.environ.get("SECONDS") or 60)
    tally = Tally()
    print(f"fuzz-proxy: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="koord-fuzz-") as name:
        reasons: list[str] = []
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                memory = runner.run(fuzz(Path(name), seed, seconds, os.environ.get("SIEGE", ""), tally))
        except* Violation as violations:
            reasons += _violations(violations)
        if not tally.good_calls:
            reasons.append("not one good call")
        elif tally.edited_share < EDITED_SHARE:
            reasons.append(f"only {100 * tally.edited_share:.0f} % of good creations were edited")
        if reasons:
            log = Path(name, "proxy.log").read_text(errors="replace").splitlines()
            print("\n".join([*log[-20:], "attacks, newest last:", *tally.recent]))
            print(f"fuzz-proxy: seed {seed}: VIOLATION after {tally.attacks:,} attacks: {'; '.join(reasons)}")
            return 1
    print(tally.summary(seed, seconds, memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
