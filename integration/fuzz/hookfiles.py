"""Hook-server files, of which few are good, in a directory that a proxy watches."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

STAGES = ["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources", "*"]


def good(hook_socket: Path, stages: Sequence[str]) -> dict[str, object]:
    """What the file of an honest server says; policy Fail would make refusals the right answer."""
    return {"remote-endpoint": str(hook_socket), "failure-policy": "Ignore", "runtime-hooks": list(stages)}


async def scribble(directory: Path, hook_socket: Path, chance: Random, written: Callable[[], None]) -> None:
    """Write, replace and delete files for ever; ``written`` is told of each."""
    while True:
        target = directory / f"{chance.randrange(4)}{chance.choice(['.json', 'json', '.yaml', '.json'])}"
        _scribble_once(target, hook_socket, chance)
        written()
        await asyncio.sleep(chance.random() * 0.1)


def _scribble_once(target: Path, hook_socket: Path, chance: Random) -> None:
    spec = good(hook_socket, chance.sample(STAGES, chance.randrange(1, 4)))
    values = ["", 5, None, [], {}, "Fial", ["NoSuchHook"], "/nowhere", "x" * 5_000, True, [None]]
    text = json.dumps(spec)
    if target.is_dir() and not target.is_symlink():
        target.rmdir()
    elif not target.is_file() or chance.random() < 0.5:
        target.unlink(missing_ok=True)
    match chance.randrange(8):
        case 0 | 1 | 2:
            target.write_text(text)
        case 3:
            target.write_text(json.dumps({**spec, chance.choice([*spec, "other"]): chance.choice(values)}))
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
