"""koord-scheduler on a real API server: as kube-scheduler decides, one replica at a time, and through its failures."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.cluster import comparedscheduler, controlplane, legality, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.harness.processes import Process, wait_for

NAME = "koord-scheduler"
FIRST = int(os.environ.get("FIRST", "0"))
CLUSTERS = int(os.environ.get("CLUSTERS", "50"))
SOON_S = 60.0
PODS = 150
ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SMALL = {"cpu": "100m", "memory": "32Mi"}


@contextmanager
def replica(plane: ControlPlane, host: str, log: Path) -> Iterator[Process]:
    (port,) = free_ports(1)
    argv = [
        *(sys.executable, "-m", "koord_scheduler", f"--kubeconfig={plane.admin}"),
        *(f"--metrics-addr=127.0.0.1:{port}", "--config-namespace=kube-system"),
    ]
    process = Process(argv, log, {"HOSTNAME": host})
    try:
        yield process
    finally:
        process.stop(10.0)


def waiting(api: Api, names: list[str], **spec: object) -> None:
    """Makes pods that koord-scheduler is to place."""
    for name in names:
        document = objects.pod(name, SMALL)
        document["spec"] |= {"schedulerName": NAME, **spec}
        api.create(objects.pods_of("default"), document)


def placed(api: Api, prefix: str) -> dict[str, str]:
    """The nodes of the pods whose names begin so, as far as they have one."""
    pods = api.items(objects.pods_of("default"))
    found = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}
    return {name: node for name, node in found.items() if node and name.startswith(prefix)}


def leader(api: Api) -> str:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"
    return str(api.get(lease)["spec"].get("holderIdentity") or "").partition("_")[0] if api.exists(lease) else ""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With six nodes, one of them tainted."""
    with controlplane.private(tmp_path_factory.mktemp("scheduler") / "plane") as made:
        objects.create_nodes(made.api, [objects.node(f"n{index}", ROOM) for index in range(6)])
        with made.api() as api:
            api.merge("/api/v1/nodes/n5", {"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}})
        yield made


def test_what_it_finds_feasible_and_how_it_scores_is_what_kube_scheduler_does(tmp_path: Path) -> None:
    """On ``CLUSTERS`` generated clusters from the seed ``FIRST`` on: each pod, each node, each plugin, each victim."""
    options = controlplane.Options(api_server_flags=("--disable-admission-plugins=StorageObjectInUseProtection",))
    with (
        controlplane.private(tmp_path / "plane", options) as plane,
        comparedscheduler.extender() as extender,
        comparedscheduler.kube_scheduler(plane, tmp_path, extender) as log,
        replica(plane, "ours", tmp_path / "ours.log"),
        plane.api() as api,
    ):
        comparison = legality.Comparison(api, extender, log)
        comparison.prepare()
        differences = [each for seed in range(FIRST, FIRST + CLUSTERS) for each in comparison.cluster(seed)]
        counts = comparison.counts
        print(f"{CLUSTERS} clusters, {counts}: {len(differences)} differ")
        assert differences == []
        assert counts.scores > 50 * CLUSTERS
        assert counts.claims >= CLUSTERS // 5
        assert counts.victims >= CLUSTERS // 5


def test_another_replica_takes_over(plane: ControlPlane, tmp_path: Path) -> None:
    with (
        plane.api() as api,
        replica(plane, "a", tmp_path / "a.log") as first,
        replica(plane, "b", tmp_path / "b.log") as second,
    ):
        wait_for(lambda: leader(api), SOON_S, "a leader")
        by_host = {"a": first, "b": second}
        waiting(api, ["before"])
        wait_for(lambda: placed(api, "before"), SOON_S, "a pod to be placed")
        before = leader(api)
        ended_s = time.monotonic()
        by_host[before].signal(signal.SIGTERM)
        wait_for(lambda: not by_host[before].running, SOON_S, "the leader to end")
        waiting(api, ["after"])
        wait_for(lambda: placed(api, "after"), SOON_S, "a pod to be placed by the other replica")
        print(f"the first pod was placed {time.monotonic() - ended_s:.1f} s after SIGTERM of the leader")
        assert leader(api) != before


def test_an_api_server_that_dies_among_bindings(plane: ControlPlane, tmp_path: Path) -> None:
    """Every pod is placed once the server is back, none on the tainted node, and no node beyond its room."""
    names = [f"dies-{index}" for index in range(PODS)]
    with plane.api() as api, replica(plane, "a", tmp_path / "a.log"):
        waiting(api, names[: PODS // 2])
        wait_for(lambda: placed(api, "dies-"), SOON_S, "the first pods to be placed")
        waiting(api, names[PODS // 2 :])
        plane.api_server.kill()
        plane.api_server.start()
        _wait_for_all(lambda: placed(api, "dies-"), names)
        by_node = Counter(placed(api, "").values())
        assert "n5" not in by_node
        assert max(by_node.values()) <= 40, by_node  # of a tenth of a CPU each


def _wait_for_all(found: Callable[[], dict[str, str]], names: list[str]) -> None:
    wait_for(lambda: found().keys() >= set(names), 2 * SOON_S, f"{len(names)} pods to be placed")
