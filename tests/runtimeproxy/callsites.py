"""Every call that code under test makes, found by running it, and an exception raised in the place of one of them.

Python tells a trace function of each instruction before it is executed; one that raises there raises in the place of
the call. That covers functions of Python, of C and constructors alike.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple


class Site(NamedTuple):
    """``offset``: of the call's instruction in bytes."""

    code: CodeType
    offset: int

    def __str__(self) -> str:
        lines = [line for start, end, line in self.code.co_lines() if start <= self.offset < end]
        return f"{Path(self.code.co_filename).name}:{lines[0] if lines else 0} in {self.code.co_qualname}"


@cache
def _calls_in(code: CodeType) -> frozenset[int]:
    return frozenset(
        each.offset
        for each in dis.get_instructions(code)
        if each.opname.startswith("CALL") and not each.opname.startswith("CALL_INTRINSIC")
    )


class CallSites:
    """Watches the code whose file ``concerns`` says yes to, in this thread."""

    def __init__(self, concerns: Callable[[str], bool]) -> None:
        self._concerns = cache(concerns)
        self._met: Callable[[Site], None] = lambda site: None
        self._only: CodeType | None = None

    def recorded(self) -> contextlib.AbstractContextManager[dict[Site, int]]:
        """How often each call is made in the block."""
        counts: dict[Site, int] = {}

        def met(site: Site) -> None:
            counts[site] = counts.get(site, 0) + 1

        return self._watching(met, counts)

    def failing(self, site: Site, error: Exception) -> contextlib.AbstractContextManager[list[Site]]:
        """``error`` instead of the first call at ``site`` in the block; the list says whether it came to that."""
        raised: list[Site] = []

        def met(each: Site) -> None:
            if each == site and not raised:
                raised.append(each)
                raise error

        return self._watching(met, raised, site.code)

    @contextlib.contextmanager
    def _watching(self, met: Callable[[Site], None], result: Any, only: CodeType | None = None) -> Iterator[Any]:
        self._met, self._only = met, only
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield result
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code is not self._only if self._only is not None else not self._concerns(code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and frame.f_lasti in _calls_in(frame.f_code):
            self._met(Site(frame.f_code, frame.f_lasti))
        return self._instruction
