"""The way from a tick's plan to the kernel is short: how many of our functions are on the stack at the write itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.qosd.act.rig import QUOTA, Rig, wants

MOST = 8
OURS = ("koord", "qosd")


def test_from_the_executed_plan_to_the_written_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    rig, stacks = Rig(tmp_path), list[list[str]]()
    rig.make()
    written_path = str(rig.path(QUOTA))
    write = os.write

    def traced(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}") == written_path:
            stacks.append(_ours())
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", traced)
    rig.say("hooks", (QUOTA, wants(50_000)))
    rig.tick()
    (stack,) = stacks
    record_property("count", f"functions between an executed plan and the write: {len(stack)}: {' > '.join(stack)}")
    assert stack[0] == "execute"
    assert len(stack) <= MOST, stack


def _ours() -> list[str]:
    """Names of our functions on the stack, outermost first; what Python makes of comprehensions is none."""
    names: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        package = frame.f_globals.get("__name__", "").partition(".")[0]  # a path also tells the checkout's own name
        if package in OURS and not code.co_name.startswith("<"):
            names.append(code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return names[::-1]
