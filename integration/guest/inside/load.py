"""kubelet's call mix on this node, until a file appears: ``python -m integration.guest.inside.load STOP OUTCOME``.

Nothing is killed here: the starter upgrades, restarts or breaks something until it makes the file STOP, and reads the
calls' results from the file OUTCOME (JSON), which appears whole. The real kubelet must not run: it would
remove pods that it does not know.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from integration.guest.inside import faults
from integration.harness.cri import IMAGE, RUNTIME
from integration.storm.client import IGNORED, Caller, calling
from integration.storm.groups import Slices
from integration.storm.mix import STATUS, Outcome, under_load
from integration.storm.runtime import Runtime
from integration.storm.worker import Setting, Terms
from koord.pb.cri import api_pb2 as pb

PROXY = Path("/run/koord-runtimeproxy/runtimeproxy.sock")
CONTAINERD = Path("/run/containerd/containerd.sock")
ROOT = "/kubepods.slice"
CALL_S = 100.0
RETRY_S = 0.02
POLLS = (
    (RUNTIME + "Version", 1.0),
    (STATUS, 0.3),
    (RUNTIME + "ListPodSandbox", 0.5),
    (RUNTIME + "ListContainers", 0.5),
    (IMAGE + "ListImages", 3.0),
)
WORKERS = 2
TERMS = Terms(undo_s=3.0, edited_within_s=90.0, slow=True)  # emulated CPUs
Torment = Callable[[Outcome, Setting], Awaitable[None]]


async def loaded(chance: random.Random, torment: Torment, terms: Terms = TERMS) -> Outcome:
    """The mix through the proxy of this node, for as long as ``torment`` takes; afterwards there is no pod."""
    async with calling(PROXY, CALL_S, RETRY_S) as proxied, calling(CONTAINERD, CALL_S, RETRY_S) as direct:
        setting = Setting(proxied, direct, Runtime(direct), Slices(), terms, ROOT)
        found = await under_load(setting, chance, lambda found: torment(found, setting), POLLS, WORKERS)
        await _remove_pods(direct)
        return found


async def _remove_pods(direct: Caller) -> None:
    answer = await direct.call(RUNTIME + "ListPodSandbox", pb.ListPodSandboxRequest(), pb.ListPodSandboxResponse)
    for item in answer.items:
        await direct.call(RUNTIME + "StopPodSandbox", pb.StopPodSandboxRequest(pod_sandbox_id=item.id), IGNORED)
        await direct.call(RUNTIME + "RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=item.id), IGNORED)


def as_json(found: Outcome, **more: object) -> str:
    """All its fields and what follows from them, and ``more``."""
    fields = {**_fields(found), "wrong": found.wrong(), "summary": found.summary(), **more}
    return json.dumps(fields, default=_fields)


def _fields(value: Any) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


async def _until(file: Path) -> None:
    async def there() -> bool:
        return await asyncio.to_thread(file.exists)

    await faults.until(there, timeout_s=None)


def main() -> int:
    stop, outcome = map(Path, sys.argv[1:])
    seed = int(os.environ.get("SEED") or random.randrange(1 << 31))
    found = asyncio.run(loaded(random.Random(seed), lambda *_: _until(stop)))
    partial = outcome.with_suffix(".partial")
    partial.write_text(as_json(found, seed=seed))
    partial.rename(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
