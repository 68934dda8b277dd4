"""kubelet's configuration, asked of a kubelet that may refuse, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from koord.model.kubeletconfig import KubeletConfig
from koord.model.reservation import NOTHING_RESERVED, Reserved
from qosd.pods import kubeletconfig
from qosd.pods.http import FetchError
from qosd.pods.kubeletconfig import KubeletConfigSource


class Kubelet:
    """Answers ``config``, or raises it."""

    def __init__(self, config: Mapping[str, Any] | Exception) -> None:
        self.says, self.calls = config, 0

    async def config(self) -> Mapping[str, Any]:
        self.calls += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


KEPT = {
    "cpuManagerPolicy": "static",
    "kubeReserved": {"cpu": "500m"},
    "evictionHard": {"memory.available": "10%"},
}
FORBIDDEN = FetchError("https://127.0.0.1:10250/configz", "403 Forbidden", 403)


class Source(KubeletConfigSource):
    def __init__(self, kubelet: Kubelet | None) -> None:
        self.changes = 0
        super().__init__(kubelet, lambda: 1000, self.count)

    def count(self) -> None:
        self.changes += 1


async def test_it_is_told_once_and_again_only_if_it_changed() -> None:
    kubelet = Kubelet(KEPT)
    source = Source(kubelet)
    first = [await source.look(kubelet), source.current]
    assert [await source.look(kubelet), source.current] == first
    assert source.current is first[1]
    assert source.current == KubeletConfig(cpu_manager_policy="static", reserved=Reserved(500, 100))
    assert (source.reserved, source.changes, source.problem) == (Reserved(500, 100), 1, "")


@pytest.mark.parametrize(
    "trouble",
    [FORBIDDEN, {"kubeReserved": {"cpu": "many"}}, {"cpuManagerPolicy": 3}],
    ids=["forbidden", "nonsense", "no text"],
)
async def test_what_was_known_stays_and_the_reason_is_told(trouble: Any) -> None:
    kubelet = Kubelet(KEPT)
    source = Source(kubelet)
    await source.look(kubelet)
    kubelet.says = trouble
    assert not await source.look(kubelet)
    assert (source.reserved, source.changes) == (Reserved(500, 100), 1)
    assert source.problem.startswith("kubelet's configuration, and so what it reserves of the node, is not known: ")


@pytest.mark.parametrize(
    ("says", "policy"),
    [
        (KEPT, "static"),
        ({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "many"}}, "static"),
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": "first", "topologyManagerScope": 3}, "static"),
        ({"cpuManagerPolicy": None}, "none"),
        ({}, "none"),
        ({"cpuManagerPolicy": 3}, ""),
        (FORBIDDEN, ""),
    ],
)
async def test_the_cpu_managers_policy_hangs_on_no_other_member(says: Any, policy: str) -> None:
    kubelet = Kubelet(says)
    source = Source(kubelet)
    await source.look(kubelet)
    assert source.cpu_manager_policy == policy


@pytest.mark.parametrize("says", [KEPT, FORBIDDEN, {"cpuManagerPolicy": 3}, OSError("reset")])
async def test_it_is_awaited_until_the_first_attempt_has_ended(says: Any) -> None:
    kubelet = Kubelet(says)
    source = Source(kubelet)
    assert source.is_awaited
    with contextlib.suppress(OSError):
        await source.look(kubelet)
    assert not source.is_awaited


async def test_it_runs_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeletconfig, "AGAIN_S", 0.0)
    kubelet = Kubelet(KEPT)
    source = Source(kubelet)
    source.start()
    while kubelet.calls < 3:  # noqa: ASYNC110 - the source has no event
        await asyncio.sleep(0)
    await source.close()
    calls = kubelet.calls
    await asyncio.sleep(0)
    assert (kubelet.calls, source.changes) == (calls, 1)


async def test_without_a_kubelet_nothing_is_known() -> None:
    source = Source(None)
    source.start()
    await source.close()
    assert (source.current, source.reserved, source.problem, source.is_awaited) == (None, NOTHING_RESERVED, "", False)
