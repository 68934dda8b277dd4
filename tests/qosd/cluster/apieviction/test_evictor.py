"""An evictor evicts by the API for as long as the session lasts, if there is a runtime."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

from koord.host.undo import UndoRecord
from koord.kube.recorder import EventRecorder
from qosd.act.cristop import CRIStop
from qosd.act.evictor import Evictor, Executor
from qosd.act.journal import JournalEntry
from qosd.cluster.apieviction import APIEviction, evicting_by_api
from qosd.pods.cri import CRIClient
from tests.kube.support import client
from tests.qosd.cluster.apieviction.webpod import Cluster


class Journal:
    def record(self, entry: JournalEntry) -> None: ...


class NoNotes:
    def all(self, kind: type[Any]) -> tuple[Any, ...]:
        return ()


def evictor_of(executor: Executor | None) -> Evictor:
    return Evictor(cast("UndoRecord", NoNotes()), Journal(), executor)


async def test_an_evictor_evicts_by_the_api_for_as_long_as_the_session_lasts(cluster: Cluster, tmp_path: Path) -> None:
    stop = CRIStop(CRIClient(f"unix://{tmp_path}/s", 1.0, asyncio.get_running_loop()), cluster.exists)
    evictor = evictor_of(stop)
    async with client(cluster.url) as api:
        with (
            pytest.raises(ZeroDivisionError),
            evicting_by_api(evictor, api, EventRecorder(api, "koordlet", "n1", time.time)),
        ):
            assert isinstance(evictor.executor, APIEviction)
            raise ZeroDivisionError
    assert evictor.executor is stop


async def test_without_a_runtime_nobody_evicts(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    evictor = evictor_of(None)
    async with client(cluster.url) as api:
        with evicting_by_api(evictor, api, EventRecorder(api, "koordlet", "n1", time.time)):
            assert evictor.executor is None
    assert "without a runtime endpoint nobody sees its end" in caplog.text
