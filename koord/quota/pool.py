"""The root of a quota tree by its ElasticQuotaProfile: what the nodes that the profile selects have, times its ratio.

The root's minimum is what there is of each of the profile's resources, and its maximum more than any cluster has, so
that the tree is bounded by ``total-resource`` alone, which has all resources. Amounts are exact and rounded down to the
unit of scheduling. Source: Koordinator, pkg/quota-controller/profile.

Invariant: the labels by which the tree is known are the profile's to say; ``quotaLabels`` cannot say otherwise.
Fails with ValueError for a ratio or a list of resources that is none: then the root stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from koord.model import mergepatch
from koord.model.core import Amounts, Node, ObjectMeta
from koord.model.elasticquota import ElasticQuota
from koord.model.priority import CPU, MEMORY
from koord.model.quantity import QuantityError
from koord.model.quotaprofile import ElasticQuotaProfile
from koord.quota import names, spec

UNLIMITED = (2**63 - 1) // 2000
"""The maximum, in whole units, as Koordinator writes it."""
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_READY, _TRUE = "Ready", "True"


class Pool(NamedTuple):
    """What nodes have in all, and of that what is on nodes that take no pods, in the units of scheduling."""

    total: Mapping[str, int] = {}
    unschedulable: Mapping[str, int] = {}


def tree_id(profile: ObjectMeta) -> str:
    """Returns the tree of a profile: what its label says, else the 64-bit FNV-1a hash of its namespace and name."""
    labelled = profile.labels.get(names.LABEL_TREE)
    if labelled:
        return labelled
    digest = _FNV_OFFSET
    for byte in f"{profile.namespace}/{profile.name}".encode():
        digest = (digest ^ byte) * _FNV_PRIME % 2**64
    return str(digest)


def is_schedulable(node: Node) -> bool:
    """Returns whether the node takes pods: it is not cordoned, and says that it is ready."""
    is_ready = any(each.type == _READY and each.status == _TRUE for each in node.status.conditions)
    return is_ready and not node.spec.unschedulable


def amounts(allocatable: Amounts) -> dict[str, int]:
    """Returns what a node has; a resource whose amount cannot be read counts for nothing."""
    return dict(_amounts(allocatable))


def _amounts(allocatable: Amounts) -> Iterator[tuple[str, int]]:
    for resource, amount in allocatable.items():
        try:
            yield resource, spec.units(resource, amount)
        except QuantityError:
            continue


def pool(nodes: Iterable[tuple[Mapping[str, int], bool]], ratio: Fraction) -> Pool:
    """Returns what the nodes come to: of each what it has, and whether it takes pods."""
    total: dict[str, int] = {}
    unschedulable: dict[str, int] = {}
    for has, takes_pods in nodes:
        for sums in (total,) if takes_pods else (total, unschedulable):
            for resource, amount in has.items():
                sums[resource] = sums.get(resource, 0) + amount
    return Pool(_times(total, ratio), _times(unschedulable, ratio))


def _times(sums: Mapping[str, int], ratio: Fraction) -> dict[str, int]:
    return {name: amount * ratio.numerator // ratio.denominator for name, amount in sorted(sums.items())}


def root(profile: ElasticQuotaProfile, pool: Pool) -> ElasticQuota:
    """Returns what the ElasticQuota is to say, but for what others write on it. Raises ValueError."""
    metadata, keys = profile.metadata, resource_keys(profile.metadata)
    labels = {
        **profile.spec.quota_labels,
        names.LABEL_PROFILE: metadata.name,
        names.LABEL_TREE: tree_id(metadata),
        names.LABEL_IS_ROOT: "true",
    }
    return msgspec.convert(
        {
            "metadata": {
                "name": profile.spec.quota_name,
                "namespace": metadata.namespace,
                "labels": labels,
                "annotations": {
                    names.ANNOTATION_TOTAL: spec.json(pool.total),
                    names.ANNOTATION_UNSCHEDULABLE: spec.json(pool.unschedulable),
                },
            },
            "spec": {
                "min": spec.texts({key: pool.total.get(key, 0) for key in keys}),
                "max": {key: str(UNLIMITED) for key in sorted(keys)},
            },
        },
        ElasticQuota,
    )


def resource_keys(profile: ObjectMeta) -> tuple[str, ...]:
    """Returns the resources that the root's minimum and maximum name. Raises ValueError."""
    text = profile.annotations.get(names.ANNOTATION_RESOURCE_KEYS)
    if not text:
        return CPU, MEMORY
    try:
        return tuple(dict.fromkeys(msgspec.json.decode(text, type=list[str])))
    except msgspec.DecodeError as error:
        raise ValueError(f"metadata.annotations[{names.ANNOTATION_RESOURCE_KEYS}]: cannot be read: {error}") from error


def change(stored: ElasticQuota, desired: ElasticQuota) -> mergepatch.Patch:
    """Returns the merge patch after which the stored object says what it is to say; {} if it does.

    An amount that is written in another way is the same; labels and annotations of others stay.
    """
    patch: mergepatch.Patch = {}
    has, is_to_have = stored.metadata, desired.metadata
    for member, before, after in (
        ("labels", has.labels, is_to_have.labels),
        ("annotations", has.annotations, is_to_have.annotations),
    ):
        if news := {key: text for key, text in after.items() if before.get(key) != text}:
            patch.setdefault("metadata", {})[member] = news
    states, is_to_state = spec.of(stored)[0], spec.of(desired)[0]
    if (states.minimum, states.maximum) != (is_to_state.minimum, is_to_state.maximum):
        patch["spec"] = mergepatch.diff(_spec(stored), _spec(desired))
    return patch


def document(desired: ElasticQuota) -> mergepatch.Patch:
    """Returns the object as it is created, but for its kind."""
    metadata = desired.metadata
    members = {"name": metadata.name, "namespace": metadata.namespace}
    return {
        "metadata": {**members, "labels": dict(metadata.labels), "annotations": dict(metadata.annotations)},
        "spec": _spec(desired),
    }


def _spec(quota: ElasticQuota) -> dict[str, Any]:
    return {"min": dict(quota.spec.min), "max": dict(quota.spec.max)}
