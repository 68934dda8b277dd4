"""A file's text in CRI's spelling, for people and for comparison with what was asked for.

Where one kernel text stands for several CRI values (a weight, a rounded size), the desired one is chosen if it is
among them. So equal texts mean equal effect.
"""

from __future__ import annotations

from koord.host.kernelfile import KernelFile, ParseError
from koord.host.weights import Weights

_CRI = 1  # CRI's numbers are spelled as cgroup v1's


def normalise(
    row: KernelFile,
    version: int,
    text: str,
    desired: str | None,
    page_bytes: int,
    weights: Weights = Weights.LINEAR,
) -> str:
    """CRI's text for the file text of ``row`` on cgroup ``version``; text of no known form comes back unchanged."""
    try:
        actual = row.parse(text, version, weights)
    except ParseError:
        return text
    if desired is not None:
        try:
            if row.same(row.parse(desired, _CRI), actual, page_bytes, version):
                return desired
        except ParseError:
            pass
    return str(actual)
