"""The trees of quotas of a cluster: who requests and uses what, and what each quota may use of it.

A quota's request is that of its pods and of its children, and what it does not lend counts as requested; no more than
its maximum goes up to its parent. Down goes what the parent has, its *runtime*, which `koord.quota.division` divides
among the children, each resource by itself. A tree's root has what the cluster, or the tree's own root quota, says.
The system's quota and that of pods of no quota are in no tree: they may use their maximum, and what they use is not
divided.

A change costs by the depth of its quota, that of who is below whom by all of them once; what follows is computed when
it is asked for.

Invariant: everything equals what a forest says that is made anew of the same quotas, in any order, and the same
requests and uses. A quota that cannot be in its tree, as its parent is missing, in another tree or below it, may use
nothing, and its ``problem`` says why; what its pods request counts nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from koord.quota import names
from koord.quota.division import Claim, Division, Share, Summary
from koord.quota.spec import QuotaSpec

OUTSIDE = (names.SYSTEM, names.DEFAULT)
"""The quotas that are in no tree."""
_Counts = dict[str, int]


@dataclass(frozen=True)
class QuotaRules:
    """``scales_minimum``: whether minima are scaled that come to more than there is. ``guarantees_usage``: whether what
    is used is not lent. ``maximum``: of the quotas ``OUTSIDE`` that have no object; of one that is not named, none.
    """

    scales_minimum: bool = True
    guarantees_usage: bool = False
    maximum: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Counted:
    """What pods come to, by resource. ``fixed_request``, ``fixed_used``: of those that are not preemptible."""

    __slots__ = ("fixed_request", "fixed_used", "request", "used")

    def __init__(self) -> None:
        self.request, self.used, self.fixed_request, self.fixed_used = _Counts(), _Counts(), _Counts(), _Counts()

    @property
    def is_anything(self) -> bool:
        return bool(self.request or self.used)


class Quota:
    """One quota in its tree. ``counted``: its pods and its children's. ``child_request``: ``counted.request``, of each
    child no more than its maximum; ``request``: with what is not lent; ``limited``: what goes up to its parent.
    ``allocated``, ``guaranteed``: where use is guaranteed.
    """

    __slots__ = (
        "allocated", "child_request", "children", "counted", "divisions", "guaranteed", "limited", "parent", "problem",
        "request", "spec",
    )  # fmt: skip

    def __init__(self, spec: QuotaSpec) -> None:
        self.spec = spec
        self.parent: Quota | None = None
        self.children: dict[str, Quota] = {}
        self.divisions: dict[str, Division] = {}
        self.counted = Counted()
        self.child_request, self.request, self.limited = _Counts(), _Counts(), _Counts()
        self.allocated, self.guaranteed = _Counts(), _Counts()
        self.problem = ""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_outside(self) -> bool:
        return self.spec.name in OUTSIDE

    def upward(self) -> Iterator[Quota]:
        """Yields it, its parent and so on, up to the root that stands for its tree."""
        quota: Quota | None = self
        while quota is not None:
            yield quota
            quota = quota.parent

    def resources(self) -> Iterable[str]:
        """All of which it has or asks for anything."""
        return dict.fromkeys((*self.spec.maximum, *self.spec.minimum, *self.child_request))


class Level(NamedTuple):
    """How a quota comes by its runtime of one resource: its ``claim`` on what its parent has, ``summary``, and its
    ``share`` of that.
    """

    quota: str
    parent: str
    claim: Claim
    summary: Summary
    share: Share


class Forest:
    """``version`` grows with each change."""

    def __init__(self, rules: QuotaRules = QuotaRules()) -> None:
        self.rules = rules
        self.version = 0
        self._specs: dict[str, QuotaSpec] = {}
        self._own: dict[str, Counted] = {}
        self._cluster: Mapping[str, int] = {}
        self._quotas: dict[str, Quota] = {}
        self._roots: dict[str, Quota] = {}
        self._is_stale = True

    # quotas

    def put(self, spec: QuotaSpec) -> None:
        before = self._specs.get(spec.name)
        if before == spec:
            return
        self._specs[spec.name] = spec
        is_stale = self._is_stale or before is None or _place(before) != _place(spec)
        self._changed(is_stale)
        quota = None if is_stale else self._quotas.get(spec.name)
        if quota is not None:
            self._limit(quota, spec)

    def remove(self, name: str) -> None:
        if self._specs.pop(name, None) is not None:
            self._changed(is_stale=True)

    def __contains__(self, name: str) -> bool:
        return name in self._specs or name in OUTSIDE

    def get(self, name: str) -> Quota | None:
        return self._built().get(name)

    def __iter__(self) -> Iterator[Quota]:
        """Yields the quotas by their names; those that stand for whole trees are not among them."""
        return iter([quota for _, quota in sorted(self._built().items())])

    # what pods come to

    def put_cluster(self, amounts: Mapping[str, int]) -> None:
        """The cluster's nodes have so much in all."""
        if self._cluster != amounts:
            self._cluster = dict(amounts)
            self._changed()

    def request(self, name: str, amounts: Mapping[str, int], is_fixed: bool = False, sign: int = 1) -> None:
        """A pod of the quota requests ``amounts``; of ``sign`` -1: no longer. ``is_fixed``: it is not preemptible."""
        quota = self._count(name, ("request", "fixed_request") if is_fixed else ("request",), amounts, sign)
        if quota is not None:
            for resource, amount in amounts.items():
                self._rise(quota, resource, sign * amount)

    def use(self, name: str, amounts: Mapping[str, int], is_fixed: bool = False, sign: int = 1) -> None:
        """A pod of the quota is on a node; of ``sign`` -1: no longer."""
        quota = self._count(name, ("used", "fixed_used") if is_fixed else ("used",), amounts, sign)
        if quota is not None and self.rules.guarantees_usage:
            for resource, amount in amounts.items():
                self._rise_in_use(quota, resource, sign * amount)

    def _count(self, name: str, kinds: tuple[str, ...], amounts: Mapping[str, int], sign: int) -> Quota | None:
        """Counts what the quota's own pods come to, and of the quotas above it. Returns the quota if it is built."""
        own = self._own.setdefault(name, Counted())
        quota = None if self._is_stale else self._quotas.get(name)
        for kind in kinds:
            for counted in (own, *([each.counted for each in quota.upward()] if quota is not None else ())):
                _add(getattr(counted, kind), amounts, sign)
        if not own.is_anything and name not in self._specs:
            del self._own[name]
        self._changed()
        return quota

    # what follows

    def runtime(self, quota: Quota, resource: str) -> int | None:
        """Returns what the quota may use now; None: it is not limited."""
        if quota.problem:
            return 0
        if quota.parent is None:
            return quota.spec.maximum.get(resource) if quota.is_outside else self.total(quota.spec.tree, resource)
        total = self.runtime(quota.parent, resource)
        assert total is not None
        division = quota.parent.divisions.get(resource)
        return 0 if division is None else division.runtime(quota.name, total)

    def allows(self, quota: Quota, resource: str, amount: int) -> bool:
        """Returns whether the quota may use as much now; costs less than its runtime where it is well within."""
        division = None if quota.parent is None else quota.parent.divisions.get(resource)
        if quota.parent is None or quota.problem or division is None:
            runtime = self.runtime(quota, resource)
            return runtime is None or amount <= runtime
        total = self.runtime(quota.parent, resource)
        assert total is not None
        return division.allows(quota.name, amount, total)

    def runtimes(self, quota: Quota) -> dict[str, int]:
        """Returns what it may use of each resource that its maximum names."""
        return {resource: self.runtime(quota, resource) or 0 for resource in quota.spec.maximum}

    def total(self, tree: str, resource: str) -> int:
        """Returns what there is for a whole tree."""
        if tree:
            root = self.root_of(tree)
            return 0 if root is None or root.total is None else root.total.get(resource, 0)
        quotas = self._built()
        used = sum([quotas[name].counted.used.get(resource, 0) for name in OUTSIDE])
        return self._cluster.get(resource, 0) - used - self.in_other_trees(resource)

    def cluster(self, resource: str) -> int:
        return self._cluster.get(resource, 0)

    def in_other_trees(self, resource: str) -> int:
        """Returns what of the cluster is for trees of their own."""
        roots = [root for tree in self._roots if tree and (root := self.root_of(tree)) is not None]
        return sum([each.total.get(resource, 0) for each in roots if each.total and not each.ignores_default_tree])

    def root_of(self, tree: str) -> QuotaSpec | None:
        """Returns the quota that says what the tree has, the first by name."""
        found = self._trees_roots.get(tree)
        return None if found is None else self._specs.get(found)

    def levels(self, quota: Quota, resource: str) -> list[Level]:
        """Says how the quota comes by its runtime, from its tree's root down."""
        found: list[Level] = []
        for each in quota.upward():
            if each.parent is None or each.problem:
                break
            total = self.runtime(each.parent, resource) or 0
            division = each.parent.divisions.get(resource) or Division(self.rules.scales_minimum)
            share = division.share(each.name, total)
            claim = division.claim(each.name)
            found.append(Level(each.name, each.parent.name, claim, division.summary(total), share))
        return found[::-1]

    # the trees

    def _changed(self, is_stale: bool = False) -> None:
        self.version += 1
        self._is_stale |= is_stale

    def _built(self) -> dict[str, Quota]:
        if self._is_stale:
            self._is_stale = False
            self._build()
        return self._quotas

    def _build(self) -> None:
        missing = {name: QuotaSpec(name, maximum=self.rules.maximum.get(name, {})) for name in OUTSIDE}
        self._quotas = {name: Quota(spec) for name, spec in {**missing, **self._specs}.items() if name != names.ROOT}
        trees = {quota.spec.tree for quota in self._quotas.values()}
        self._roots = {tree: Quota(QuotaSpec(names.ROOT, tree=tree)) for tree in sorted({"", *trees})}
        self._trees_roots: dict[str, str] = {}
        for name, spec in sorted(self._specs.items()):
            if spec.tree and spec.total is not None:
                self._trees_roots.setdefault(spec.tree, name)
        for quota in self._quotas.values():
            quota.problem = self._problem(quota)
            if not quota.problem and not quota.is_outside:
                parent = quota.spec.parent
                quota.parent = self._roots[quota.spec.tree] if parent == names.ROOT else self._quotas[parent]
                quota.parent.children[quota.name] = quota
        for root in self._roots.values():
            for quota in tuple(root.children.values()):
                self._fill(quota)
        for quota in self._quotas.values():
            if quota.parent is None:
                self._fill(quota)

    def _limit(self, quota: Quota, spec: QuotaSpec) -> None:
        """The quota has other limits, in the same place."""
        resources = dict.fromkeys(quota.resources())
        quota.spec = spec
        for resource in dict.fromkeys((*resources, *quota.resources())):
            if self.rules.guarantees_usage:
                self._rise_in_use(quota, resource, 0)
            self._rise(quota, resource, 0, is_first=True)

    def _problem(self, quota: Quota) -> str:
        """Returns why the quota is in no tree; "" if it is."""
        seen, each = {quota.name}, quota.spec
        while each.parent != names.ROOT and not quota.is_outside:
            of = "its parent" if each is quota.spec else f"{each.name}, above it, has a parent that"
            parent = self._quotas.get(each.parent)
            if parent is None or parent.is_outside:
                return f"{of} {each.parent} {'is no parent' if parent else 'does not exist'}"
            if parent.spec.tree != each.tree:
                return f"{of} {each.parent} is in tree {parent.spec.tree!r} and not in {each.tree!r}"
            if parent.name in seen:
                return f"{of} {each.parent} is below it"
            seen.add(parent.name)
            each = parent.spec
        return ""

    def _fill(self, quota: Quota) -> None:
        """Counts what its pods and its children come to, of a quota that has counted nothing yet."""
        own = self._own.get(quota.name, Counted())
        for each in quota.upward():
            for kind in Counted.__slots__:
                _add(getattr(each.counted, kind), getattr(own, kind))
        for child in quota.children.values():
            self._fill(child)
        for resource in dict.fromkeys((*quota.resources(), *own.request)):
            self._rise(quota, resource, own.request.get(resource, 0), is_first=True)
        if self.rules.guarantees_usage:
            for resource in dict.fromkeys((*quota.resources(), *own.used)):
                self._rise_in_use(quota, resource, own.used.get(resource, 0))

    def _rise(self, quota: Quota, resource: str, change: int, is_first: bool = False) -> None:
        """The quota's children and pods request so much more; counts that as far up as it makes a difference."""
        for each in quota.upward():
            spec, child_request = each.spec, each.child_request.get(resource, 0) + change
            each.child_request[resource] = child_request
            request = child_request if spec.lends else max(child_request, spec.minimum.get(resource, 0))
            limited, before = min(request, spec.maximum.get(resource, request)), each.limited.get(resource, 0)
            each.request[resource], each.limited[resource] = request, limited
            if (limited == before and not is_first) or each.parent is None:
                return
            self._claim(each, resource)
            change, is_first = limited - before, False

    def _rise_in_use(self, quota: Quota, resource: str, change: int) -> None:
        for each in quota.upward():
            allocated, before = each.allocated.get(resource, 0) + change, each.guaranteed.get(resource, 0)
            guaranteed = max(allocated, each.spec.minimum.get(resource, 0))
            each.allocated[resource], each.guaranteed[resource] = allocated, guaranteed
            if guaranteed == before or each.parent is None:
                return
            self._claim(each, resource)
            change = guaranteed - before

    def _claim(self, quota: Quota, resource: str) -> None:
        assert quota.parent is not None
        division = quota.parent.divisions.get(resource)
        if division is None:
            division = quota.parent.divisions[resource] = Division(self.rules.scales_minimum)
        spec, minimum = quota.spec, quota.spec.minimum.get(resource, 0)
        limited, guarantee = quota.limited.get(resource, 0), quota.guaranteed.get(resource, 0)
        if not minimum and not limited and not guarantee:
            division.remove(quota.name)
        else:
            weight = spec.weight.get(resource, 0)
            division.put(quota.name, Claim(minimum, limited, weight, spec.lends, guarantee))


def _place(spec: QuotaSpec) -> tuple[object, ...]:
    """What decides which tree looks how."""
    return spec.parent, spec.tree, spec.total, spec.ignores_default_tree


def _add(counts: _Counts, amounts: Mapping[str, int], sign: int = 1) -> None:
    """What comes to nothing is left out, so that equal histories leave equal counts."""
    for resource, amount in amounts.items():
        counts[resource] = counts.get(resource, 0) + sign * amount
        if not counts[resource]:
            del counts[resource]
