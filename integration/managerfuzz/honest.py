"""Measures what honest clients notice, in a process of its own: ``python -m integration.managerfuzz.honest``.

An API server's reviews of pods, and kubelet's probe of the manager's health, which shows how long its event loop stands
still. A line on standard input asks for the results since the last one, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field

import aiohttp

REVIEWS_PER_S, PROBE_S, IN_TIME_S = 20, 0.02, 1.0
SOURCE = "127.0.0.2"
_LONGEST_S = 10.0


@dataclass
class Noticed:
    """``reviews``, ``probes``: those that have ended. ``stall_s``: the longest probe, answered or not. ``wrong``: of a
    review's answer that was not what the pod should get."""

    reviews: int = 0
    in_time: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    stall_s: float = 0.0
    probes: int = 0
    answered: int = 0
    """Of the probes: those that found the manager healthy."""

    def complain(self, why: str) -> None:
        self.wrong[why] = self.wrong.get(why, 0) + 1


def review(number: int) -> dict[str, object]:
    pod = {
        "metadata": {"name": f"p{number}", "namespace": "shop", "labels": {"batch": "yes"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
    }
    request = {
        "uid": f"u{number}",
        "operation": "CREATE",
        "namespace": "shop",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Honest:
    def __init__(self, webhooks: int, health: int) -> None:
        self._webhooks, self._health = webhooks, health
        self.noticed = Noticed()

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(ssl=False, local_addr=(SOURCE, 0), limit=8)
        async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
            group.create_task(self._probe())
            number, due_s = 0, time.monotonic()
            while True:
                number += 1
                group.create_task(self._review(session, number))
                due_s += 1 / REVIEWS_PER_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _review(self, session: aiohttp.ClientSession, number: int) -> None:
        begun_s = time.monotonic()
        wrong = await self._wrong(session, number)
        self.noticed.reviews += 1
        if wrong:
            self.noticed.complain(wrong)
        elif time.monotonic() - begun_s <= IN_TIME_S:
            self.noticed.in_time += 1
        else:
            self.noticed.complain("late")

    async def _wrong(self, session: aiohttp.ClientSession, number: int) -> str:
        """What was wrong with its answer; "" = nothing."""
        url = f"https://127.0.0.1:{self._webhooks}/mutate-pod?timeout=10s"
        try:
            async with session.post(
                url, json=review(number), timeout=aiohttp.ClientTimeout(_LONGEST_S), server_hostname="localhost"
            ) as answer:
                document = await answer.json(content_type=None) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            return type(error).__name__
        return "" if document.get("response", {}).get("patch") else f"HTTP {answer.status}"

    async def _probe(self) -> None:
        while True:
            begun_s = time.monotonic()
            is_healthy = await probed(self._health)
            self.noticed.probes += 1
            self.noticed.answered += is_healthy
            self.noticed.stall_s = max(self.noticed.stall_s, time.monotonic() - begun_s)
            await asyncio.sleep(PROBE_S)


async def probed(port: int) -> bool:
    """Is the answer that of a healthy process?"""
    try:
        async with asyncio.timeout(_LONGEST_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(SOURCE, 0))
            try:
                writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                return re.match(rb"HTTP/1\.\d 200 ", await reader.read()) is not None
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


async def main() -> None:
    parser = argparse.ArgumentParser(description="Reviews and probes.")
    parser.add_argument("--webhooks", type=int, required=True)
    parser.add_argument("--health", type=int, required=True)
    options = parser.parse_args()
    honest = Honest(options.webhooks, options.health)
    running = asyncio.create_task(honest.run())
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(asdict(honest.noticed)), flush=True)
        honest.noticed = Noticed()
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main())
