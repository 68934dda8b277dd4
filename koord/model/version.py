"""Versions of kernels, kubelet and runtimes, as far as Koord compares them."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, int] | None:
    """The two leading numbers of a version, with or without a ``v`` before them; None if it does not begin so."""
    found = re.match(r"v?(\d+)\.(\d+)", version, re.ASCII)
    return (int(found.group(1)), int(found.group(2))) if found else None
