"""What each account may do in an installed cluster: its rights, as kubectl lists them, and what the policies leave."""

from __future__ import annotations

import base64
import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from integration import build
from integration.cluster import controlplane, objects, topologycrd
from integration.cluster.api import JSON, MERGE_PATCH, Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.helm import Helm
from integration.cluster.manager import NAMESPACE
from integration.harness.processes import HarnessError, wait_for
from koord.kube.clientkey import key_and_request
from koord.model.nodelink import SIGNER
from koord.model.nodestate import ANNOTATION
from tests.charts import rights
from tests.charts.rights import CLUSTER, Right
from tests.tls.pki import PLACEHOLDER

CHART = Path(__file__).parents[2] / "charts" / "koordinator"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:"
NODES = "system:nodes"
RBAC = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
FOLLOWED_S, SOON_S = 5.0, 30.0


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with controlplane.private(tmp_path_factory.mktemp("rights") / "plane") as made, made.api() as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        yield made


@pytest.fixture(scope="module")
def render(plane: ControlPlane) -> Callable[..., list[Object]]:
    """The chart's objects with some values."""
    helm = Helm(build.program("helm"), plane.admin, plane.directory / "helm")

    def rendered(*values: str) -> list[Object]:
        settings = itertools.chain.from_iterable(("--set", value) for value in values)
        text = helm("template", "koordinator", str(CHART), "--kube-version", build.kubernetes_version(), *settings)
        return [each for each in yaml.safe_load_all(text) if each]

    return rendered


# Rights


@pytest.mark.parametrize(
    ("values", "conditions"),
    [
        ((), {"DaemonSet", "kubelet", "NodeLink", "scheduler"}),
        (("koordlet.enabled=false", "units.enabled=true", "scheduler.enabled=false"), {"units", "NodeLink"}),
        (
            ("koordlet.listPods=true", "manager.nodeLink.port=0", "featureGates=ColocationProfileController=true"),
            {"DaemonSet", "listPods", "profiles", "scheduler"},
        ),
    ],
    ids=["the defaults", "units", "the rest"],
)
def test_kubectl_lists_what_the_page_says(
    plane: ControlPlane, render: Callable[..., list[Object]], values: tuple[str, ...], conditions: set[str]
) -> None:
    """The rights of every account, and of nodes. helm's hook (``uninstallation``) is rendered in each case."""
    manifests = yaml.safe_dump_all(each for each in render(*values) if each["kind"] in RBAC)
    plane.kubectl("apply", "-f", "-", stdin=manifests)
    try:
        said = [right for right in rights.of_table() if right.holds({*conditions, "uninstallation"})]
        expected = {right._replace(only_with=rights.ALWAYS) for right in said}
        found, end = listed(plane), time.monotonic() + FOLLOWED_S
        while found != expected and time.monotonic() < end:  # the API server follows roles after a moment
            found = listed(plane)
        assert sorted(found) == sorted(expected)
    finally:
        plane.kubectl("delete", "-f", "-", stdin=manifests)


def listed(plane: ControlPlane) -> set[Right]:
    """As kubectl lists them, without the rights of every account."""
    accounts = ("koord-manager", "koord-scheduler", "koordlet", "koordinator-uninstall")
    members = {each: [f"--as={ACCOUNT}{each}"] for each in accounts}
    members[NODES] = ["--as=somebody", f"--as-group={NODES}"]  # of a node's name the Node authorizer lists nothing
    everywhere, here = (can_i(plane, namespace, f"--as={ACCOUNT}nobody") for namespace in ("default", NAMESPACE))
    found = set[Right]()
    for account, who in members.items():
        of_all = can_i(plane, "default", *who) - everywhere
        found |= {Right(account, CLUSTER, *each) for each in of_all}
        found |= {Right(account, NAMESPACE, *each) for each in can_i(plane, NAMESPACE, *who) - here - of_all}
    return found


def can_i(plane: ControlPlane, namespace: str, *who: str) -> set[tuple[str, str, str]]:
    """Resource, name and verb."""
    text = plane.kubectl("auth", "can-i", "--list", "-n", namespace, *who)
    return {
        (resource, name, verb)
        for resource, names, verbs in re.findall(r"^(\S+)\s+\[.*?\]\s+\[(.*?)\]\s+\[(.*?)\]$", text, re.MULTILINE)
        for name in names.split(" ")
        for verb in verbs.split(" ")
    }


