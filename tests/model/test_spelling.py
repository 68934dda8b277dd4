"""What somebody probably meant."""

from __future__ import annotations

import pytest

from koord.model.spelling import did_you_mean, nearest

KEYS = ("colocation-config", "resource-qos-config", "cpu-burst-config", "system-config")
KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "CronJob", "Pod", "ConfigMap", "ClusterColocationProfile")


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
