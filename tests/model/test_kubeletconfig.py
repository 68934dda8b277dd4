"""kubelet's configuration as /configz answers it."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model import cpuset, kubeletconfig
from koord.model.kubeletconfig import KubeletConfig, KubeletConfigError
from koord.model.reservation import ReservationError, Reserved


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ({"cpuManagerPolicy": 3}, KubeletConfigError, "Expected `str`, got `int` - at `$.cpuManagerPolicy`"),
        ({"cpuManagerPolicyOptions": ["x"]}, KubeletConfigError, "at `$.cpuManagerPolicyOptions`"),
        ({"reservedSystemCPUs": "first"}, ReservationError, "reservedSystemCPUs: 'first'"),
        ({"kubeReserved": {"cpu": "many"}}, ReservationError, "kubeReserved.cpu: 'many'"),
    ],
)
def test_what_cannot_be_read_is_named(config: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        kubeletconfig.read(config, 0)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("config", "read"),
    [
        ({}, KubeletConfig()),
        ({"featureGates": {"MemoryQoS": True}}, KubeletConfig(writes_memory_protection=True)),
        ({"featureGates": {"AllAlpha": True}}, KubeletConfig(writes_memory_protection=True)),
        ({"featureGates": {"AllAlpha": True, "MemoryQoS": False, "Other": "?"}}, KubeletConfig()),
        ({"port": 10250, "cpuManagerPolicyOptions": None, "topologyManagerPolicy": ""}, KubeletConfig()),
        (
            {
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
                "reservedSystemCPUs": "0-1,8",
                "topologyManagerPolicy": "single-numa-node",
                "topologyManagerScope": "pod",
            },
            KubeletConfig(
                cpu_manager_policy="static",
                cpu_manager_policy_options={"full-pcpus-only": "true"},
                reserved_system_cpus=cpuset.parse("0-1,8"),
                topology_manager_policy="single-numa-node",
                topology_manager_scope="pod",
                reserved=Reserved(3000, 0),
            ),
        ),
        (
            {"evictionHard": {"memory.available": "5%"}, "systemReserved": {"memory": "10"}},
            KubeletConfig(reserved=Reserved(0, 60)),
        ),
    ],
    ids=[
        "kubelet's defaults",
        "MemoryQoS",
        "all alpha features",
        "all but MemoryQoS",
        "null and empty",
        "all",
        "what is reserved",
    ],
)
def test_what_it_says(config: Any, read: KubeletConfig) -> None:
    assert kubeletconfig.read(config, 1000) == read


TIERED, NO_POLICY = {"memoryReservationPolicy": "TieredReservation"}, {"memoryReservationPolicy": "None"}
THROTTLED = {"memoryThrottlingFactor": 0.9}


@pytest.mark.parametrize(
    ("config", "gates", "writes"),
    [
        ({}, {}, False),
        (THROTTLED, {}, False),  # kubelet up to 1.35 by its defaults
        (NO_POLICY, {}, False),  # 1.37 by its defaults
        (NO_POLICY | THROTTLED, {}, None),
        (TIERED, {}, True),
        ({"memoryReservationPolicy": "Another"}, {}, True),
        (TIERED | THROTTLED, {"MemoryQoS": False}, False),
        (THROTTLED, {"MemoryQoS": True}, True),
        (TIERED, {"MemoryQoS": "yes"}, None),
        (TIERED, {"AllAlpha": False, "AllBeta": False}, True),
        ({}, {"AllAlpha": True}, True),
    ],
)
def test_whether_it_protects_memory(config: Any, gates: Any, writes: bool | None) -> None:
    """A gate that is not named tells nothing: it has another default by version."""
    assert kubeletconfig.read({"featureGates": gates} | config, 0).writes_memory_protection is writes


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({}, 0),
        ({"kubeReserved": {"cpu": "1"}}, 1),
        ({"kubeReserved": {"cpu": "1001m"}}, 2),
        ({"kubeReserved": {"cpu": "1800m"}, "systemReserved": {"cpu": "200m"}}, 2),
        ({"kubeReserved": {"cpu": "4"}, "reservedSystemCPUs": "3"}, 1),
    ],
)
def test_how_many_cpus_a_static_cpu_manager_reserves(config: Any, count: int) -> None:
    assert kubeletconfig.read(config, 0).reserved_cpu_count == count
