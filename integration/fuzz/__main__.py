"""The proxy under malformed input: ``python -m integration.fuzz`` (environment: SECONDS=60, SEED=random, SIEGE=all).

Attackers, sieges and flooding hook servers in shifts, a lying hook server and a scribbler of hook-server files work on
one proxy process at once, all from a process of their own. All along the proxy must stay the same process, stay within
its idle memory, the budget of held bytes and 32 MiB, and answer a well-behaved client rightly and edited; afterwards
its memory must come back.
``SIEGE=part of a name`` lays that siege for the whole time, without any other attack. A violation prints what happened
just before it and the seed; the seed repeats the attacks, though not their timing. The last line is the summary. No
root.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import grpc
import grpc.aio
import uvloop

from integration.fuzz.attackers import Attacks, Orders, attackers
from integration.fuzz.attacks import SERVICE
from integration.fuzz.calls import create_request
from integration.fuzz.hookfiles import good
from integration.fuzz.hookservers import editor, hook_servers, silent
from integration.fuzz.memory import Memory, Violation
from integration.fuzz.peers import EDITED_MARK, digest, runtime
from integration.harness.proxy import socket_of, start_proxy
from koord.pb.cri import api_pb2 as pb

ANSWER_S = 20.0  # a good call must be answered within, whoever else keeps the proxy busy
HOOK_TIMEOUT = "1s"
HELD_BUDGET_MIB = 16
QUIET_CALLS = 20
EDITED_SHARE = 0.95  # of good creations; a few may meet a hook timeout where everybody is busy


@dataclass(slots=True)
class Tally:
    """What happened so far; ``edited`` are creations of good calls."""

    attacks: Attacks = field(default_factory=Attacks)
    good_calls: int = 0
    edited: int = 0
    slowest_ms: float = 0.0

    @property
    def edited_share(self) -> float:
        return 2 * self.edited / max(1, self.good_calls)

    def take_attacks(self, done: asyncio.Task[Attacks]) -> None:
        if done.exception() is None:
            self.attacks = done.result()

    def summary(self, seed: int, seconds: float, memory: Memory) -> str:
        attacks = self.attacks
        sieges = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in attacks.sieges.items())
        return (
            f"MB sent by sieges: {sieges}\n"
            f"fuzz-proxy: seed {seed}, {seconds:.0f} s: {attacks.count:,} attacks, {attacks.sent_bytes / 1e6:,.0f} MB, "
            f"{len(attacks.sieges)} sieges, {attacks.sieges.total() / 1e6:,.0f} MB sent, {attacks.hook_files:,} hook "
            f"files; {self.good_calls:,} good calls right, {100 * self.edited_share:.0f} % of creations edited, "
            f"slowest {self.slowest_ms:.0f} ms; proxy alive, {memory.idle_mib:.0f} MiB at rest, at most "
            f"{memory.peak_mib:.0f} of {memory.limit_mib:.0f}, {memory.after_mib:.0f} afterwards"
        )


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


async def fuzz(orders: Orders, tally: Tally) -> Memory:
    """Attacks as the orders say, and good calls beside them. Raises ``Violation``."""
    hook_files, backend, seed = orders.hook_files, orders.directory / "runtime.sock", orders.seed
    hook_files.mkdir()
    honest = {"editor": editor, "silent": silent}
    async with runtime(backend), hook_servers(orders.directory, honest) as hooks:
        (hook_files / "editor.json").write_text(json.dumps(good(hooks["editor"], ["PreCreateContainer"])))
        never = good(hooks["silent"], ["PreUpdateContainerResources"]) | {"timeout": "20s"}
        (hook_files / "silent.json").write_text(json.dumps(never))
        flags = ["--hook-timeout", HOOK_TIMEOUT, "--held-bytes-budget", f"{HELD_BUDGET_MIB}MiB"]
        process = await asyncio.to_thread(start_proxy, backend, orders.directory, hook_files, flags)
        memory = Memory(process, HELD_BUDGET_MIB)
        try:
            await good_client(orders.proxy, Random(f"{seed}/quiet"), tally, QUIET_CALLS)
            await memory.settle()
            async with asyncio.TaskGroup() as cgroup, attackers(orders) as attacking:
                attacking.add_done_callback(tally.take_attacks)
                client = good_client(orders.proxy, Random(f"{seed}/good"), tally)
                tasks = [cgroup.create_task(work) for work in (memory.watch(), client)]
                await asyncio.wait([attacking])
                attacking.result()
                for task in tasks:
                    task.cancel()
            await memory.come_back()
        finally:
            process.stop()
    return memory


def _violations(errors: BaseExceptionGroup[Violation]) -> Iterator[str]:
    """Their messages, of nested groups too."""
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
        directory = Path(name)
        siege = os.environ.get("SIEGE", "")
        orders = Orders(socket_of(directory), directory / "hookserver.d", directory, seed, seconds, siege)
        reasons: list[str] = []
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                memory = runner.run(fuzz(orders, tally))
        except* Violation as violations:
            reasons += _violations(violations)
        if tally.good_calls <= QUIET_CALLS:
            reasons.append("not one good call")
        elif tally.edited_share < EDITED_SHARE:
            reasons.append(f"only {100 * tally.edited_share:.0f} % of good creations were edited")
        if reasons:
            log = Path(name, "proxy.log").read_text(errors="replace").splitlines()
            print("\n".join([*log[-20:], "attacks, newest last:", *tally.attacks.recent]))
            print(f"fuzz-proxy: seed {seed}: VIOLATION after {tally.attacks.count:,} attacks: {'; '.join(reasons)}")
            return 1
    print(tally.summary(seed, seconds, memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
