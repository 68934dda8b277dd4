"""A real control plane: it refuses what a cluster refuses, keeps its data through faults, and its controllers and
scheduler do their work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from integration.cluster import objects
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ADMIN, ADMINS, ControlPlane
from integration.cluster.part import Part
from integration.harness.processes import HarnessError, wait_for

NAMESPACES = "/api/v1/namespaces"
CONFIG_MAPS = f"{NAMESPACES}/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
FAKE_NODES = 500


def test_it_starts_with_what_a_cluster_has(
    control_plane: ControlPlane, api: Api, start_figure: Callable[[ControlPlane], None]
) -> None:
    start_figure(control_plane)
    names = {item["metadata"]["name"] for item in api.items(NAMESPACES)}
    assert {"default", "kube-system", "kube-node-lease"} <= names
    assert "v1.34" in control_plane.kubectl("version")


# Who may do what


@contextmanager
def refusal(status: int, message: str) -> Iterator[None]:
    with pytest.raises(ApiError) as refused:
        yield
    assert refused.value.status == status and message in refused.value.message, refused.value


def test_nobody_may_read_nodes(control_plane: ControlPlane) -> None:
    with control_plane.anonymous() as api, refusal(403, 'User "system:anonymous" cannot list resource "nodes"'):
        api.items(objects.NODES)


def test_a_user_has_the_rights_that_rbac_gives(control_plane: ControlPlane, api: Api) -> None:
    with control_plane.api("bob", ["dev"]) as bob:
        with refusal(403, 'User "bob" cannot list resource "nodes"'):
            bob.items(objects.NODES)
        api.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "dev-reads-nodes"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}],
            },
        )
        wait_for(lambda: _allowed(lambda: bob.items(objects.NODES)), 5, "the role binding to count")


def test_an_expired_certificate_is_nobodys(control_plane: ControlPlane) -> None:
    expired = control_plane.authority.issue_client("late", ("system:masters",), timedelta(seconds=-1))
    authority = control_plane.authority.certificate.read_text()
    with Api(control_plane.port, authority, expired) as api, refusal(401, "Unauthorized"):
        api.items(objects.NODES)


def test_a_service_accounts_token_is_known(control_plane: ControlPlane, api: Api) -> None:
    accounts = f"{NAMESPACES}/kube-system/serviceaccounts"
    api.create(accounts, {"metadata": {"name": "agent"}})
    answer = api.create(f"{accounts}/agent/token", {"spec": {"audiences": [], "expirationSeconds": 600}})
    with control_plane.anonymous(answer["status"]["token"]) as agent:
        review = agent.create(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
    assert review["status"]["userInfo"]["username"] == "system:serviceaccount:kube-system:agent"


@pytest.mark.parametrize("path", ["", "/status"], ids=["node", "status"])
def test_a_nodes_credential_writes_that_node_and_no_other(control_plane: ControlPlane, api: Api, path: str) -> None:
    names = [f"{name}{path.replace('/', '-')}" for name in ("mine", "others")]
    objects.create_nodes(control_plane.api, [objects.node(name) for name in names])
    mine, others = (f"{objects.NODES}/{name}{path}" for name in names)
    patch = {"metadata": {"annotations": {"written": "yes"}}}
    with control_plane.node_api(names[0]) as kubelet:
        assert kubelet.merge(mine, patch)["metadata"]["annotations"]["written"] == "yes"
        with refusal(403, f'node "{names[0]}" is not allowed to modify node "{names[1]}"'):
            kubelet.merge(others, patch)
    assert "written" not in api.get(f"{objects.NODES}/{names[1]}")["metadata"].get("annotations", {})


# In bulk


def test_fake_nodes_and_pods_in_bulk(control_plane: ControlPlane, api: Api, figure: Callable[[str], None]) -> None:
    began = time.monotonic()
    objects.create_nodes(control_plane.api, [objects.node(f"fake-{number:03}") for number in range(FAKE_NODES)])
    nodes_s = time.monotonic() - began
    requests = {"cpu": "1", "memory": "1Gi"}
    pods = [objects.pod(f"pod-{i:03}", requests, nodeName=f"fake-{i:03}") for i in range(FAKE_NODES)]
    began = time.monotonic()
    objects.create_pods(control_plane.api, "default", pods)
    objects.run_pods(control_plane.api, "default", [each["metadata"]["name"] for each in pods])
    pods_s = time.monotonic() - began
    figure(f"{FAKE_NODES} fake nodes in {nodes_s:.1f} s, as many bound and running pods in {pods_s:.1f} s")

    nodes = [item for item in api.items(objects.NODES) if item["metadata"]["name"].startswith("fake-")]
    assert len(nodes) == FAKE_NODES
    assert all(objects.ready(item) and not item["spec"].get("taints") for item in nodes)
    assert {item["status"]["allocatable"]["cpu"] for item in nodes} == {"16"}
    running = api.items(objects.pods_of("default"), fieldSelector="status.phase=Running")
    assert len(running) == FAKE_NODES and all(map(objects.ready, running))
    for collection in (objects.pods_of("default"), objects.NODES):
        objects.remove_fakes(api, collection)
        wait_for(lambda path=collection: not api.items(path), 10, f"{collection} to be empty")  # type: ignore[misc]


def test_the_first_refusal_of_a_bulk_is_the_callers(control_plane: ControlPlane) -> None:
    with refusal(409, "already exists"):
        objects.create_pods(control_plane.api, "kube-public", [objects.pod("twice", {})] * 2)


# Faults


@pytest.mark.parametrize("fault", [Part.stop, Part.kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("server", ["kube-apiserver", "etcd"])
def test_data_outlives_a_server(
    control_plane: ControlPlane, api: Api, server: str, fault: Callable[[Part], None]
) -> None:
    name = f"kept-{server}-{fault.__name__}"
    kept = api.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"key": "value"}})
    part = control_plane.part(server)
    fault(part)
    assert not part.running
    with impatient(control_plane) as other, pytest.raises((OSError, ApiError)):
        other.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-meanwhile"}})
    part.start()
    with control_plane.api() as other:
        wait_for(lambda: _allowed(lambda: other.get(CONFIG_MAPS)), 30, f"the API to serve after {server} was away")
    assert api.get(f"{CONFIG_MAPS}/{name}") == kept
    api.create(CONFIG_MAPS, {"metadata": {"name": f"{name}-afterwards"}})


def test_a_paused_server_answers_once_it_goes_on(control_plane: ControlPlane, api: Api) -> None:
    control_plane.api_server.pause()
    try:
        assert control_plane.api_server.running
        with impatient(control_plane) as other:
            assert not other.healthy()
    finally:
        control_plane.api_server.resume()
    wait_for(api.healthy, 10, "the API server to be ready again")


def test_a_server_that_cannot_start_says_why(control_plane: ControlPlane, tmp_path: Path) -> None:
    part = Part([*control_plane.api_server.argv, "--no-such-flag"], tmp_path / "log", lambda: False)
    with pytest.raises(HarnessError, match="no-such-flag"):
        part.start()


def test_a_part_that_runs_is_not_started_twice(control_plane: ControlPlane) -> None:
    with pytest.raises(HarnessError, match="etcd runs already"):
        control_plane.etcd.start()


# Controllers and scheduler


def test_a_jobs_pod_is_made_and_goes_with_it(
    whole_control_plane: ControlPlane, whole_api: Api, start_figure: Callable[[ControlPlane], None]
) -> None:
    start_figure(whole_control_plane)
    template = objects.pod("unused", {"cpu": "10m"}, restartPolicy="Never", schedulerName="nobody")
    job = {"metadata": {"name": "once"}, "spec": {"template": {"metadata": {}, "spec": template["spec"]}}}
    whole_api.create(JOBS, job)
    (made,) = wait_for(lambda: _pods(whole_api, "job-name=once"), 20, "the Job's pod to be made")
    assert made["metadata"]["ownerReferences"][0]["name"] == "once"
    whole_api.delete(f"{JOBS}/once", propagationPolicy="Background")
    wait_for(lambda: not _pods(whole_api, "job-name=once"), 20, "the Job's pod to be collected")


def test_the_scheduler_binds_where_the_resource_is(whole_control_plane: ControlPlane, whole_api: Api) -> None:
    batch = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    nodes = [
        objects.node("scarce", {**objects.NODE_RESOURCES, **batch}),
        objects.node("ample", {**objects.NODE_RESOURCES, **batch, "kubernetes.io/batch-cpu": "8000"}),
    ]
    objects.create_nodes(whole_control_plane.api, nodes)
    wanted = {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}
    selector = {"nodeSelector": {"koordtest/fake": "true"}}
    whole_api.create(objects.pods_of("default"), objects.pod("batch", wanted, wanted, **selector))
    path = f"{objects.pods_of('default')}/batch"
    bound = wait_for(lambda: whole_api.get(path)["spec"].get("nodeName"), 20, "the pod to be bound")
    assert bound == "ample"
    for collection in (objects.pods_of("default"), objects.NODES):
        objects.remove_fakes(whole_api, collection)


def impatient(plane: ControlPlane) -> Api:
    """The administrator, who waits for a second."""
    authority = plane.authority.certificate.read_text()
    return Api(plane.port, authority, plane.identity(ADMIN, ADMINS), timeout_s=1)


def _pods(api: Api, selector: str) -> list[Object]:
    return api.items(objects.pods_of("default"), labelSelector=selector)


def _allowed(call: Callable[[], object]) -> bool:
    """Whether a call succeeds now; a server that is just starting may refuse it."""
    try:
        call()
    except (ApiError, OSError):
        return False
    return True
