"""The interface of the audit log, and the values that it may show.

The hooks format nothing. Invariant: no environment value and no value of an annotation or label that Koord does not
know is ever passed to an ``Audit``; callers go through ``shown``. Implementations must not block and must not raise.
"""

from __future__ import annotations

from typing import Protocol

from runtimeproxy.hooks.edits import ANNOTATIONS, ENVS, LABELS, Slot, Value

KOORDINATOR = "koordinator.sh"  # and its subdomains, such as node.koordinator.sh
KNOWN_DOMAINS = (KOORDINATOR, "rdt.resources.beta.kubernetes.io", "blockio.resources.beta.kubernetes.io")
HIDDEN = "(not shown)"


class Audit(Protocol):
    def edited(self, subject: str, field: str, before: str, after: str, file: str) -> None:
        """Takes a rewritten field. ``subject``: ``pod ns/name`` or ``container ns/pod/name``; ``file``: hook file."""


def is_known(key: str) -> bool:
    """Returns whether the key of an annotation or label belongs to a domain whose values Koord knows, and may show."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in KNOWN_DOMAINS or domain.endswith(f".{KOORDINATOR}"))


def shown(slot: Slot, value: Value) -> str:
    """Returns ``value`` as it may be written to a log: never an environment value or an unknown annotation's."""
    if value is None:
        return ""
    if slot.field == ENVS:
        return HIDDEN
    if slot.field in (ANNOTATIONS, LABELS) and not is_known(slot.key):
        return HIDDEN
    return str(value)
