"""ElasticQuotaProfiles: the ElasticQuota that is the root of each one's tree has what the profile's nodes have.

A profile is looked at when it, its quota or one of its nodes changes, and no more often than each ``PACE_S``: what
nodes offer to batch pods changes all the time. Invariants: only what differs is written, and what others write on the
quota stays; a quota that is another profile's is left alone. A profile that is gone leaves its quota. What is wrong
with a profile is an Event on it, once for as long as it is so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from koord.kube.client import Client
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import ELASTIC_QUOTA, ELASTIC_QUOTA_PROFILE, Key
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.workqueue import WorkQueue
from koord.model import mergepatch
from koord.model.core import Amounts, Node
from koord.model.elasticquota import ElasticQuota
from koord.model.quotaprofile import ElasticQuotaProfile
from koord.model.selector import problems
from koord.quota import names, pool
from koord.quota.pool import Pool
from koord_manager.view import ClusterView

PACE_S = 5.0
_SLICE = 500
"""Nodes between two passes of the event loop."""
NOT_APPLIED, CREATE_FAILED, UPDATE_FAILED = "ProfileNotApplied", "CreateQuotaFailed", "UpdateQuotaFailed"


class QuotaProfileController:
    """``pace_s``: between two looks at one profile."""

    def __init__(self, client: Client, view: ClusterView, recorder: EventRecorder, pace_s: float = PACE_S) -> None:
        self._client, self._view, self._recorder, self._pace_s = client, view, recorder, pace_s
        self._looked_s: dict[Key, float] = {}
        self._told: dict[Key, str] = {}
        self._nodes: dict[str, tuple[Amounts, Mapping[str, int]]] = {}
        """By name: what it is said to have, and the same in numbers."""
        self.queue: WorkQueue[Key] = WorkQueue("quotaprofile")

    def begin(self) -> None:
        """Looks at all profiles that there are."""
        self._looked_s.clear()
        for key in self._view.quota_profiles.objects:
            self.queue.add(key)

    def profile_changed(self, key: Key) -> None:
        self.queue.add(key)

    def quota_changed(self, key: Key) -> None:
        """Looks at the profiles that the quota is to be the root of."""
        for each, profile in self._view.quota_profiles.objects.items():
            if (each.namespace, profile.spec.quota_name) == (key.namespace, key.name):
                self.queue.add(each)

    def node_changed(self, name: str, before: Node | None, after: Node | None) -> None:
        """Looks at the profiles that select the node."""
        if after is None:
            self._nodes.pop(name, None)
        for key, profile in self._view.quota_profiles.objects.items():
            selects = profile.spec.node_selector.matches
            if any(selects(node.metadata.labels) for node in (before, after) if node is not None):
                self.queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        """Makes or mends the quota of a profile. Raises KubeError."""
        profile = self._view.quota_profiles.get(key)
        if profile is None:
            self._looked_s.pop(key, None)
            self._told.pop(key, None)
            return None
        now_s = asyncio.get_running_loop().time()
        due_s = self._looked_s.get(key, now_s - self._pace_s) + self._pace_s
        if due_s > now_s:
            return due_s - now_s
        self._looked_s[key] = now_s
        stored = self._view.elastic_quotas.get(Key(key.namespace, profile.spec.quota_name))
        try:
            desired = pool.root(profile, await self._pool(profile))
            _check(profile, stored)
        except ValueError as error:
            self._tell(profile, NOT_APPLIED, str(error))
            return None
        await self._label(key, profile)
        await self._write(profile, stored, desired)
        return None

    async def _label(self, key: Key, profile: ElasticQuotaProfile) -> None:
        """The profile names its tree, so that it stays the same whatever becomes of names."""
        if not profile.metadata.labels.get(names.LABEL_TREE):
            labels = {names.LABEL_TREE: pool.tree_id(profile.metadata)}
            await self._client.patch(ELASTIC_QUOTA_PROFILE, key, {"metadata": {"labels": labels}})

    async def _write(self, profile: ElasticQuotaProfile, stored: ElasticQuota | None, desired: ElasticQuota) -> None:
        try:
            if stored is None:
                kind = {"apiVersion": ELASTIC_QUOTA.api_version, "kind": ELASTIC_QUOTA.name}
                await self._client.create(ELASTIC_QUOTA, {**kind, **pool.document(desired)}, desired.metadata.namespace)
            elif patch := _of(stored, pool.change(stored, desired)):
                key = Key(stored.metadata.namespace, stored.metadata.name)
                await self._client.patch(ELASTIC_QUOTA, key, patch)
        except KubeError as error:
            if isinstance(error, APIError) and (error.is_already_exists or error.is_not_found):
                return  # its event comes
            self._tell(profile, CREATE_FAILED if stored is None else UPDATE_FAILED, str(error))
            raise
        self._told.pop(Key(profile.metadata.namespace, profile.metadata.name), None)

    async def _pool(self, profile: ElasticQuotaProfile) -> Pool:
        """Raises ValueError."""
        ratio, selector = profile.spec.ratio, profile.spec.node_selector
        for problem in problems(selector, "spec.nodeSelector"):
            raise ValueError(str(problem))
        chosen = []
        for number, node in enumerate(tuple(self._view.nodes.objects.values())):
            if selector.matches(node.metadata.labels):
                chosen.append((self._amounts(node), pool.is_schedulable(node)))
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        return pool.pool(chosen, ratio)

    def _amounts(self, node: Node) -> Mapping[str, int]:
        """What differs from the last look is read again."""
        name, stated = node.metadata.name, node.status.allocatable
        known = self._nodes.get(name)
        if known is None or known[0] is not stated:
            known = self._nodes[name] = stated, pool.amounts(stated)
        return known[1]

    def _tell(self, profile: ElasticQuotaProfile, reason: str, message: str) -> None:
        key = Key(profile.metadata.namespace, profile.metadata.name)
        if self._told.get(key) != message:
            self._told[key] = message
            subject = Subject.of(ELASTIC_QUOTA_PROFILE, profile.metadata)
            self._recorder.record(subject, EventType.WARNING, reason, message)


def _check(profile: ElasticQuotaProfile, stored: ElasticQuota | None) -> None:
    """Raises ValueError where the quota is another profile's."""
    owner = "" if stored is None else stored.metadata.labels.get(names.LABEL_PROFILE, "")
    if owner not in ("", profile.metadata.name):
        name = profile.spec.quota_name
        raise ValueError(f"spec.quotaName: {name!r} is the quota of ElasticQuotaProfile {owner} already")


def _of(stored: ElasticQuota, patch: mergepatch.Patch) -> mergepatch.Patch:
    """Returns the patch for this very object alone."""
    if not patch:
        return patch
    return {**patch, "metadata": {**patch.get("metadata", {}), "uid": stored.metadata.uid}}
