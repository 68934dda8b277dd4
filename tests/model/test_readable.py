"""Amounts, lists and probable words in sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import readable
from koord.model.readable import did_you_mean, nearest, shorten_list

KEYS = ("colocation-config", "resource-qos-config", "cpu-burst-config", "system-config")
KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "CronJob", "Pod", "ConfigMap", "ClusterColocationProfile")


@pytest.mark.parametrize(
    ("amount_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (505530286, "482.1 MiB"),
        (256 << 20, "256 MiB"),
        (100 << 30, "100 GiB"),
        (-(5 << 30), "-5 GiB"),
        (3 << 41, "6 TiB"),
    ],
)
def test_memory(amount_bytes: int, text: str) -> None:
    assert readable.memory(amount_bytes) == text


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0 CPUs"), (1, "0.001 CPUs"), (250, "0.25 CPUs"), (1000, "1 CPU"), (32000, "32 CPUs")],
)
def test_cpus(milli: int, text: str) -> None:
    assert readable.cpus(milli) == text


@pytest.mark.parametrize(
    ("items", "most", "expected"),
    [
        ([], 2, ()),
        (["a", "b"], 2, ("a", "b")),
        (["a", "b", "c"], 2, ("a", "b", "and 1 more")),
        (["a", "b"], 0, ("and 2 more",)),
    ],
)
def test_few(items: list[str], most: int, expected: tuple[str, ...]) -> None:
    assert shorten_list(items, most) == expected


def test_the_rest_in_other_words() -> None:
    assert shorten_list(["a", "b", "c"], 1, "more nodes", "here: ") == ("a", "here: and 2 more nodes")


@given(st.lists(st.text()), st.integers(0, 10))
def test_every_item_is_there_or_counted(items: list[str], most: int) -> None:
    shown = shorten_list(items, most)
    assert list(shown[:most]) == items[:most]
    assert list(shown[most:]) == ([f"and {len(items) - most} more"] if len(items) > most else [])


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("colocation-confg", KEYS, "colocation-config"),
        ("colocaton-config", KEYS, "colocation-config"),
        ("Deploymnet", KINDS, "Deployment"),
        ("pod", KINDS, "Pod"),
        ("Jobs", KINDS, "Job"),
        ("ClusterColocationProfle", KINDS, "ClusterColocationProfile"),
        ("CloneSet", KINDS, ""),
        ("Service", KINDS, ""),
        ("ServiceAccount", KINDS, ""),
        ("settings", KEYS, ""),
        ("", KEYS, ""),
        ("x" * 1_000_000, KEYS, ""),
        ("x", (), ""),
    ],
)
def test_nearest(word: str, known: tuple[str, ...], meant: str) -> None:
    assert nearest(word, known) == meant
    assert did_you_mean(word, known) == (f" (did you mean {meant}?)" if meant else "")
