"""Jobs of Spark, Flink, Kubeflow and MPI on a real API server with half of what all ask for: each runs to its end.

The test is kubelet and the jobs' operators. ``JOBS``: of each kind.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from integration.cluster import gangjobs, objects, schedulerstage
from integration.cluster.api import ApiError, Object
from integration.cluster.gangjobs import Job
from integration.cluster.schedulerstage import PODS, SOON_S, Stage, overcommitted
from integration.harness.processes import wait_for

JOBS = int(os.environ.get("JOBS", "2"))
NODES = [f"n{index}" for index in range(4 * JOBS)]
NODE = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SCHEDULER = "gangs"
CRD = Path(__file__).parents[2] / "manifests" / "crds" / "scheduling.sigs.k8s.io_podgroups.yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"
TICK_S, PARTIAL_S, ALL_S = 0.3, 5.0, 300.0
"""``PARTIAL_S``: for so long the bindings of a gang may be under way."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with schedulerstage.stage(tmp_path_factory.mktemp("gangs") / "plane") as made:
        made.api.create(DEFINITIONS, yaml.safe_load(CRD.read_text()))
        wait_for(lambda: _is_served(made), SOON_S, "PodGroups to be served")
        yield made


def _is_served(stage: Stage) -> bool:
    """A kind that was just made is refused at first."""
    try:
        return stage.api.exists(POD_GROUPS)
    except ApiError:
        return False


class Cluster:
    """Runs what is placed and ends what has done its work."""

    def __init__(self, stage: Stage, jobs: list[Job]) -> None:
        self._stage, self._jobs, self._api = stage, jobs, stage.api
        self.ended: list[str] = []
        self.phases: set[str] = set()
        self._unmade: dict[str, list[Object]] = {}
        self._partial_since: dict[str, float] = {}

    def tick(self) -> None:
        pods = {each["metadata"]["name"]: each for each in self._api.items(PODS)}
        holding = [each for each in pods.values() if each["status"].get("phase") != "Succeeded"]
        assert overcommitted(self._api.items(objects.NODES), holding) == []
        placed = {name for name, pod in pods.items() if pod["spec"].get("nodeName")}
        self.phases |= {each.get("status", {}).get("phase", "") for each in self._api.items(POD_GROUPS)}
        for job in self._jobs:
            if job.name not in self.ended:
                self._check(job, placed)
                self._run(job, pods, placed)

    def _check(self, job: Job, placed: set[str]) -> None:
        prefix, least = job.gang()
        count = sum(name.startswith(prefix) for name in placed)
        if count in (0, *range(least, 10)):
            self._partial_since.pop(job.name, None)
            return
        since_s = self._partial_since.setdefault(job.name, time.monotonic())
        assert time.monotonic() - since_s < PARTIAL_S, f"{job.name} holds {count} of {least} nodes that it needs"

    def _run(self, job: Job, pods: dict[str, Object], placed: set[str]) -> None:
        for name in sorted(job.made & placed):
            phase = pods[name]["status"].get("phase")
            if phase == "Pending":
                objects.run_pods(self._stage.plane.api, "default", [name])
            elif phase == "Running":
                job.ran.add(name)
                if job.ends_alone(name):
                    self._api.merge(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})
        if job.is_done():
            for name in sorted(job.made & pods.keys()):
                self._api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
            if job.pod_group() is not None:
                self._api.delete(f"{POD_GROUPS}/{job.name}")
            self.ended.append(job.name)
            return
        waiting = self._unmade.setdefault(job.name, [])
        waiting.extend(job.next_pods())
        if waiting:  # operators make one after the other, and so do those beside them
            objects.create_pods(self._stage.plane.api, "default", [waiting.pop(0)])


def test_jobs_that_ask_for_twice_what_there_is_run_to_their_end(stage: Stage) -> None:
    jobs = [kind(f"{name}-{index}", SCHEDULER) for index in range(2 * JOBS) for name, kind in gangjobs.KINDS.items()]
    with contextlib.ExitStack() as stack:
        stage.add_nodes(*NODES, room=NODE)
        stack.callback(stage.clear)
        stack.enter_context(stage.replica("a", SCHEDULER))
        for job in jobs:
            group = job.pod_group()
            if group is not None:
                kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
                stage.api.create(POD_GROUPS, kind | group)
        cluster, began_s = Cluster(stage, jobs), time.monotonic()
        while len(cluster.ended) < len(jobs):
            left = sorted({each.name for each in jobs} - set(cluster.ended))
            assert time.monotonic() - began_s < ALL_S, f"still there: {left}"
            cluster.tick()
            time.sleep(TICK_S)
    took_s = time.monotonic() - began_s
    print(f"{len(jobs)} jobs on {len(NODES)} nodes: {took_s:.0f} s, phases of PodGroups: {sorted(cluster.phases)}")
    assert "Running" in cluster.phases
