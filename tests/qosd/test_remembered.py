"""Decisions are remembered by what they depend on, under the rules by which they were made, and not without end."""

from __future__ import annotations

from qosd.hooks.rules import Rules
from qosd.hookserver.remembered import MAX_DECISIONS, NOTHING, Remembered


def test_other_rules_forget_everything() -> None:
    remembered, first, second = Remembered(), Rules(), Rules()
    assert remembered.get("key", first) is None
    remembered.put("key", NOTHING)
    assert remembered.get("key", first) is NOTHING
    assert remembered.get("another", first) is None
    assert remembered.get("key", second) is None
    assert remembered.get("key", first) is None


def test_as_many_as_there_may_be() -> None:
    remembered, rules = Remembered(), Rules()
    assert remembered.get(0, rules) is None
    for key in range(MAX_DECISIONS + 1):
        remembered.put(key, NOTHING)
    assert [remembered.get(key, rules) for key in (0, MAX_DECISIONS)] == [None, NOTHING]