# What the policies leave of them

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EVENTS = "/api/v1/namespaces/default/events"
STATUS = f"{objects.NODES}/n1/status"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = f"{REGISTRATION}/mutatingwebhookconfigurations/koord-mutating-webhook-configuration"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations/koord-validating-webhook-configuration"
BATCH = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/mid-memory": "1Gi"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "blockOwnerDeletion": True}


class Write(NamedTuple):
    """One that is tried, and what the refusal says; "" = it is let in."""

    who: str
    method: str
    path: str
    body: Mapping[str, Any]
    refusal: str = ""
    content_type: str = MERGE_PATCH


def annotated(**metadata: Any) -> Object:
    return {"metadata": metadata}


def event(host: str, component: str = "koordlet", name: str = "new") -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "source": {"component": component, "host": host},
        "reason": "Test",
    }


def webhook(**changes: Any) -> Object:
    return {"webhooks": [{"name": "mpod-create.koordinator.sh", **changes}]}


def topology(**metadata: Any) -> Object:
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    return {**kind, "metadata": {"name": "n1", **metadata}, "topologyPolicies": ["None"], "zones": []}


def request(signer: str, names: int = 0) -> Object:
    """``names``: in how many more, of 60 bytes."""
    _, pem = key_and_request("system:node:n1", NODES)
    if names:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60)] * names)
        made = x509.CertificateSigningRequestBuilder().subject_name(subject)
        signed = made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        pem = signed.public_bytes(serialization.Encoding.PEM)
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": ["client auth"]}
    return {"metadata": {"name": "r"}, "spec": spec}


