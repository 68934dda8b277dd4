"""The word that somebody probably meant who wrote one that is not known."""

from __future__ import annotations

from collections.abc import Iterable

_LEAST_LIKENESS = 0.75
"""Of 1.0: ``Deploymnet`` and ``Deployment`` are 0.9 alike, ``CloneSet`` and ``ReplicaSet`` 0.67."""


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
