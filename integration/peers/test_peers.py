"""LSR, LS and BE pods get the same values from all four pairs of a proxy and a hook server, and the right ones.

Run with -s for the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from integration.harness.hookserver import PRESENCE, Question, Reply
from integration.harness.simulated import UNLIMITED_BYTES
from integration.peers import combinations, pods
from integration.peers.combinations import GO, KOORD, PAIRS, QOSD, Pair, Run
from integration.peers.pods import MIB
from integration.peers.upstream import Protocol, is_pod_stage
from koord.pb.hooks import api_pb2 as hooks

Runs = Mapping[Pair, Run]
COLUMNS = ("cpuset_cpus", "cfs_quota_us", "cpu_shares", "memory_limit_bytes", "oom_score_adj")
NO_LIMIT = UNLIMITED_BYTES
EXPECTED = {
    ("LSR", "created"): ("2", -1, 1024, 128 * MIB, -997),
    ("LSR", "re-pinned"): ("2", -1, 1024, 128 * MIB, -997),
    ("LSR", "resized"): ("2", -1, 2048, 256 * MIB, -997),
    ("LS", "created"): ("1-3", 100_000, 512, 128 * MIB, 993),
    ("LS", "re-pinned"): ("1-3", 100_000, 512, 128 * MIB, 993),
    ("LS", "resized"): ("1-3", 200_000, 1024, 256 * MIB, 993),
    ("BE", "created"): ("0-7", 100_000, 512, 64 * MIB, 1000),
    ("BE", "re-pinned"): ("0-7", 100_000, 512, 64 * MIB, 1000),
    ("BE", "resized"): ("0-7", 100_000, 512, 64 * MIB, 1000),
    ("BE, no limits", "created"): ("0-7", -1, 512, NO_LIMIT, 1000),
    ("BE, no limits", "re-pinned"): ("0-7", -1, 512, NO_LIMIT, 1000),
    ("BE, no limits", "resized"): ("0-7", -1, 512, NO_LIMIT, 1000),
}


@pytest.fixture(scope="module")
def runs() -> Runs:
    found = {pair: combinations.run(pair) for pair in PAIRS}
    print(f"\n{table(found)}")
    return found


def table(runs: Runs) -> str:
    """One line per pod and step: the expected values, and what each pair made of them."""
    lines = [("POD", "STEP", *COLUMNS, *map(str, PAIRS))]
    for (qos, step), values in EXPECTED.items():
        outcomes = []
        for pair in PAIRS:
            got = runs[pair].values[qos, step]
            wrong = [f"{name}={got[name]}" for name, value in zip(COLUMNS, values, strict=True) if got[name] != value]
            outcomes.append(" ".join(wrong) or "equal")
        lines.append((qos, step, *("no limit" if value == NO_LIMIT else str(value) for value in values), *outcomes))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


@pytest.mark.parametrize(("qos", "step"), EXPECTED)
def test_every_pair_gives_the_same_and_the_expected_values(runs: Runs, qos: str, step: str) -> None:
    memory_bytes = EXPECTED[qos, step][3]
    expected = dict(zip(COLUMNS, EXPECTED[qos, step], strict=True)) | {
        "cfs_period_us": 100_000,
        "cpuset_mems": "0",
        "memory_swap_limit_bytes": memory_bytes if memory_bytes != NO_LIMIT else 0,
        "hugepage_limits": {"2MB": 0, "1GB": 0},
        "unified": pods.UNIFIED,
    }
    assert {str(pair): run.values[qos, step] for pair, run in runs.items()} == dict.fromkeys(map(str, PAIRS), expected)


@pytest.mark.parametrize("qos", sorted({qos for qos, _ in EXPECTED}))
def test_environment_and_annotations_of_kubelet_arrive_through_every_pair(runs: Runs, qos: str) -> None:
    for pair, run in runs.items():
        config = run.created[qos].config
        assert {each.key: each.value for each in config.envs} == pods.ENVS, pair
        assert config.annotations["io.kubernetes.container.hash"], pair


def test_our_proxy_says_who_it_is_and_gets_only_what_qosd_decided(runs: Runs) -> None:
    decided = {"cpuset_cpus", "cpu_quota", "cpu_shares", "memory_limit_in_bytes"}
    assert runs[Pair(KOORD, QOSD)].calls
    for question, reply in runs[Pair(KOORD, QOSD)].calls:
        assert "koord-runtime-proxy" in dict(question.metadata), question.stage
        assert set(PRESENCE) <= set(reply.metadata), question.stage
        answer = _answer(question.stage, reply)
        assert {field.name for field, _ in answer.ListFields()} <= {"resources", "container_resources"}, question.stage
        resources = answer.resources if is_pod_stage(question.stage) else answer.container_resources
        assert {field.name for field, _ in resources.ListFields()} <= decided, question.stage


def test_the_other_proxy_gets_everything_back(runs: Runs) -> None:
    assert runs[Pair(GO, QOSD)].calls
    for question, reply in runs[Pair(GO, QOSD)].calls:
        assert not reply.metadata, question.stage
        asked, answer = _as_upstream(question, reply)
        if is_pod_stage(question.stage):
            kept = ("labels", "annotations", "cgroup_parent")
        else:
            kept = ("container_annotations", "pod_cgroup_parent", "container_envs")
            for name in ("cpu_period", "oom_score_adj", "cpuset_mems", "hugepage_limits", "unified"):
                echoed, sent = (getattr(each.container_resources, name) for each in (answer, asked))
                assert echoed == sent, (question.stage, name)
        assert [name for name in kept if getattr(answer, name) != getattr(asked, name)] == [], question.stage


def _answer(stage: str, reply: Reply) -> Any:
    kind = hooks.PodSandboxHookResponse if is_pod_stage(stage) else hooks.ContainerResourceHookResponse
    return kind.FromString(reply.message)


def _as_upstream(question: Question, reply: Reply) -> tuple[Any, Any]:
    """Both messages as a peer of Koordinator's reads them."""
    protocol, kind = Protocol(), "PodSandboxHook" if is_pod_stage(question.stage) else "ContainerResourceHook"
    return (protocol[f"{kind}Request"].FromString(question.message),
            protocol[f"{kind}Response"].FromString(reply.message))  # fmt: skip
