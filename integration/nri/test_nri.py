"""NRI on a real containerd 2.x: the kernel's files hold what the proxy would have brought."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.demo import pods
from integration.harness import cgroups, proxy
from integration.harness.cgroups import Values
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import container_resources
from integration.harness.processes import wait_for
from integration.nri.attached import Attached, attached, proxied
from integration.nri.classes import MAKERS, NO_LIMIT, RESIZED, held, start, wanted
from koord.host.undo import UndoRecord
from koord.pb.cri import api_pb2 as pb


@pytest.fixture
def runtime(containerd2: Containerd) -> Containerd:
    return containerd2


@pytest.fixture(scope="module")
def rules_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    file.write_text(f"{proxy.RULES}  limitsInCRI: true\n")
    return file


@pytest.fixture
def plugin(runtime: Containerd, rules_file: Path) -> Iterator[Attached]:
    with attached(runtime.layout.nri_socket, rules_file) as found:
        found.wait(1)
        yield found


@pytest.fixture
def root() -> Iterator[str]:
    with cgroups.root("/koordtest-nri") as path:
        yield f"{path}/kubepods"


@pytest.fixture
def cri(runtime: Containerd, root: str) -> Iterator[Cri]:
    """A client directly on containerd; its pods are gone before their cgroups are."""
    with Cri(runtime.socket) as client:
        yield client
        client.remove_all()


def story(client: Cri, qos: str, root: str) -> dict[str, Values]:
    """A pod is created, pinned again by kubelet's CPU manager, and resized in place."""
    pod = MAKERS[qos](root)
    cgroup = start(client, pod)
    container_id = cgroup.rpartition("/")[2]
    found = {"created": cgroups.read(cgroup)}
    client.update_container(container_id, pb.LinuxContainerResources(cpuset_cpus="0"))
    found["re-pinned"] = cgroups.read(cgroup)
    resized = dataclasses.replace(pod, containers=(RESIZED[qos],))
    cgroups.make_pod(resized)
    client.update_container(container_id, container_resources(resized, RESIZED[qos]))
    found["resized"] = cgroups.read(cgroup)
    return found


@pytest.mark.parametrize("qos", MAKERS)
def test_the_kernel_holds_what_the_proxy_brings(
    runtime: Containerd, rules_file: Path, root: str, tmp_path: Path, qos: str
) -> None:
    """The same containerd, once behind the proxy, once directly with the plugin."""
    with proxied(runtime.socket, tmp_path, rules_file) as socket, Cri(socket) as client:
        by_proxy = story(client, qos, root)
        client.remove_all()
    with attached(runtime.layout.nri_socket, rules_file) as plugin, Cri(runtime.socket) as client:
        plugin.wait(1)
        by_nri = story(client, qos, root)
        client.remove_all()
    assert by_nri == by_proxy
    assert {step: held(values) for step, values in by_nri.items()} == {step: wanted(qos, step) for step in by_nri}


@pytest.mark.parametrize("qos", MAKERS)
def test_limits_that_no_call_carries_are_there_before_the_program_starts(
    runtime: Containerd, cri: Cri, root: str, tmp_path: Path, qos: str
) -> None:
    """As by default, when kubelet would count what the runtime is told as the container's own."""
    rules_file = tmp_path / "rules.yaml"
    rules_file.write_text(proxy.RULES)
    undo = UndoRecord(tmp_path / "undo", "boot")
    with contextlib.closing(undo), attached(runtime.layout.nri_socket, rules_file, undo) as plugin:
        plugin.wait(1)
        cgroup = start(cri, MAKERS[qos](root))
        assert held(cgroups.read(cgroup)) == wanted(qos)
        told = cri.container_status(cgroup.rpartition("/")[2]).status.resources.linux
        requested = container_resources(MAKERS[qos](root), MAKERS[qos](root).containers[0])
        assert (told.cpu_quota, told.memory_limit_in_bytes) == (requested.cpu_quota, requested.memory_limit_in_bytes)


@pytest.mark.parametrize("qos", MAKERS)
def test_containers_that_ran_before_are_updated(
    runtime: Containerd, rules_file: Path, cri: Cri, root: str, qos: str
) -> None:
    cgroup = start(cri, MAKERS[qos](root))
    assert held(cgroups.read(cgroup)) != wanted(qos)
    with attached(runtime.layout.nri_socket, rules_file):
        wait_for(lambda: held(cgroups.read(cgroup)) == wanted(qos), 10, f"{cgroup} to hold {wanted(qos)}")


def test_many_containers_are_synchronized_in_one_long_answer(
    runtime: Containerd, rules_file: Path, cri: Cri, root: str
) -> None:
    """Longer than the 4096 bytes that containerd's reader takes at once."""
    pod = pods.latency_sensitive_reserved(root)
    cgroups.make_pod(pod)
    sandbox = cri.run_pod(pod)
    made = [dataclasses.replace(pod.containers[0], name=f"c{number}") for number in range(70)]
    ids = [cri.create_container(sandbox, pod, container) for container in made]
    with attached(runtime.layout.nri_socket, rules_file) as plugin:
        plugin.wait(1)
        wait_for(lambda: all(_cpus(cri, each) == "0" for each in ids), 20, "70 containers to be updated")
        assert plugin.heard == [True]


def _cpus(cri: Cri, container_id: str) -> str:
    return cri.container_status(container_id).status.resources.linux.cpuset_cpus


def test_pods_are_announced_before_their_containers(plugin: Attached, cri: Cri, root: str) -> None:
    cri.run_pod(pods.latency_sensitive_reserved(root))
    assert [(pod.request.name, pod.bound_cpus) for pod in plugin.announced] == [("nginx-lsr", "0")]


def test_bad_annotations_stop_no_pod(plugin: Attached, cri: Cri, root: str) -> None:
    pod = pods.best_effort(root)
    bad: dict[str, Any] = {pods.EXTENDED_RESOURCES: "{", pods.RESOURCE_STATUS: '{"cpuset": "x"}'}
    values = cgroups.read(start(cri, dataclasses.replace(pod, annotations=bad)))
    assert held(values) == (cgroups.all_cpus(), -1, 2, NO_LIMIT)
    assert plugin.heard == [True]


def test_while_another_front_end_acts_nothing_is_edited(plugin: Attached, cri: Cri, root: str) -> None:
    plugin.acting = False
    pod = pods.best_effort(root)
    assert held(cgroups.read(start(cri, pod))) == (cgroups.all_cpus(), -1, 2, NO_LIMIT)
