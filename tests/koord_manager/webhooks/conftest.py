"""Webhooks of a cluster with a profile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from koord_manager.options import PROGRAM
from koord_manager.webhooks.webhooks import Webhooks
from tests.koord_manager.support import Cluster
from tests.koord_manager.webhooks.rig import CLASSES, COLOCATED, GATES, NAMESPACES, SPEC, Rig
from tests.kube.support import client
from tests.support.cluster import PROFILES
from tests.support.waiting import until


@pytest.fixture
async def rig(cluster: Cluster) -> AsyncIterator[Rig]:
    """With the profile, its PriorityClass and a namespace that it selects."""
    cluster.server.put(CLASSES, "", "koord-batch", value=5000, preemptionPolicy="PreemptLowerPriority")
    cluster.server.put(NAMESPACES, "", "jobs", metadata=dict(COLOCATED))
    cluster.server.put(PROFILES, "", "batch", spec=SPEC)
    async with client(cluster.server.url) as api:
        await until(lambda: bool(cluster.view.admission().profiles and "jobs" in cluster.view.admission().namespaces))
        made = Rig(cluster, api, Webhooks(api, cluster.view, PROGRAM.load(PROGRAM.parse([GATES]))))
        yield made
        await made.webhooks.large.close()
