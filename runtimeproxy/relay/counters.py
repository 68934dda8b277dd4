"""What the relay counts, as plain attributes: the hot path adds to integers, the exposition reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from koord.service.metrics import Histogram

_CRI = ("/runtime.v1.", "/runtime.v1alpha2.")
_MAX_METHODS = 128  # CRI has about 40 in each version
_OTHER = "other"


@dataclass(slots=True)
class RelayCounters:
    """All totals since start, except those marked "now".

    ``calls``: (path label, gRPC status) → finished streams. ``fail_open``: reason → requests that went on unedited
    although they were to be edited. ``not_held``: reason → requests that could not be held (under policy Fail they
    were refused and count in ``refused`` too). ``not_copied``: reason → tapped requests that passed unseen. ``blind``:
    reason → connections on which decoding failed. ``latency`` and ``hold``: method → from a stream's first frame to its
    end, and to the decision on a held request.
    """

    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    fail_open: Counter[str] = field(default_factory=Counter)
    not_held: Counter[str] = field(default_factory=Counter)
    not_copied: Counter[str] = field(default_factory=Counter)
    blind: Counter[str] = field(default_factory=Counter)
    latency: dict[str, Histogram] = field(default_factory=dict)
    hold: dict[str, Histogram] = field(default_factory=dict)
    edited: int = 0
    refused: int = 0
    bytes_to_runtime: int = 0
    bytes_to_client: int = 0
    connections: int = 0  # now
    connections_total: int = 0
    connections_unserved: int = 0
    held_streams: int = 0  # now
    held_bytes: int = 0  # now

    def latency_of(self, path: str) -> Histogram:
        """The histogram of calls of ``path``; those that are not CRI's share one."""
        return _of(self.latency, path)

    def hold_of(self, path: str) -> Histogram:
        return _of(self.hold, path)


def _of(histograms: dict[str, Histogram], path: str) -> Histogram:
    known = histograms.get(path)
    if known is not None:
        return known
    named = path.startswith(_CRI) and len(histograms) < _MAX_METHODS
    return histograms.setdefault(path if named else _OTHER, Histogram())
