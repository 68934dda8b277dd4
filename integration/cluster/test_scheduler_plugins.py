"""A user's plugin in koord-scheduler on a real API server: the example package, installed and named as the docs say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster import controlplane, objects
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.harness.processes import Process, wait_for

EXAMPLE = Path(__file__).parents[2] / "examples/scheduler-plugin"
RACK = "example.com/rack"
PODS = objects.pods_of("default")
SOON_S = 60.0
ROOM = {"cpu": "8", "memory": "8Gi", "pods": "110"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With two racks of two nodes, and koord-scheduler with the example's configuration."""
    directory = tmp_path_factory.mktemp("plugins")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", f"--target={directory / 'site'}"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(EXAMPLE)], check=True)
    with controlplane.private(directory / "plane") as made:
        nodes = [objects.node(f"n{index}", ROOM, {RACK: f"r{index // 2}"}) for index in range(4)]
        objects.create_nodes(made.api, nodes)
        (port,) = free_ports(1)
        argv = [
            *(sys.executable, "-m", "koord_scheduler", f"--kubeconfig={made.admin}"),
            *(f"--config={EXAMPLE / 'config.yaml'}", f"--metrics-addr=127.0.0.1:{port}"),
            "--config-namespace=kube-system",
        ]
        process = Process(argv, directory / "scheduler.log", {"PYTHONPATH": str(directory / "site")})
        try:
            yield made
        finally:
            process.stop(10.0)


def make_pod(api: Api, name: str) -> None:
    document = objects.pod(name, {"cpu": "1"})
    document["spec"]["schedulerName"] = "koord-scheduler"
    api.create(PODS, document)


def test_each_pod_has_its_label_before_it_has_its_node(plane: ControlPlane) -> None:
    with plane.api() as api:
        version = api.get(PODS)["metadata"]["resourceVersion"]
        names = [f"p{index}" for index in range(8)]
        for name in names:
            make_pod(api, name)
        wait_for(lambda: all(each["spec"].get("nodeName") for each in api.items(PODS)), SOON_S, "a node for each pod")
        racks = [each["metadata"]["labels"][RACK] for each in api.items(PODS)]
        assert sorted(racks) == ["r0"] * 4 + ["r1"] * 4
        answer = api.raw("GET", f"{PODS}?watch=1&resourceVersion={version}&timeoutSeconds=2")
        changes: list[Object] = [json.loads(line)["object"] for line in answer.splitlines()]
        for name in names:
            seen = [
                (RACK in each["metadata"].get("labels", {}), "nodeName" in each["spec"])
                for each in changes
                if each["metadata"]["name"] == name
            ]
            assert list(dict.fromkeys(seen)) == [(False, False), (True, False), (True, True)], (name, seen)


def test_a_rack_without_power_is_said(plane: ControlPlane) -> None:
    with plane.api() as api:
        make_pod(api, "more")

        def message() -> str:
            conditions = api.get(f"{PODS}/more").get("status", {}).get("conditions") or []
            return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")

        wait_for(message, SOON_S, "a condition")
        assert message().startswith("0/4 nodes are available: 4 node(s) in racks without enough power.")


def test_what_a_server_says_of_a_patch_with_another_uid(plane: ControlPlane) -> None:
    """It changes nothing, and the scheduler takes the answer for what it is: koord_scheduler.binding."""
    with plane.api() as api:
        with pytest.raises(ApiError) as error:
            api.merge(f"{PODS}/p0", {"metadata": {"uid": "another", "labels": {"x": "y"}}})
        assert error.value.status == 422, error.value
        assert "x" not in api.get(f"{PODS}/p0")["metadata"]["labels"]
