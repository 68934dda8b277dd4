"""Amounts in the many spellings that Kubernetes' quantities have, from a generator's ``Random``."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.oracles.objects import CPU, MEMORY

NATIVE: Mapping[str, str] = {CPU: CPU, MEMORY: MEMORY}
ODD = ("100u", "0.1", "1e3", "2k", "1.5Gi", "500m", "1n", "+7", ".5", "3.", 0.1, 7, 2.0, 0, "0", "12e-1", "1E2")
UNREADABLE = ("", "lots", "-1", -3, "1 Gi", "1gi", "Mi", "0x10", "1e", "1.2.3", "٣", None)


def resources(rng: Random, size: tuple[int, ...], names: Mapping[str, str] = NATIVE) -> dict[str, Any]:
    """``size`` in milli-cores and bytes as a resource list, CPU under ``names``' name for it in that one's unit."""
    cpu_milli, memory_bytes = size
    cpu = cpu_text(rng, cpu_milli) if names[CPU] == CPU else whole_text(rng, cpu_milli)
    return {names[CPU]: cpu, names[MEMORY]: memory_text(rng, memory_bytes)}


def resources_or_odd(rng: Random, size: tuple[int, ...], names: Mapping[str, str] = NATIVE) -> dict[str, Any]:
    """As ``resources``; but often of another size, or no amounts at all."""
    amounts = resources(rng, size, names)
    for name in amounts:
        if rng.random() < 0.3:
            amounts[name] = rng.choice(ODD if rng.random() < 0.6 else UNREADABLE)
    return amounts


def cpu_text(rng: Random, milli: int) -> Any:
    cores = milli // 1000
    return rng.choice(
        (
            f"{milli}m",
            f"{milli / 1000}",
            f"{milli * 1000 + rng.randint(-1, 999)}u" if milli else "1u",
            f"{milli * 10**6 + rng.randint(0, 10**6)}n",
            f"{cores}",
            cores,
            milli / 1000 if milli >= 1 else 0.25,
            f"{milli}e-3",
        )
    )


def whole_text(rng: Random, milli: int) -> Any:
    """Of ``batch-cpu`` and ``mid-cpu``, which count milli-cores in whole units."""
    return rng.choice((milli, f"{milli}", f"{milli / 1000}k", f"{milli}000m", f"{milli}e0", f"{milli}.5"))


def memory_text(rng: Random, size_bytes: int) -> Any:
    return rng.choice(
        (
            size_bytes,
            f"{size_bytes}",
            f"{size_bytes >> 10}Ki",
            f"{size_bytes >> 20}Mi",
            f"{(size_bytes >> 20) / 1024}Gi",
            f"{size_bytes / 10**9:.3f}G",
            f"{size_bytes // 10**6}e6",
            f"{size_bytes}001m",
            f"{size_bytes // 1000}.25k",
        )
    )
