"""koord.kube with 100,000 pods: what a cache of them costs, and a POST beside bare aiohttp's. ``python -m bench.kube``.

An API server's side runs in a process of its own (``bench.kubeserver``), and so does each measured part, so CPU and
memory are those of the part alone. A part follows all pods as koord-manager does: its sharing, its index, one stream of
events with a reader. What receiving the same bytes costs with aiohttp alone is measured by another part and taken off
where a row says so. A stall is the longest time for which the event loop came to no other task.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from bench import stats
from bench.kubeserver import VERSION
from bench.table import Line, summary
from koord.kube.client import CallLimits, Client
from koord.kube.credentials import Credentials
from koord.kube.informer import Informer
from koord.kube.kind import EVENT, POD, Key
from koord.kube.kubeconfig import RESTConfig
from koord.kube.stream import EventStream
from koord.kube.transport import Transport
from koord.model.core import Pod
from koord_manager.cache import PodSharing

CHANGES = 20_000
NULL_PODS = 10_000
TURNS, POSTS = 30, 200
_TICK_S = 0.001
_EVENT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"namespace": "team-1", "name": "service-1-8d4f7c1b-0a1b2.17f3c2d1e4b5a697"},
    "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "team-1", "name": "service-1-8d4f7c1b-0a1b2"},
    "type": "Normal",
    "reason": "Scheduled",
    "message": "Successfully assigned team-1/service-1-8d4f7c1b-0a1b2 to node-0042",
    "count": 1,
    "source": {"component": "koord-scheduler"},
}


@dataclass
class Used:
    """Of one part. ``stall_cpu_s``: the CPU within the longest stall, which other processes do not lengthen."""

    sync_cpu_s: float = 0.0
    sync_s: float = 0.0
    changes_cpu_s: float = 0.0
    memory_mib: float = 0.0
    stall_s: float = 0.0
    stall_cpu_s: float = 0.0


class Loop:
    """Looks each millisecond how long the loop came to nothing else."""

    def __init__(self) -> None:
        self.longest_s = self.longest_cpu_s = 0.0

    async def run(self) -> None:
        while True:
            at_s, at_cpu_s = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_S)
            self.longest_s = max(self.longest_s, time.monotonic() - at_s - _TICK_S)
            self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - at_cpu_s)


# parts: each in a process of its own


async def follow(url: str, changes: int) -> Used:
    """Follows all pods, then ``changes`` of them."""
    used, loop = Used(), Loop()
    async with connected(url) as client:
        await client.get_path("/version")
        gc.collect()
        before_mib = resident_mib()
        stream = EventStream()
        informer = Informer(client, POD, time.monotonic, indexes={"node": _node}, stream=stream, transform=PodSharing())
        tasks = [asyncio.create_task(work) for work in (informer.run(), _drain(stream), loop.run())]
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        await informer.synced.wait()
        while len(stream):  # noqa: ASYNC110 - the reader's work
            await asyncio.sleep(0)
        used.sync_s, used.sync_cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
        used.stall_s, used.stall_cpu_s = loop.longest_s, loop.longest_cpu_s
        gc.collect()
        used.memory_mib = resident_mib() - before_mib
        tasks.pop().cancel()
        if changes:
            begun_cpu_s = time.process_time()
            await client.get_path(f"/changes/{changes}")
            while informer.counts.changes < changes:  # noqa: ASYNC110 - the informer's work
                await asyncio.sleep(0.05)
            used.changes_cpu_s = time.process_time() - begun_cpu_s
        for task in tasks:
            task.cancel()
    return used


async def receive(url: str, changes: int) -> Used:
    """Reads the same bytes, and nothing of them."""
    used = Used()
    path, watch = "/api/v1/pods", {"watch": "true", "resourceVersion": str(VERSION)}
    async with aiohttp.ClientSession(url, cookie_jar=aiohttp.DummyCookieJar()) as session:
        begun_cpu_s = time.process_time()
        async with session.get(path, params={"resourceVersion": "0"}) as answer:
            async for _ in answer.content.iter_any():
                pass
        used.sync_cpu_s = time.process_time() - begun_cpu_s
        begun_cpu_s, lines = time.process_time(), 0
        async with session.get(path, params=watch) as answer, session.get(f"/changes/{changes}"):
            async for chunk in answer.content.iter_any():
                lines += chunk.count(b"\n")
                if lines >= changes:
                    break
        used.changes_cpu_s = time.process_time() - begun_cpu_s
    return used


async def posts(url: str) -> dict[str, list[float]]:
    """Microseconds of CPU a POST, by turn."""
    async with connected(url) as client, aiohttp.ClientSession() as session:
        target, headers = f"{url}{EVENT.collection_path('team-1')}", {"Content-Type": "application/json"}

        async def event() -> None:
            await client.create(EVENT, _EVENT, "team-1")

        async def bare() -> None:
            async with session.post(target, data=msgspec.json.encode(_EVENT), headers=headers) as answer:
                await answer.read()

        pods = itertools.cycle([f"service-1-8d4f7c1b-{number:05x}" for number in range(1000)])

        async def bind() -> None:
            await client.bind(Key("team-1", next(pods)), "3f1c8a52-9d1e-4c55-b1a7-000000000042", "node-0042")

        async def bare_bind() -> None:
            name = next(pods)
            target = f"{url}/api/v1/namespaces/team-1/pods/{name}/binding"
            metadata = {"namespace": "team-1", "name": name, "uid": "3f1c8a52-9d1e-4c55-b1a7-000000000042"}
            node = {"apiVersion": "v1", "kind": "Node", "name": "node-0042"}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": node}
            async with session.post(target, data=msgspec.json.encode(body), headers=headers) as answer:
                await answer.read()

        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "aiohttp: event": bare,
            "aiohttp: bind": bare_bind,
            "event": event,
            "bind": bind,
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(TURNS + 1):
            for name in ways if turn % 2 else reversed(ways):
                begun_cpu_s = time.process_time()
                for _ in range(POSTS):
                    await ways[name]()
                if turn:
                    taken[name].append((time.process_time() - begun_cpu_s) / POSTS * 1e6)
    return taken


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    credentials = Credentials(lambda: RESTConfig(url), {}, time.monotonic, time.time)
    async with Transport(credentials, "bench/1") as transport:
        yield Client(transport, CallLimits())


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _node(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,)


async def _drain(stream: EventStream) -> None:
    while True:
        await stream.take(256)
        await asyncio.sleep(0)


# the whole


@contextlib.contextmanager
def server(pods: int, *options: str) -> Iterator[str]:
    """The URL of a server with so many pods."""
    argv = [sys.executable, "-m", "bench.kubeserver", str(pods), *options]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def part(name: str, url: str, changes: int = 0) -> Any:
    argv = [sys.executable, "-m", "bench.kube", "--part", name, "--url", url, "--changes", str(changes)]
    return json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)


def measure(pods: int, rounds: int) -> list[Line]:
    each = 1e6 / pods
    lines: list[Line] = []
    with server(pods, "--watch-list") as url:
        received = [Used(**part("receive", url, CHANGES)) for _ in range(rounds)]
        receive_cpu_s = min(used.sync_cpu_s for used in received)
        receive_change_s = min(used.changes_cpu_s for used in received)
        followed = [Used(**part("follow", url, CHANGES)) for _ in range(rounds)]
        used = min(followed, key=lambda used: used.sync_cpu_s)
        change_s = min(used.changes_cpu_s for used in followed)
        pod_us, change_us = (used.sync_cpu_s - receive_cpu_s) * each, (change_s - receive_change_s) / CHANGES * 1e6
        lines += [
            _at_most("a listed pod", pod_us, 25, "µs", f"{used.sync_cpu_s * each:.1f} µs with its receipt"),
            _at_most("a watch event", change_us, 25, "µs", f"{change_s / CHANGES * 1e6:.1f} µs with its receipt"),
            _at_most(f"memory of {pods:,} pods", used.memory_mib, 200, "MiB"),
            _at_most("CPU of the first sync", used.sync_cpu_s, 5, "s", f"{used.sync_s:.1f} s of time"),
            _at_most(
                "longest stall of the loop",
                min(used.stall_s for used in followed) * 1e3,
                50,
                "ms",
                f"{min(used.stall_cpu_s for used in followed) * 1e3:.0f} ms of CPU",
            ),
        ]
        taken = part("posts", url)
        for name in ("bind", "event"):
            bare = f"aiohttp: {name}"
            times = stats.paired(stats.ratio, taken[bare], taken[name])
            us, bare_us = (statistics.median(taken[way]) for way in (name, bare))
            figure = (
                f"{times.value:.2f} × aiohttp; [{times.low:.2f}, {times.high:.2f}], {us:.0f} against {bare_us:.0f} µs"
            )
            lines.append(Line(f"a POST ({name})", figure, "<= 1.15 ×", times.value <= 1.15))
    with server(pods) as url:
        used = Used(**part("follow", url))
        lines.append(
            Line("first sync without WatchList", f"{used.sync_cpu_s:.1f} s, stall {used.stall_s * 1e3:.0f} ms")
        )
    for null in ("", "ownerReferences"):
        with server(NULL_PODS, f"--null={null}") as url:
            us = min(Used(**part("follow", url)).sync_cpu_s for _ in range(rounds)) / NULL_PODS * 1e6
            lines.append(Line(f"a listed pod {'with' if null else 'without'} null", f"{us:.1f} µs with its receipt"))
    return lines


def _at_most(label: str, value: float, most: float, unit: str, beside: str = "") -> Line:
    figure = f"{value:.1f} {unit}" + (f"; {beside}" if beside else "")
    return Line(label, figure, f"<= {most:g} {unit}", value <= most)


def main() -> int:
    parser = argparse.ArgumentParser(description="What koord.kube costs with many pods.")
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each part; the cheapest counts (default: 2)")
    parser.add_argument("--part", choices=["follow", "receive", "posts"], help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--changes", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if options.part == "posts":
                print(json.dumps(runner.run(posts(options.url))))
            else:
                work = {"follow": follow, "receive": receive}[options.part]
                print(json.dumps(asdict(runner.run(work(options.url, options.changes)))))
        return 0
    lines = measure(options.pods, options.rounds)
    for line in lines:
        print(line.text())
    print(summary("bench-kube", lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
