"""What Koord's webhooks know of a cluster, read for a command that asks what they should have done to a pod."""

from __future__ import annotations

from collections.abc import Iterable

from koord.admission import AdmissionContext
from koord.kube.client import Client
from koord.kube.kind import CLUSTER_COLOCATION_PROFILE, NAMESPACE, Unstructured
from koord.model.profile import ClusterColocationProfile
from koord.model.profile import read as read_profile
from koord.model.schema import SchemaError
from koordctl.cluster.lists import read_list


async def read(client: Client, namespace: str) -> AdmissionContext:
    """``namespace``: Koord's own. Raises KubeError."""
    return AdmissionContext(
        profiles=_profiles(await read_list(client, CLUSTER_COLOCATION_PROFILE)),
        namespaces={each.metadata.name: each.metadata.labels for each in await read_list(client, NAMESPACE)},
        own_namespace=namespace,
    )


def _profiles(items: Iterable[Unstructured]) -> tuple[ClusterColocationProfile, ...]:
    found = []
    for item in items:
        try:
            found.append(read_profile(item.content))
        except SchemaError:
            continue  # koordctl lint says what is wrong with it; it matches no pod
    return tuple(found)
