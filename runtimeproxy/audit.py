"""Says which values logs and pages may show, and logs one line per rewritten field.

Invariant: the value of an environment variable, and of an annotation or label that Koord does not know, is never
shown. Callers of an ``Audit`` hide it already (``shown``), and ``AuditLog`` does not rely on that. A line is one line,
whatever a name contains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from koord.service.log import printable
from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, LABELS, Slot, Value

KOORDINATOR = "koordinator.sh"  # and its subdomains, such as node.koordinator.sh
KNOWN_DOMAINS = (KOORDINATOR, "rdt.resources.beta.kubernetes.io", "blockio.resources.beta.kubernetes.io")
HIDDEN = "(not shown)"
MAX_VALUE_CHARS = 512
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,[]()@+*")


class Audit(Protocol):
    """An audit log, which neither blocks nor raises."""

    def edited(self, subject: str, field: str, before: str, after: str, file: str) -> None:
        """Takes a rewritten field. ``subject``: ``pod ns/name`` or ``container ns/pod/name``; ``file``: hook file."""


class AuditLog:
    """An ``Audit`` of lines; ``write`` takes one without its line break."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def edited(self, subject: str, field: str, before: str, after: str, file: str) -> None:
        kind, _, key = field.partition("[")  # as `edits.name` writes it: ``annotations[key]``
        if _is_hidden(kind, key.removesuffix("]")):
            before, after = before and HIDDEN, after and HIDDEN
        self._write(
            f"edit object={_quoted(subject)} field={_quoted(field)} before={_quoted(before)} "
            f"after={_quoted(after)} who={_quoted(file)}"
        )


def shown(slot: Slot, value: Value) -> str:
    """Returns ``value`` as logs and pages may show it."""
    if value is None:
        return ""
    return HIDDEN if _is_hidden(slot.field, slot.key) else str(value)


def _is_hidden(field: str, key: str) -> bool:
    """Returns whether the value is an environment variable's, or of a key in no domain that Koord knows."""
    if field not in (ANNOTATIONS, LABELS):
        return field == ENVS
    domain, slash, _ = key.partition("/")
    return not slash or not (domain in KNOWN_DOMAINS or domain.endswith(f".{KOORDINATOR}"))


def _quoted(text: str) -> str:
    """Returns it bare where nothing can be mistaken, else in double quotes with escapes; cut at MAX_VALUE_CHARS."""
    if len(text) > MAX_VALUE_CHARS:
        text = text[:MAX_VALUE_CHARS] + "…"
    if text and _BARE.issuperset(text):
        return text
    escaped = printable(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{escaped}"'
