"""What the relay counts, as plain attributes: the hot path adds to integers, the exposition reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class RelayCounters:
    """All totals since start, except those marked "now".

    ``calls``: (path label, gRPC status) → finished streams. ``fail_open``: reason → requests that went on unedited
    although they were to be edited. ``not_held``: reason → requests that could not be held (under policy Fail they
    were refused and count in ``refused`` too). ``blind``: reason → connections on which decoding failed.
    """

    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    fail_open: Counter[str] = field(default_factory=Counter)
    not_held: Counter[str] = field(default_factory=Counter)
    blind: Counter[str] = field(default_factory=Counter)
    edited: int = 0
    refused: int = 0
    bytes_to_runtime: int = 0
    bytes_to_client: int = 0
    connections: int = 0  # now
    connections_total: int = 0
    connections_unserved: int = 0
    held_streams: int = 0  # now
    held_bytes: int = 0  # now
