"""koordctl's command line with streams of its own, in a thread, so that the test may be who answers it.

A process of its own would mostly be imports; that it starts as one, and what it imports then, have tests of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from click.testing import CliRunner

from koordctl.__main__ import main


async def koordctl(*arguments: str, stdin: str = "", **environment: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a run."""
    return await asyncio.wait_for(asyncio.to_thread(_run, arguments, stdin, environment), 30)


def _run(arguments: Sequence[str], stdin: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
    with CliRunner().isolation(stdin, environment) as (out, err, _):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        code = ended.value.code
        return code if isinstance(code, int) else 1, out.getvalue().decode(), err.getvalue().decode()
