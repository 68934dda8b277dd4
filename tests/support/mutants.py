"""Small faults of the code under a test, each of which the test must find: what shows that its checks can fail.

A fault replaces one fragment of one method's source. Where the code has changed so that a fragment is not there any
more the fault must be written anew, which the test says.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands once in ``method`` of ``owner``, and ``new`` takes its place."""

    name: str
    owner: type
    method: str
    old: str
    new: str


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The code has this fault for the time of the block."""
    original = mutant.owner.__dict__[mutant.method]
    source = textwrap.dedent(inspect.getsource(original))
    if source.count(mutant.old) != 1:
        raise LookupError(f"{mutant.owner.__name__}.{mutant.method} has no single {mutant.old!r}: write the fault anew")
    made: dict[str, object] = {}
    faulty = source.replace(mutant.old, mutant.new).replace("super()", f"super({mutant.owner.__name__}, self)")
    code = "from __future__ import annotations\n" + faulty
    exec(compile(code, f"<{mutant.name}>", "exec"), original.__globals__, made)
    setattr(mutant.owner, mutant.method, made[mutant.method])
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.method, original)
