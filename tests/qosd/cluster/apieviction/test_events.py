"""An Event on the pod says what became of its eviction. It costs none, and an order for nobody has none."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest

from koord.kube.recorder import EventRecorder
from qosd.act.evictor import EvictionFailed
from qosd.decide.decision import Eviction
from tests.kube.server import Fault
from tests.kube.support import client
from tests.qosd.cluster.apieviction.webpod import FALLEN_BACK, LATE, LONG, ORDER, Cluster, executor


async def test_what_the_runtime_cannot_stop_either_is_said_with_both_reasons(cluster: Cluster, tmp_path: Path) -> None:
    cluster.emergency = LATE
    cluster.fake.endless.update(cluster.fake.containers)
    async with executor(cluster, tmp_path) as (by_api, events):
        both = re.escape(f"{FALLEN_BACK} {LATE}; ") + r"container a .* is running: .*no answer in time"
        with pytest.raises(EvictionFailed, match=both) as failed:
            await by_api.evict(ORDER)
    assert events.said[0][2:] == ("evictPodFail", f"{ORDER.why}; {failed.value}")


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (Eviction("", "default/web", "why"), "pod default/web has no UID"),
        (Eviction("uid-web", "web", "why"), "pod 'web' is not namespace/name"),
    ],
)
async def test_an_order_for_nobody(cluster: Cluster, tmp_path: Path, order: Eviction, says: str) -> None:
    async with executor(cluster, tmp_path) as (by_api, events):
        with pytest.raises(EvictionFailed, match=says):
            await by_api.evict(order)
    assert (cluster.running, cluster.requests, events.said) == (2, [], [])


async def test_an_event_that_cannot_be_written_costs_no_eviction(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("create", status=403, reason="Forbidden")]
    async with client(cluster.url, tries=1) as api:
        recorder = EventRecorder(api, "koordlet", "n1", time.time)
        task = asyncio.create_task(recorder.run())
        async with executor(cluster, tmp_path, LONG, events=recorder) as (by_api, _):
            await by_api.evict(ORDER)
        recorder.close()
        await task
    assert (recorder.failed, recorder.written, cluster.running) == (1, 0, 0)
