"""Chooses the histogram that times a call. Invariant: their number is bounded, however many paths clients call."""

from __future__ import annotations

from koord.service.metrics import Histogram

_CRI = ("/runtime.v1.", "/runtime.v1alpha2.")
_MAX_METHODS = 128  # CRI has about 40 in each version
_OTHER = "other"


def histogram_of(path: str, histograms: dict[str, Histogram]) -> Histogram:
    """Returns the histogram of ``path``; those that are not CRI's share one."""
    is_own = path in histograms or (path.startswith(_CRI) and len(histograms) < _MAX_METHODS)
    return histograms[path if is_own else _OTHER]
