"""What kubelet reserves, by its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.reservation import NOTHING_RESERVED, ReservationError, Reserved, of_config

GIB, MIB = 1 << 30, 1 << 20
KUBE, SYSTEM = {"cpu": "200m", "memory": "1Gi"}, {"cpu": "0.3", "memory": "512Mi", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("config", "reserved"),
    [
        ({}, NOTHING_RESERVED),
        ({"kubeReserved": None, "evictionHard": {}}, NOTHING_RESERVED),
        ({"kubeReserved": KUBE}, Reserved(200, GIB)),
        ({"kubeReserved": KUBE, "systemReserved": SYSTEM}, Reserved(500, GIB + 512 * MIB)),
        ({"kubeReserved": KUBE, "systemReserved": SYSTEM, "reservedSystemCPUs": "0-1,4"}, Reserved(3000, 1536 * MIB)),
        ({"reservedSystemCPUs": ""}, NOTHING_RESERVED),
        ({"evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"}}, Reserved(0, 100 * MIB)),
        ({"evictionHard": {"memory.available": "2.5%"}}, Reserved(0, 400 * MIB)),
        ({"evictionHard": {"memory.available": "0%"}, "systemReserved": SYSTEM}, Reserved(300, 512 * MIB)),
    ],
)
def test_what_is_left_out_of_allocatable(config: dict[str, Any], reserved: Reserved) -> None:
    assert of_config(config, 16000 * MIB) == reserved


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"kubeReserved": {"cpu": "many"}}, "kubelet's kubeReserved.cpu: 'many': is not a quantity"),
        ({"systemReserved": {"memory": "-1Gi"}}, "kubelet's systemReserved.memory: '-1Gi': is negative"),
        ({"systemReserved": "much"}, "kubelet's systemReserved: 'much': is no object"),
        ({"reservedSystemCPUs": "x"}, "kubelet's reservedSystemCPUs: 'x': "),
        ({"evictionHard": {"memory.available": "x%"}}, "evictionHard[memory.available]: 'x%': is no percentage"),
        ({"evictionHard": {"memory.available": "101%"}}, "evictionHard[memory.available]: '101%': is no percentage"),
        ({"evictionHard": {"memory.available": "x"}}, "evictionHard[memory.available]: 'x': "),
    ],
)
def test_what_cannot_be_read_is_named(config: dict[str, Any], error: str) -> None:
    with pytest.raises(ReservationError) as raised:
        of_config(config, GIB)
    assert error in str(raised.value)
