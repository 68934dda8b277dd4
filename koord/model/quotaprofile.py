"""ElasticQuotaProfile: a quota tree of its own for some of the cluster's nodes. Upstream's kind, field by field.

Of each profile koord-manager makes the ElasticQuota that is the tree's root, with what the nodes have. This module
knows the object alone. Fails as ``koord.model.core`` does: with ValueError, which says where the document is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from koord.model.core import ObjectMeta
from koord.model.schema import json_name
from koord.model.selector import LabelSelector

GROUP = "quota.koordinator.sh"
_RATIO = re.compile(r"([0-9]{1,9}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,2})?", re.ASCII)


class ElasticQuotaProfileSpec(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Which nodes, and the quota that has what they have."""

    quota_name: str
    """The ElasticQuota in the profile's namespace that is the root of the tree."""
    node_selector: LabelSelector
    """Of the labels of the tree's nodes. An empty one selects all nodes."""
    quota_labels: Mapping[str, str] = {}
    """Further labels of that ElasticQuota."""
    resource_ratio: str = ""
    """The part of what the nodes have that the tree has: a decimal number above 0, at most 1; all of it when absent."""

    @property
    def ratio(self) -> Fraction:
        """Raises ValueError for a ``resource_ratio`` that is none."""
        text = self.resource_ratio
        if not text:
            return Fraction(1)
        ratio = Fraction(text) if _RATIO.fullmatch(text) else Fraction(0)
        if not 0 < ratio <= 1:
            raise ValueError(f"spec.resourceRatio: {text[:64]!r} is not a decimal number above 0, at most 1")
        return ratio


class ElasticQuotaProfile(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """A quota tree of its own for some of the cluster's nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaProfileSpec
