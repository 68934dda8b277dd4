"""The doubles do what is known of the originals, so that what is compared with them means something."""

from __future__ import annotations

from typing import Any

import pytest

from integration.peers import gomerge
from integration.peers.upstream import MESSAGES, Protocol
from koord.pb.hooks import api_pb2 as hooks

KNOWN = {
    "cpu_period": 100_000, "cpu_quota": 50_000, "cpu_shares": 512, "memory_limit_in_bytes": 1 << 20,
    "oom_score_adj": 993, "cpuset_cpus": "0-3", "cpuset_mems": "0", "unified": {"memory.high": "1"},
}  # fmt: skip
SPARSE: dict[str, Any] = {"oom_score_adj": 0, "cpuset_cpus": "", "cpuset_mems": ""}

answers = [
    pytest.param({}, SPARSE, id="an empty answer resets the OOM score and clears the CPU sets"),
    pytest.param(KNOWN, {}, id="an echo changes nothing"),
    pytest.param(KNOWN | {"cpu_quota": -1}, {"cpu_quota": -1}, id="a quota may be lifted"),
    pytest.param(KNOWN | {"memory_limit_in_bytes": -1}, {}, id="a memory limit may not"),
    pytest.param(KNOWN | {"oom_score_adj": 1001}, {}, id="an OOM score out of range is left out"),
    pytest.param(KNOWN | {"unified": {"memory.min": "0"}}, {"unified": {"memory.high": "1", "memory.min": "0"}},
                 id="unified is merged by key"),
    pytest.param(KNOWN | {"hugepage_limits": [{"page_size": "2MB", "limit": 1}]}, {}, id="hugepages are not taken"),
]  # fmt: skip
updates = [
    pytest.param({}, {}, id="nothing"),
    pytest.param({"cpuset_cpus": "1"}, {"cpuset_cpus": "1"}, id="CPUs only"),
    pytest.param({"cpu_shares": 1024, "oom_score_adj": -5}, {"cpu_shares": 1024}, id="the OOM score never counts"),
    pytest.param({"hugepage_limits": [{"page_size": "2MB", "limit": 1}]}, {}, id="hugepages are lost"),
]


@pytest.mark.parametrize(("answer", "changed"), answers)
def test_a_hooks_answer_over_what_the_go_like_proxy_knows(answer: dict[str, Any], changed: dict[str, Any]) -> None:
    resources = Protocol()["LinuxContainerResources"]
    known = resources(**KNOWN)
    gomerge.answer_over_known(known, resources(**answer))
    assert known == resources(**(KNOWN | changed))


@pytest.mark.parametrize(("update", "changed"), updates)
def test_an_update_of_kubelets_over_what_the_go_like_proxy_knows(
    update: dict[str, Any], changed: dict[str, Any]
) -> None:
    resources = Protocol()["LinuxContainerResources"]
    known = resources(**KNOWN)
    gomerge.update_over_known(known, resources(**update))
    assert known == resources(**(KNOWN | changed))


@pytest.mark.parametrize("name", MESSAGES)
def test_koords_protocol_has_every_field_of_the_peers(name: str) -> None:
    theirs, ours = (kind.DESCRIPTOR.fields for kind in (Protocol()[name], getattr(hooks, name)))
    assert {(field.number, field.name) for field in theirs} <= {(field.number, field.name) for field in ours}


def test_zero_is_absent_on_the_peers_wire() -> None:
    assert Protocol()["LinuxContainerResources"](cpu_quota=0, cpuset_cpus="").SerializeToString() == b""
