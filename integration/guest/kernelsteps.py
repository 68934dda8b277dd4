"""Steps on the guest's kernel files, sent in one go: see ``inside.kernelfiles``, which does them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from integration.guest import payload
from integration.guest.guest import Guest

Step = tuple[Any, ...]
TIMEOUT_S = 300.0
TREE = "/sys/fs/cgroup"


def do(guest: Guest, steps: Sequence[Step]) -> list[Any]:
    """The result of each step."""
    argv = ("python3", "-B", "-m", "integration.guest.inside.kernelfiles")
    data = json.dumps(steps).encode()
    results: list[Any] = json.loads(guest.do(*argv, timeout_s=TIMEOUT_S, data=data, PYTHONPATH=payload.PYTHONPATH))
    assert len(results) == len(steps)
    return results
