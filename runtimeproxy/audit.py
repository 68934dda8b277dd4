"""Logs one line per rewritten field: the object, the values before and after, and the hook server's file.

Invariant: the value of an environment variable, and of an annotation or label that Koord does not know, is never
written. The callers hide them already, and this module does not rely on that. A line is one line, whatever a name
contains.
"""

from __future__ import annotations

from collections.abc import Callable

from koord.service.log import printable
from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, LABELS
from runtimeproxy.hooks.observe import HIDDEN, is_known

MAX_VALUE_CHARS = 512
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,[]()@+*")


class AuditLog:
    """Writes ``runtimeproxy.hooks.observe.Audit`` as lines; ``write`` takes one without its line break."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def edited(self, subject: str, field: str, before: str, after: str, file: str) -> None:
        if not _may_show(field):
            before, after = before and HIDDEN, after and HIDDEN
        self._write(
            f"edit object={_quoted(subject)} field={_quoted(field)} before={_quoted(before)} "
            f"after={_quoted(after)} who={_quoted(file)}"
        )


def _may_show(field: str) -> bool:
    """Returns whether the value may be shown of ``field``, as ``edits.name`` writes it: ``annotations[key]``."""
    kind, _, key = field.partition("[")
    if kind == ENVS:
        return False
    return kind not in (ANNOTATIONS, LABELS) or is_known(key.removesuffix("]"))


def _quoted(text: str) -> str:
    """Returns it bare where nothing can be mistaken, else in double quotes with escapes; cut at MAX_VALUE_CHARS."""
    if len(text) > MAX_VALUE_CHARS:
        text = text[:MAX_VALUE_CHARS] + "…"
    if text and _BARE.issuperset(text):
        return text
    escaped = printable(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{escaped}"'
