"""What the leader writes on ElasticQuotas: what each requests, uses and may use, where the object says something else.

kubectl, dashboards and Koordinator's manager read it. Level-triggered: what is desired follows from the state, and is
compared with the object. Nothing is written while nothing changes; of a quota, at most once a second; of all, at most
``_RATE`` a second, those first that waited longest. A write that fails ends its round, and is made again after a pause,
which grows as long as writes fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from koord.kube.client import Client, PatchType
from koord.kube.errors import APIError, KubeError, NotLeader
from koord.kube.kind import ELASTIC_QUOTA, Key
from koord.model.elasticquota import ElasticQuota
from koord.quota import names, spec
from koord.quota.forest import Forest, Quota
from koord.scheduling.state import ClusterState

_log = logging.getLogger(__name__)
_PAUSE_S, _MOST_PAUSE_S = 1.0, 64.0
_RATE = 50
_SLICE = 100
"""Quotas that are compared before the event loop goes on: some milliseconds."""


class QuotaStatusWriter:
    """``client``: the leader's. ``writes``: how many there were."""

    def __init__(self, client: Client, state: ClusterState, sleep: Callable[[float], Any] = asyncio.sleep) -> None:
        self._client, self._state, self._sleep = client, state, sleep
        self._changed = asyncio.Event()
        self._changed.set()
        self._last = ""
        """Written last: the ones after it are next."""
        self.writes = 0

    def changed(self) -> None:
        """What quotas come to may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Writes until it is cancelled."""
        pause_s = _PAUSE_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if not await self._round():
                    self._changed.set()
                pause_s = _PAUSE_S
            except KubeError as error:
                _log.info("an ElasticQuota cannot be written: %s", error)
                self._changed.set()
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            await self._sleep(pause_s)

    async def _round(self) -> bool:
        """Returns False where more was to be written than may be at once. Raises KubeError."""
        left = _RATE
        for number, name in enumerate(self._in_turn()):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            patch = self._patch(name)
            if patch is None:
                continue
            if not left:
                return False
            left -= 1
            self._last = name
            await self._write(name, patch)
        return True

    def _in_turn(self) -> list[str]:
        forest = self._state.quotas.up_to_date()
        found = [each.name for each in forest] if forest is not None else []
        return [each for each in found if each > self._last] + [each for each in found if each <= self._last]

    def _patch(self, name: str) -> dict[str, Any] | None:
        """Returns what changes the object into what it should be; None: it is so."""
        forest, quota = self._state.quotas.up_to_date(), self._state.quotas.get(name)
        written = self._state.quotas.object(name)
        if forest is None or quota is None or written is None:
            return None
        annotations, used = desired(forest, quota)
        said = {key: value for key, value in annotations.items() if not _is_said(written, key, value)}
        status = {"used": used} if not _are_equal(written.status.used, used) else None
        if not said and status is None:
            return None
        gone = {resource: None for resource in written.status.used if resource not in used}
        return {
            **({"metadata": {"annotations": said}} if said else {}),
            **({"status": {"used": {**used, **gone}}} if status else {}),
        }

    async def _write(self, name: str, patch: dict[str, Any]) -> None:
        """Raises KubeError."""
        written = self._state.quotas.object(name)
        if written is None:
            return
        metadata = written.metadata
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata.uid}}
        self.writes += 1
        try:
            await self._client.patch(ELASTIC_QUOTA, Key(metadata.namespace, metadata.name), body, PatchType.MERGE)
        except NotLeader:
            return
        except APIError as error:
            if not error.is_not_found:
                raise


def desired(forest: Forest, quota: Quota) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the annotations and ``status.used`` as they should be; of what the maximum names."""
    counted, rules = quota.counted, forest.rules
    amounts: dict[str, Mapping[str, int]] = {
        names.ANNOTATION_RUNTIME: forest.runtimes(quota),
        names.ANNOTATION_REQUEST: quota.request,
        names.ANNOTATION_CHILD_REQUEST: quota.child_request,
        names.ANNOTATION_FIXED_REQUEST: counted.fixed_request,
        names.ANNOTATION_FIXED_USED: counted.fixed_used,
    }
    if rules.guarantees_usage:
        amounts[names.ANNOTATION_GUARANTEED] = quota.guaranteed
        amounts[names.ANNOTATION_ALLOCATED] = quota.allocated
    annotations = {key: spec.json(_limited(quota, each)) for key, each in amounts.items()}
    return annotations, spec.texts(_limited(quota, counted.used))


def _limited(quota: Quota, amounts: Mapping[str, int]) -> dict[str, int]:
    return {resource: amounts.get(resource, 0) for resource in quota.spec.maximum}


def _is_said(quota: ElasticQuota, key: str, value: str) -> bool:
    said = quota.metadata.annotations.get(key)
    if said == value:
        return True
    try:
        return said is not None and spec.read_json(said) == spec.read_json(value)
    except ValueError:
        return False


def _are_equal(said: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    try:
        return {name: spec.units(name, amount) for name, amount in said.items()} == {
            name: spec.units(name, amount) for name, amount in wanted.items()
        }
    except ValueError:
        return False
