"""koordctl as its own process, as people and programs run it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys


async def koordctl(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a run."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "koordctl",
        *arguments,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
    return process.returncode or 0, out.decode(), err.decode()
