"""Nodes and pods without a kubelet, made through the API by the thousand, and what tells a real Node's state.

Invariant: a fake Node looks to every client as one that is Ready and has room, as long as no node controller runs (it
would find no lease). Admission taints a new Node as not ready; that taint is cleared here, as a node controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from integration.cluster.api import Api, Object
from tests.support import kubernetes
from tests.support.kubernetes import container

NODES = "/api/v1/nodes"
CONNECTIONS = 8
FAKE = {"koordtest/fake": "true"}
Resources = Mapping[str, str]
Item = TypeVar("Item")

NODE_RESOURCES: Resources = {"cpu": "16", "memory": "64Gi", "pods": "110"}


def pods_of(namespace: str) -> str:
    """The path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def node(
    name: str,
    resources: Resources = NODE_RESOURCES,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Node that is Ready and offers ``resources``."""
    names = {"kubernetes.io/hostname": name, **FAKE, **(labels or {})}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake"}
    return kubernetes.node(name, resources, labels=names, annotations=annotations or {}, conditions=[ready])


def pod(
    name: str,
    requests: Resources,
    limits: Resources | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container, ``main``; ``spec``: further fields of PodSpec, such as nodeName (then it is bound)."""
    main = container("main", requests, limits, image="localhost/busybox:1", imagePullPolicy="Never")
    return kubernetes.pod(
        main, name=name, namespace="", labels={**FAKE, **(labels or {})}, annotations=annotations or {},
        automountServiceAccountToken=False, terminationGracePeriodSeconds=0, **spec,
    )  # fmt: skip


def create_nodes(connect: Callable[[], Api], nodes: Sequence[Object]) -> None:
    """Create all ``nodes`` and clear their taints; the first refusal raises ApiError."""

    def create(api: Api, manifest: Object) -> None:
        name = api.create(NODES, manifest)["metadata"]["name"]
        clear_taints(api, name)

    for_each(connect, nodes, create)


def create_pods(connect: Callable[[], Api], namespace: str, pods: Sequence[Object]) -> None:
    for_each(connect, pods, lambda api, manifest: api.create(pods_of(namespace), manifest))


def run_pods(connect: Callable[[], Api], namespace: str, names: Iterable[str]) -> None:
    """Say of pods without a kubelet that they run and are Ready."""
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady")]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    for_each(connect, list(names), lambda api, name: api.merge(f"{pods_of(namespace)}/{name}/status", status))


def clear_taints(api: Api, name: str) -> None:
    api.merge(f"{NODES}/{name}", {"spec": {"taints": None}})


def remove_fakes(api: Api, collection: str) -> None:
    """Remove all fake objects of ``collection`` with one call."""
    api.delete(collection, labelSelector=",".join(f"{key}={value}" for key, value in FAKE.items()))


def ready(manifest: Object) -> bool:
    """Whether a Node or a pod has the condition Ready."""
    return condition(manifest, "Ready") == "True"


def condition(manifest: Object, kind: str) -> str:
    """The status of one condition of an object; empty if it has none of that kind."""
    conditions = manifest.get("status", {}).get("conditions") or []
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def for_each(connect: Callable[[], Api], items: Sequence[Item], action: Callable[[Api, Item], object]) -> None:
    """Do ``action`` with every item, over several connections; the first error raises once all have ended."""

    def share(first: int) -> None:
        with connect() as api:
            for item in items[first::CONNECTIONS]:
                action(api, item)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        shares = [pool.submit(share, first) for first in range(CONNECTIONS)]
    for done in shares:
        done.result()
