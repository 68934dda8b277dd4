"""A koordctl process imports nothing heavy for an answer."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.koordctl.commands.fullnode import full_scene
from tests.qosd.inspect.scenes import inspecting


async def test_what_an_answer_imports(tmp_path: Path) -> None:
    """Neither an event loop nor a gRPC library nor another output's library: 200 ms is all there is."""
    heavy = ("grpc", "asyncio", "yaml", "json", "difflib", "termios", "msgspec", "qosd")
    probe = (
        "import sys, koordctl.__main__ as m\n"
        "try: m.main()\n"
        f"finally: print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    async with inspecting(tmp_path / "i.sock", full_scene(tmp_path)) as path:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", probe, "explain", "pod", "job", "--socket", path, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
    assert (b"decided by hooks" in out, err.splitlines()[-1]) == (True, b"[]")
