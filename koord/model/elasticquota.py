"""ElasticQuota: what the pods of a team may have of the cluster. The kind of the scheduler-plugins project.

Koordinator builds trees of them: what is beyond a minimum and a maximum is in labels and annotations, whose keys are
``koord.quota.names``. The kind has no status subresource: who writes the object writes all of it.
Fails as ``koord.model.core`` does: with ValueError, which says where the document is wrong.
"""

from __future__ import annotations

import msgspec

from koord.model.core import Amounts, ObjectMeta

GROUP = "scheduling.sigs.k8s.io"


class _Slim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """As in ``koord.model.core``, and encoded without what is at its default."""


class ElasticQuotaSpec(_Slim, frozen=True):
    min: Amounts = {}
    """What the quota's pods get whatever others ask for, by resource."""
    max: Amounts = {}
    """The most that they get. A resource that is not named is not limited."""


class ElasticQuotaStatus(_Slim, frozen=True):
    used: Amounts = {}
    """What the quota's pods on nodes request, by resource."""


class ElasticQuota(_Slim, frozen=True):
    """What the pods of a team may have of the cluster: at least ``min``, at most ``max``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()
