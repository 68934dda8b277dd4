"""A failing run made short: steps are left out as long as the same thing still goes wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.runtimeproxy.simulation.life import Life, Trace, guarded
from tests.runtimeproxy.simulation.raw import life_of

_MAX_REPLAYS = 3_000


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in the life of this seed, and the steps that led there."""

    seed: int
    error: Exception
    trace: Trace

    def told(self) -> str:
        """What a failing run prints: its seed, and a short way to the same failure."""
        short = shrunk(self.seed, self.trace, signature(self.error))
        life, last = replayed(self.seed, short)
        lines = [f"life {self.seed}: {type(self.error).__name__}: {self.error}"]
        lines.append(f"{len(self.trace)} steps, of which {len(short)} lead there ({last}):")
        lines += [f"  {number:3d} {line}" for number, line in enumerate(life.told)]
        return "\n".join(lines)


def signature(error: BaseException) -> str:
    """What went wrong, whatever the numbers in it."""
    return f"{type(error).__name__}: {re.sub('[0-9]+', 'N', str(error))[:60]}"


def shrunk(seed: int, trace: Trace, wanted: str) -> Trace:
    """A short part of ``trace`` that fails with the signature ``wanted``, by delta debugging."""
    replays = 0
    size = max(1, len(trace) // 2)
    while size and replays < _MAX_REPLAYS:
        begin, is_shorter = 0, False
        while begin < len(trace) and replays < _MAX_REPLAYS:
            shorter = trace[:begin] + trace[begin + size :]
            replays += 1
            error = replayed(seed, shorter)[1]
            if error is not None and signature(error) == wanted:
                trace, is_shorter = shorter, True
            else:
                begin += size
        if size > 1 or not is_shorter:
            size //= 2
    return trace


def replayed(seed: int, trace: Trace) -> tuple[Life, Exception | None]:
    """Run the steps of ``trace`` again."""
    life = life_of(seed)
    return life, guarded(life, lambda: life.replay(trace))