def binding(node: str) -> Object:
    return {"metadata": {"name": "p1"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}


MANAGER, UNINSTALLER, AGENT, KUBELET = "koord-manager", "koordinator-uninstall", "koordlet", "kubelet"
SCHEDULER = "koord-scheduler"
QUOTA = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas/a"
OF_QUOTA = "quota.scheduling.koordinator.sh/"
POD, VOLUME, CLAIM = (
    *("/api/v1/namespaces/default/pods/p1", "/api/v1/persistentvolumes/v1"),
    "/api/v1/namespaces/default/persistentvolumeclaims/c1",
)
CONDITION = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
SELECTED, BOUND_BY = {"volume.kubernetes.io/selected-node": "n1"}, {"pv.kubernetes.io/bound-by-controller": "yes"}
OUTSIDE = "koordlet's account by a client certificate"
RATIO = {"node.koordinator.sh/cpu-normalization-ratio": "1.00"}
STRATEGIC = "application/strategic-merge-patch+json"
WRITES = {
    "a Node's batch resources": Write(
        MANAGER, "PATCH", STATUS, {**annotated(annotations=RATIO), "status": {"capacity": BATCH, "allocatable": BATCH}}
    ),
    "and away again": Write(UNINSTALLER, "PATCH", STATUS, {"status": {"allocatable": dict.fromkeys(BATCH)}}),
    "what the webhook answers": Write(MANAGER, "PATCH", STATUS, {"status": {"allocatable": {"cpu": "1"}}}),
    "a Node's labels": Write(MANAGER, "PATCH", STATUS, annotated(labels={"a": "b"}), "changes annotations alone"),
    "and by the hook": Write(UNINSTALLER, "PATCH", STATUS, annotated(labels={"a": "b"}), "changes annotations alone"),
    "a Node's finalizers": Write(
        MANAGER, "PATCH", STATUS, annotated(finalizers=["a.b/c"]), "changes annotations alone"
    ),
    "a Node's other annotations": Write(
        MANAGER, "PATCH", STATUS, annotated(annotations={"a": "b"}), "changes its own alone"
    ),
    "one that goes": Write(MANAGER, "PATCH", STATUS, annotated(annotations={"kept": None}), "changes its own alone"),
    "a Node's pods": Write(MANAGER, "PATCH", STATUS, {"status": {"capacity": {"pods": "1"}}}, "of a Node's capacity"),
    "its allocatable pods": Write(
        MANAGER, "PATCH", STATUS, {"status": {"allocatable": {"pods": None}}}, "what a Node has allocatable"
    ),
    "a Node's conditions": Write(MANAGER, "PATCH", STATUS, {"status": {"conditions": None}}, "of a Node's status"),
    "a taint": Write(
        MANAGER, "PATCH", f"{objects.NODES}/n1", {"spec": {"unschedulable": True}}, 'cannot patch resource "nodes"'
    ),
    "a webhook's certificate": Write(
        MANAGER, "PATCH", WEBHOOKS, webhook(clientConfig={"caBundle": base64.b64encode(PLACEHOLDER).decode()}),
        content_type=STRATEGIC,
    ),
    "what a webhook is asked about": Write(
        MANAGER, "PATCH", WEBHOOKS, webhook(namespaceSelector=None), "changes caBundle alone", STRATEGIC
    ),
    "whom a webhook asks": Write(
        MANAGER, "PATCH", WEBHOOKS, webhook(clientConfig={"service": {"name": "mine"}}), "changes caBundle alone",
        STRATEGIC,
    ),
    "one webhook less": Write(MANAGER, "PATCH", VALIDATING, {"webhooks": None}, "changes caBundle alone"),
    "a configuration's labels": Write(
        MANAGER, "PATCH", WEBHOOKS, annotated(labels={"a": "b"}), "changes caBundle alone"
    ),
    "the manager's Event": Write(MANAGER, "POST", EVENTS, event("m", "koord-manager"), content_type=JSON),
    "another's Event": Write(MANAGER, "PATCH", f"{EVENTS}/kubelets", {"count": 2}, "changes no other's"),
    "in another's name": Write(
        MANAGER, "POST", EVENTS, event("n1", "kubelet"), "whose source is koord-manager", JSON
    ),
    "a Secret": Write(
        MANAGER, "POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", annotated(name="s"), "cannot create", JSON
    ),
    "its Secret": Write(
        MANAGER, "PATCH", f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-webhook-certs", {"data": {"a": "Yg=="}}
    ),
    "a binding": Write(SCHEDULER, "POST", f"{POD}/binding", binding("n1"), content_type=JSON),
    "a pod that is preempted": Write(SCHEDULER, "DELETE", POD, {"dryRun": ["All"]}, content_type=JSON),
    "a pod's annotations": Write(SCHEDULER, "PATCH", POD, annotated(annotations={"a": "b"})),
    "a pod's image": Write(
        SCHEDULER, "PATCH", POD, {"spec": {"containers": [{"name": "main", "image": "other"}]}},
        "of what is wanted of an object", STRATEGIC,
    ),
    "a pod's finalizers": Write(
        SCHEDULER, "PATCH", POD, annotated(finalizers=["a.b/c"]), "annotations, and labels of pods alone"
    ),
    "why a pod waits": Write(
        SCHEDULER, "PATCH", f"{POD}/status", {"status": {"conditions": [CONDITION], "nominatedNodeName": "n1"}},
        content_type=STRATEGIC,
    ),
    "a pod's phase": Write(
        SCHEDULER, "PATCH", f"{POD}/status", {"status": {"phase": "Failed"}}, "a pod's conditions and its nominated"
    ),
    "a pod's labels by its status": Write(
        SCHEDULER, "PATCH", f"{POD}/status", annotated(labels={"a": "b"}), "of metadata koord-scheduler changes"
    ),
    "a volume for a claim": Write(
        SCHEDULER, "PATCH", VOLUME,
        {**annotated(annotations=BOUND_BY), "spec": {"claimRef": {"namespace": "default", "name": "c1"}}},
    ),
    "what becomes of a volume": Write(
        SCHEDULER, "PATCH", VOLUME, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, "a volume's claimRef alone"
    ),
    "a claim's node": Write(SCHEDULER, "PATCH", CLAIM, annotated(annotations=SELECTED)),
    "another annotation of a claim": Write(
        SCHEDULER, "PATCH", CLAIM, annotated(annotations={"a": "b"}), "volumes and claims koord-scheduler changes its"
    ),
    "a claim's labels": Write(
        SCHEDULER, "PATCH", CLAIM, annotated(labels={"a": "b"}), "of metadata koord-scheduler changes"
    ),
    "what a quota comes to": Write(
        SCHEDULER, "PATCH", QUOTA,
        {**annotated(annotations={f"{OF_QUOTA}runtime": "{}"}), "status": {"used": {"cpu": "1"}}},
    ),
    "a quota's max": Write(
        SCHEDULER, "PATCH", QUOTA, {"spec": {"max": {"cpu": "9"}}}, "what is wanted of an ElasticQuota koord-scheduler"
    ),
    "a quota's weight": Write(
        SCHEDULER, "PATCH", QUOTA, annotated(annotations={f"{OF_QUOTA}shared-weight": "{}"}),
        "that say what it comes to",
    ),
    "a quota's parent": Write(
        SCHEDULER, "PATCH", QUOTA, annotated(labels={f"{OF_QUOTA}parent": "b"}), "that say what it comes to"
    ),
    "a tree's root": Write(
        MANAGER, "POST", QUOTA.rpartition("/")[0],
        {
            **{"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"},
            **annotated(name="root", labels={f"{OF_QUOTA}is-root": "true", f"{OF_QUOTA}profile": "p"}),
        },
        content_type=JSON,
    ),
    "a team's quota": Write(
        MANAGER, "PATCH", QUOTA, {"spec": {"max": {"cpu": "9"}}}, "koord-manager writes roots of quota trees"
    ),
    "what it comes to, by the manager": Write(
        MANAGER, "PATCH", QUOTA,
        {
            **annotated(labels={f"{OF_QUOTA}is-root": "true", f"{OF_QUOTA}profile": "p"}),
            "status": {"used": {"cpu": "1"}},
        },
        "changes neither an ElasticQuota's status",
    ),
    "the scheduler's Event": Write(SCHEDULER, "POST", EVENTS, event("s", SCHEDULER), content_type=JSON),
    "the manager's, by the scheduler": Write(
        SCHEDULER, "POST", EVENTS, event("s", MANAGER), "whose source is koord-scheduler", JSON
    ),
    "a Node": Write(SCHEDULER, "PATCH", f"{objects.NODES}/n1", annotated(labels={"a": "b"}), "cannot patch"),
    "a report": Write(AGENT, "PATCH", f"{METRICS}/n1", annotated(annotations={ANNOTATION: "{}"})),
    "another node's report": Write(
        AGENT, "PATCH", f"{METRICS}/n2", annotated(annotations={ANNOTATION: "{}"}), "node n1 may not report for n2"
    ),
    "a report's finalizers": Write(
        AGENT, "PATCH", f"{METRICS}/n1", annotated(finalizers=["a.b/c"]), "a node adds no finalizers"
    ),
    "and kubelet's": Write(
        KUBELET, "PATCH", f"{METRICS}/n1", annotated(finalizers=["a.b/c"]), "a node adds no finalizers"
    ),
    "a report's owner": Write(
        AGENT, "PATCH", f"{METRICS}/n1", annotated(ownerReferences=[DEPLOYMENT]), "its owner is its Node"
    ),
    "a topology": Write(AGENT, "POST", topologycrd.PATH, topology(ownerReferences=[OWNER]), content_type=JSON),
    "a topology with finalizers": Write(
        AGENT, "POST", topologycrd.PATH, topology(finalizers=["a.b/c"]), "a node adds no finalizers", JSON
    ),
    "the agent's Event": Write(AGENT, "POST", EVENTS, event("n1"), content_type=JSON),
    "and counted": Write(AGENT, "PATCH", f"{EVENTS}/of-n1", {"count": 2}),
    "of another node": Write(AGENT, "POST", EVENTS, event("n2"), "has that node as its source.host", JSON),
    "and of its past": Write(
        AGENT, "PATCH", f"{EVENTS}/of-n2", {"count": 2}, "has that node as its source.host"
    ),
    "kubelet's Event": Write(KUBELET, "POST", EVENTS, event("any", "kubelet"), content_type=JSON),
    "the Event of one outside of pods": Write(OUTSIDE, "POST", EVENTS, event("n2"), content_type=JSON),
    "and its report": Write(OUTSIDE, "PATCH", f"{METRICS}/n2", annotated(annotations={ANNOTATION: "{}"})),
    "a long request": Write(AGENT, "POST", REQUESTS, request(SIGNER, 200), "has no more than 8 KiB", JSON),
    "and kubelet's long one": Write(KUBELET, "POST", REQUESTS, request(SIGNER, 200), "has no more than 8 KiB", JSON),
    "a request for NodeLink": Write(AGENT, "POST", REQUESTS, request(SIGNER), content_type=JSON),
    "for kubelet": Write(
        AGENT, "POST", REQUESTS, request("kubernetes.io/kube-apiserver-client-kubelet"), f"the signer {SIGNER} alone",
        JSON,
    ),
}  # fmt: skip
"""By what is written."""


@pytest.fixture(scope="module")
def writers(plane: ControlPlane, render: Callable[..., list[Object]]) -> Iterator[Mapping[str, Api]]:
    """Everybody, in an installed cluster: the pods of the agent on node n1, and its kubelet."""
    parts = render("koordlet.enabled=true")
    crds = [each for each in parts if each["kind"] == "CustomResourceDefinition"]
    rest = [
        each for each in parts if each["kind"] not in ("CustomResourceDefinition", "Deployment", "DaemonSet", "Job")
    ]
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(crds))
    plane.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{each['metadata']['name']}" for each in crds)
    )
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(rest))
    plane.kubectl("apply", "-f", str(CHART.parents[1] / "manifests" / "optional" / "node-units.yaml"))
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(plane.api())
        topologycrd.install(admin)
        for name in ("n1", "n2"):
            admin.create(objects.NODES, objects.node(name, annotations={"kept": "yes"}))
            kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric"}
            admin.create(METRICS, {**kind, "metadata": {"name": name}})
            admin.create(EVENTS, event(name, name=f"of-{name}"))
        admin.create(objects.pods_of("default"), objects.pod("p1", {}))
        kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
        admin.create(QUOTA.rpartition("/")[0], {**kind, **annotated(name="a"), "spec": {"max": {"cpu": "4"}}})
        storage = {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow"}
        place = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}}
        admin.create("/api/v1/persistentvolumes", {**annotated(name="v1"), "spec": {**storage, **place}})
        claim = {**annotated(name="c1"), "spec": {**storage, "resources": {"requests": {"storage": "1Gi"}}}}
        admin.create(CLAIM.rpartition("/")[0], claim)
        admin.create(EVENTS, event("n1", "kubelet", "kubelets"))
        made = {name: plane.api(f"{ACCOUNT}{name}", ()) for name in (MANAGER, SCHEDULER, UNINSTALLER)}
        made |= {AGENT: plane.anonymous(agents_token(admin, "n1")), KUBELET: plane.node_api("n1")}
        made[OUTSIDE] = plane.api(f"{ACCOUNT}{AGENT}", ())
        clients = {name: stack.enter_context(client) for name, client in made.items()}
        with contextlib.suppress(HarnessError):  # then the tests say which is not
            wait_for(
                lambda: all(is_as_said(tried(clients[write.who], write), write) for write in WRITES.values()),
                SOON_S, "roles and policies to be in force",
            )  # fmt: skip
        yield clients


def agents_token(admin: Api, node: str) -> str:
    """The agent's pod's on ``node``, as kubelet gets it."""
    metadata = {"name": f"koordlet-{node}", "namespace": NAMESPACE}
    pod = objects.pod(metadata["name"], {}, nodeName=node, serviceAccountName="koordlet")
    uid = admin.create(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": uid}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/koordlet/token"
    spec = {"boundObjectRef": bound, "expirationSeconds": 3600}
    return str(admin.create(path, {"spec": spec})["status"]["token"])


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_let_in_of_what_rights_allow(writers: Mapping[str, Api], write: Write) -> None:
    """Nothing is stored."""
    said = tried(writers[write.who], write)
    assert is_as_said(said, write), said


def is_as_said(refusal: str, write: Write) -> bool:
    return write.refusal in refusal and bool(refusal) == bool(write.refusal)


def tried(api: Api, write: Write) -> str:
    """The refusal; "" if there is none."""
    try:
        api.call(write.method, f"{write.path}?dryRun=All", write.body, write.content_type)
    except ApiError as error:
        return str(error)
    return ""
