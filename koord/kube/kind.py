"""The kinds of objects that Koord reads and writes: their names, their URL on an API server, and a struct for them.

The struct is the consumer's choice: ``POD`` reads what most have a use for, and ``POD.decoded_as(...)`` reads the same
pods as a scheduler or a report needs them. A consumer that reads no objects takes any ``Kind[Object]``.

Invariant: a name or namespace never leads out of its place in a URL: one that no object can have raises ValueError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from koord.model import elasticquota, nodemetric, noderesourcetopology, profile, quotaprofile
from koord.model.core import Lease, Node, ObjectMeta, Pod
from koord.model.elasticquota import ElasticQuota
from koord.model.nodemetric import NodeMetric
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.quotaprofile import ElasticQuotaProfile


class Key(msgspec.Struct, frozen=True, order=True, gc=False):
    """An object among those of its kind. ``namespace`` is "" if the kind has none.

    A struct outside of garbage collection, so that maps from keys to such structs are outside as well: a collection
    would stop the process for 50 ms for each 50,000 objects.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Object(Protocol):
    """What every struct of a kind has."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Object)
T_co = TypeVar("T_co", bound=Object, covariant=True)


class Unstructured(msgspec.Struct, frozen=True):
    """An object of a kind that has no struct of its own: ``content`` is all of it, as JSON has it."""

    metadata: ObjectMeta
    content: dict[str, Any]


class PartialObject(msgspec.Struct, frozen=True, gc=False):
    """An object of which its consumer reads nothing but the metadata."""

    metadata: ObjectMeta = ObjectMeta()


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """``group`` is "" for the core group; ``struct`` is what its objects decode to, for this consumer."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    struct: type[T_co]

    def decoded_as(self, struct: type[S]) -> Kind[S]:
        """Returns the same kind for a consumer that reads its objects as ``struct``."""
        return Kind(self.group, self.version, self.name, self.plural, self.namespaced, struct)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection_path(self, namespace: str = "") -> str:
        """The URL path of the objects of ``namespace``, or of all. Raises ValueError."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if not namespace:
            return f"{root}/{self.plural}"
        if not self.namespaced:
            raise ValueError(f"{self.name} has no namespace, such as {namespace!r}")
        return f"{root}/namespaces/{_segment(namespace)}/{self.plural}"

    def object_path(self, key: Key, subresource: str = "") -> str:
        """The URL path of one object, or of a part of it (``status``). Raises ValueError."""
        if self.namespaced and not key.namespace:
            raise ValueError(f"{self.name} {key.name!r} lacks its namespace")
        path = f"{self.collection_path(key.namespace)}/{_segment(key.name)}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return self.name


_PLAIN = re.compile(r"[a-z0-9]([a-z0-9.:-]*[a-z0-9])?").fullmatch
"""Most names, which stand in a path as they are."""


def _segment(name: str) -> str:
    """``name`` in a path; Kubernetes itself refuses these for the same reason."""
    if _PLAIN(name):
        return name
    if name in ("", ".", "..") or "/" in name or "%" in name:
        raise ValueError(f"{name!r} cannot be the name of an object")
    return quote(name, safe=":")


POD = Kind("", "v1", "Pod", "pods", True, Pod)
NODE = Kind("", "v1", "Node", "nodes", False, Node)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", False, Unstructured)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", True, Unstructured)
SECRET = Kind("", "v1", "Secret", "secrets", True, Unstructured)
EVENT = Kind("", "v1", "Event", "events", True, PartialObject)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", True, Unstructured)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", True, Lease)
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, Unstructured)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, Unstructured
)
MUTATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    False,
    Unstructured,
)
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
    Unstructured,
)
CERTIFICATE_SIGNING_REQUEST = Kind(
    "certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", False, Unstructured
)
NODE_METRIC = Kind(nodemetric.GROUP, "v1alpha1", "NodeMetric", "nodemetrics", False, NodeMetric)
NODE_SLO = Kind(nodemetric.GROUP, "v1alpha1", "NodeSLO", "nodeslos", False, Unstructured)
CLUSTER_COLOCATION_PROFILE = Kind(
    profile.GROUP, "v1alpha1", "ClusterColocationProfile", "clustercolocationprofiles", False, Unstructured
)
NODE_RESOURCE_TOPOLOGY = Kind(
    noderesourcetopology.GROUP,
    "v1alpha1",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    NodeResourceTopology,
)
ELASTIC_QUOTA = Kind(elasticquota.GROUP, "v1alpha1", "ElasticQuota", "elasticquotas", True, ElasticQuota)
ELASTIC_QUOTA_PROFILE = Kind(
    quotaprofile.GROUP, "v1alpha1", "ElasticQuotaProfile", "elasticquotaprofiles", True, ElasticQuotaProfile
)

KINDS: tuple[Kind[Object], ...] = (
    POD,
    NODE,
    NAMESPACE,
    CONFIG_MAP,
    SECRET,
    EVENT,
    DEPLOYMENT,
    LEASE,
    PRIORITY_CLASS,
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    CERTIFICATE_SIGNING_REQUEST,
    NODE_METRIC,
    NODE_SLO,
    CLUSTER_COLOCATION_PROFILE,
    NODE_RESOURCE_TOPOLOGY,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
)
