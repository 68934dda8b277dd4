"""koord-scheduler decides as kube-scheduler does, on the same real API server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.cluster import comparedscheduler, controlplane, legality, schedulerstage
from integration.cluster.comparedscheduler import Extender
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.cluster.schedulerstage import PODS, SOON_S
from integration.harness.processes import Process, wait_for

FIRST = int(os.environ.get("FIRST", "0"))
CLUSTERS = int(os.environ.get("CLUSTERS", "50"))


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


def test_what_it_finds_feasible_and_how_it_scores_is_what_kube_scheduler_does(tmp_path: Path) -> None:
    """On ``CLUSTERS`` generated clusters from the seed ``FIRST`` on: each pod, each node, each plugin, each victim."""
    options = controlplane.Options(api_server_flags=("--disable-admission-plugins=StorageObjectInUseProtection",))
    with (
        controlplane.private(tmp_path / "plane", options) as plane,
        comparedscheduler.extender(Extender) as extender,
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


def test_a_pod_that_asks_for_what_there_is_not_waits_and_is_told_so(tmp_path: Path) -> None:
    """Others are placed; the API server knows of resource claims, and the claim itself does not matter."""
    with schedulerstage.stage(tmp_path / "plane") as stage, stage.set_up(), stage.replica("a", "alone"):
        stage.add_pods("alone", ["claims"], resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
        stage.add_pods("alone", ["plain"])
        stage.wait_placed(["plain"])

        def condition() -> dict[str, str] | None:
            found = stage.api.get(f"{PODS}/claims")["status"].get("conditions", [])
            return next((each for each in found if each["type"] == "PodScheduled"), None)

        told = wait_for(condition, SOON_S, "a condition")
        said = "the pod has spec.resourceClaims, and this scheduler has no DynamicResources."
        assert (told["status"], told["reason"]) == ("False", "Unschedulable")
        assert told["message"].startswith(f"0/{len(schedulerstage.NODES)} nodes are available: {said}")
        assert stage.placed(["claims"]) == {}
