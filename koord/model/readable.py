"""Parts of sentences that people read: amounts, lists that are cut short, the word that somebody probably meant.

Amounts are rounded (``482.1 MiB``, ``1.25 CPUs``), so nothing computes with them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord.model.priority import CPU, is_in_bytes

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_LEAST_LIKENESS = 0.75
"""Of 1.0: ``Deploymnet`` and ``Deployment`` are 0.9 alike, ``CloneSet`` and ``ReplicaSet`` 0.67."""


def memory(amount_bytes: int) -> str:
    """Writes bytes in the largest unit of which there is at least one."""
    for unit, size in _UNITS:
        if abs(amount_bytes) >= size:
            shown = f"{amount_bytes / size:.1f}".removesuffix(".0")
            return f"{shown} {unit}"
    return "1 byte" if amount_bytes == 1 else f"{amount_bytes} bytes"


def cpus(amount_milli: int) -> str:
    """Writes CPUs: ``1 CPU``, ``0.25 CPUs``, ``0.005 CPUs``."""
    return "1 CPU" if amount_milli == 1000 else f"{amount_milli / 1000:g} CPUs"


def amount(resource: str, units: int) -> str:
    """Writes what there is of a resource beside its name. ``units``: CPU in thousandths, all else whole."""
    sign, size = "-" if units < 0 else "", abs(units)
    if resource == CPU:
        return f"{sign}{size / 1000:g}"
    return sign + (memory(size) if is_in_bytes(resource) else str(size))


def shorten_list(items: Sequence[str], most: int, noun: str = "more", prefix: str = "") -> tuple[str, ...]:
    """Returns all items if they are no more than ``most``; else ``most`` of them, and ``<prefix>and 3 <noun>``, which
    counts what is left out.
    """
    left_out = len(items) - most
    return (*items[:most], f"{prefix}and {left_out} {noun}") if left_out > 0 else tuple(items)


def nearest(word: str, known: Iterable[str]) -> str:
    """The one of ``known`` that ``word`` resembles most, whatever the case of its letters; "" if it resembles none."""
    import difflib  # noqa: PLC0415 - 5 ms that only an error needs

    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower()[:100], by_lower, 1, _LEAST_LIKENESS)
    return by_lower[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `` (did you mean X?)`` for the end of a clause; "" if ``word`` resembles nothing."""
    meant = nearest(word, known)
    return f" (did you mean {meant}?)" if meant else ""
