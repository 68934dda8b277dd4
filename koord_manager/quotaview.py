"""ElasticQuotas as admission judges by them: what the API server has, and for a moment what was let pass.

Events come late: of two children that are created at once the second would be judged as if the first were not there,
and a child that is created at once with its parent as if it had none. So what was let pass counts until its event, and
no longer than ``PASSED_S``, since another webhook may have refused it. What another replica let pass is not known here
until its event.

Invariants: a dry run counts for nothing; what is remembered is bounded; with nothing to remember the tree is that of
the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from koord.admission import quotas
from koord.admission.quotatree import Age, QuotaTree, tree
from koord.kube.kind import Key
from koord.model.admissionreview import CREATE, DELETE, UPDATE, AdmissionRequest
from koord.model.elasticquota import ElasticQuota
from koord.quota import spec
from koord.quota.spec import QuotaSpec

PASSED_S = 5.0
MAX_PASSED = 1000
MOST_PODS = 2
"""That a refusal names."""
_NEW = "9999"
_WRITES = (CREATE, UPDATE, DELETE)


class _Passed(NamedTuple):
    """What was let pass of an object. None: its deletion."""

    quota: QuotaSpec | None
    until_s: float


@dataclass(frozen=True, slots=True)
class QuotaPods:
    """Some of the pods by the quota that they name, and by their namespace: for a process that has no others."""

    by_quota: Mapping[str, tuple[str, ...]]
    by_namespace: Mapping[str, tuple[str, ...]]

    def __call__(self, quota: str, namespaces: Collection[str]) -> tuple[str, ...]:
        found = [
            *self.by_quota.get(quota, ()),
            *(pod for each in namespaces for pod in self.by_namespace.get(each, ())),
        ]
        return tuple(dict.fromkeys(found))[:MOST_PODS]


class QuotaView:
    """``clock``: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stored: dict[Key, tuple[Age, QuotaSpec]] = {}
        self._passed: dict[Key, _Passed] = {}
        """In the order in which they end."""
        self._tree: QuotaTree | None = None

    def take(self, key: Key, quota: ElasticQuota | None) -> None:
        """Takes the object as the API server has it; None: it is gone."""
        before = self._stored.get(key)
        if quota is None:
            self._stored.pop(key, None)
        else:
            age = quota.metadata.creation_timestamp or "", key.namespace
            self._stored[key] = age, spec.of(quota)[0]
        after = self._stored.get(key)
        passed = self._passed.get(key)
        if passed is not None and passed.quota == (after and after[1]):
            del self._passed[key]
        if before != after:
            self._tree = None

    def take_passed(self, request: AdmissionRequest) -> None:
        """Takes what a request that was let pass makes of an object. Raises AdmissionError."""
        is_other = request.resource != quotas.RESOURCE or request.subresource or request.operation not in _WRITES
        if request.is_dry_run or is_other:
            return
        is_deletion = request.operation == DELETE
        quota = quotas.read(request.old_object if is_deletion else request.object, request).quota
        key, after = Key(quota.namespace, quota.name), None if is_deletion else quota
        stored = self._stored.get(key)
        if self._passed.pop(key, None) is not None:
            self._tree = None
        if after != (stored and stored[1]):
            self._tree = None
            self._passed[key] = _Passed(after, self._clock() + PASSED_S)
            if len(self._passed) > MAX_PASSED:
                del self._passed[next(iter(self._passed))]

    def tree(self) -> QuotaTree:
        """Returns the quotas as they are now; the same object while nothing has changed."""
        now_s = self._clock()
        while self._passed and next(iter(self._passed.values())).until_s <= now_s:
            del self._passed[next(iter(self._passed))]
            self._tree = None
        if self._tree is None:
            found = dict(self._stored)
            for key, passed in self._passed.items():
                if passed.quota is None:
                    found.pop(key, None)
                else:
                    age = self._stored[key][0] if key in self._stored else (_NEW, key.namespace)
                    found[key] = age, passed.quota
            self._tree = tree(found.values())
        return self._tree
