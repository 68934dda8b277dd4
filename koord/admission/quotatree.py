"""The cluster's ElasticQuotas as admission judges by them, and what a change of one would break.

Names are unique in the whole cluster, since a parent is named without its namespace: of several objects of one name the
oldest counts, as for koord-scheduler, and no further one is let in.

Invariant: each sentence names a field of the object that is judged, its value, and what contradicts it. Pure: what is
judged changes nothing here. Source of the rules: Koordinator, pkg/webhook/elasticquota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from koord.model.problem import Problem
from koord.quota import names
from koord.quota.spec import QuotaSpec, name_for, text

Age = tuple[str, str]
"""When an object was made, and its namespace."""
PodsIn = Callable[[str, tuple[str, ...]], tuple[str, ...]]
"""From a quota and namespaces to some pods, of those that carry the quota's name or are in one of the namespaces."""
_SHOWN = 2
_PARENT, _IS_PARENT, _TREE = (
    f"metadata.labels[{key}]" for key in (names.LABEL_PARENT, names.LABEL_IS_PARENT, names.LABEL_TREE)
)


@dataclass(frozen=True, slots=True)
class QuotaTree:
    """``quotas``: by name. ``children``: names, by that of their parent. ``bound``: by namespace, who lists it."""

    quotas: Mapping[str, QuotaSpec] = field(default_factory=dict)
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)

    def children_of(self, name: str) -> list[QuotaSpec]:
        return [self.quotas[each] for each in self.children.get(name, ())]

    def name_for(self, labels: Mapping[str, str], namespace: str, is_default_used: bool = True) -> str:
        """Returns the quota that a pod is in: that of its label, else of its namespace; "" where there is none.

        ``is_default_used``: a pod that none is for is in that of all others, and a namespace may have one.
        """
        label = labels.get(names.LABEL_NAME)
        if not is_default_used:
            return label if label and label in self.quotas else ""
        return name_for(label, namespace, self.quotas, self.bound.get(namespace, names.DEFAULT))


NO_QUOTAS = QuotaTree()


def tree(specs: Iterable[tuple[Age, QuotaSpec]]) -> QuotaTree:
    """Returns the quotas as a tree; of several of one name the oldest."""
    quotas: dict[str, QuotaSpec] = {}
    for _, each in sorted(specs, key=lambda item: item[0]):
        quotas.setdefault(each.name, each)
    children: dict[str, list[str]] = {}
    bound: dict[str, str] = {}
    for name, each in sorted(quotas.items()):
        if name != names.ROOT:
            children.setdefault(each.parent, []).append(name)
        for namespace in each.namespaces:
            bound.setdefault(namespace, name)
    return QuotaTree(quotas, {parent: tuple(found) for parent, found in children.items()}, bound)


class Judged(NamedTuple):
    """A quota that is created, or changed from ``before``.

    ``is_forced``: its minimum may be more than its parent has. ``is_subset_enough``: it need not name each resource of
    the parent's maximum.
    """

    quota: QuotaSpec
    before: QuotaSpec | None = None
    is_forced: bool = False
    is_subset_enough: bool = False


def taken(quota: QuotaSpec, others: QuotaTree) -> Iterator[Problem]:
    """Yields what of the quota's name and namespaces is another's already."""
    same = others.quotas.get(quota.name)
    if same is not None and same.namespace != quota.namespace:
        yield Problem("metadata.name", f"{quota.name!r} is the name of an ElasticQuota in namespace {same.namespace}")
    for namespace in quota.namespaces:
        owner = others.bound.get(namespace, quota.name)
        if owner != quota.name:
            path = f"metadata.annotations[{names.ANNOTATION_NAMESPACES}]"
            yield Problem(path, f"{namespace!r} is listed by ElasticQuota {owner} already")


def broken(judged: Judged, others: QuotaTree, pods_in: PodsIn) -> Iterator[Problem]:
    """Yields what does not fit parent, children and pods."""
    quota = judged.quota
    if quota.name == names.ROOT:
        return
    children, parent = others.children_of(quota.name), others.quotas.get(quota.parent)
    yield from _changes(judged, children, pods_in)
    yield from _other_trees(quota, parent, children)
    if quota.parent == names.ROOT and not quota.is_parent:
        return
    if quota.parent != names.ROOT:
        why = _no_parent(quota, parent, others)
        if why:
            yield Problem(_PARENT, f"{quota.parent!r} {why}")
            return
    yield from _keys(judged, parent, children)
    if not judged.is_forced and quota.total is None:
        yield from _minima(quota, parent, others.children_of(quota.parent), children)


def _changes(judged: Judged, children: list[QuotaSpec], pods_in: PodsIn) -> Iterator[Problem]:
    quota, before = judged.quota, judged.before
    if before is None:
        return
    if before.is_parent and not quota.is_parent and children:
        yield Problem(_IS_PARENT, f'must stay "true": it is the parent of {some([each.name for each in children])}')
    if quota.is_parent and not before.is_parent:
        found = pods_in(quota.name, (quota.name, *quota.namespaces))
        if found:
            yield Problem(_IS_PARENT, f'cannot become "true": pods are in it: {some(found)}')
    if quota.tree != before.tree:
        yield Problem(_TREE, f"{quota.tree!r} cannot be instead of {before.tree!r}: it never changes")


def _other_trees(quota: QuotaSpec, parent: QuotaSpec | None, children: list[QuotaSpec]) -> Iterator[Problem]:
    if parent is not None and quota.parent != names.ROOT and parent.tree != quota.tree:
        yield Problem(_TREE, f"{quota.tree!r} is not that of the parent {parent.name}: {parent.tree!r}")
    for child in children:
        if child.tree != quota.tree:
            yield Problem(_TREE, f"{quota.tree!r} is not that of {child.name}, below it: {child.tree!r}")


def _no_parent(quota: QuotaSpec, parent: QuotaSpec | None, others: QuotaTree) -> str:
    """Returns why it cannot be the parent; "" if it can be."""
    if parent is None:
        return "does not exist"
    if not parent.is_parent or parent.name in (names.SYSTEM, names.DEFAULT):
        return f"is no parent: it lacks the label {names.LABEL_IS_PARENT}=true"
    above: QuotaSpec | None = parent
    seen: set[str] = set()
    while above is not None and above.name not in seen:
        if above.name == quota.name:
            return f"is {quota.name} itself" if parent.name == quota.name else f"is below {quota.name}"
        seen.add(above.name)
        above = others.quotas.get(above.parent)
    return ""


def _keys(judged: Judged, parent: QuotaSpec | None, children: list[QuotaSpec]) -> Iterator[Problem]:
    quota = judged.quota
    if parent is not None and quota.parent != names.ROOT:
        if _are_other_keys(quota, parent, judged.is_subset_enough):
            other = f"that of the parent {parent.name} {_list(parent.maximum)}"
            yield Problem("spec.max", f"names {_list(quota.maximum)}, and {other}")
        if added := _beyond(quota.minimum, parent.minimum):
            yield Problem("spec.min", f"names {_list(added)}, which that of the parent {parent.name} lacks")
    for child in children:
        if _are_other_keys(child, quota, judged.is_subset_enough):
            other = f"that of {child.name}, below it, {_list(child.maximum)}"
            yield Problem("spec.max", f"names {_list(quota.maximum)}, and {other}")
        if added := _beyond(child.minimum, quota.minimum):
            yield Problem("spec.min", f"lacks {_list(added)}, which that of {child.name}, below it, names")


def _are_other_keys(lower: QuotaSpec, upper: QuotaSpec, is_subset_enough: bool) -> bool:
    is_within = not _beyond(lower.maximum, upper.maximum)
    return not (is_within and (is_subset_enough or not _beyond(upper.maximum, lower.maximum)))


def _minima(
    quota: QuotaSpec, parent: QuotaSpec | None, siblings: list[QuotaSpec], children: list[QuotaSpec]
) -> Iterator[Problem]:
    if parent is not None and quota.parent != names.ROOT:
        others = [each for each in siblings if each.name != quota.name]
        for resource, most in sorted(parent.minimum.items()):
            own, theirs = quota.minimum.get(resource, 0), _sum(others, resource)
            if own and own + theirs > most:
                sums = (
                    f"{text(resource, own)} and {text(resource, theirs)} of the parent's other children are more than"
                )
                yield Problem(f"spec.min[{resource}]", f"{sums} spec.min of {parent.name}, {text(resource, most)}")
    for resource, own in sorted(quota.minimum.items()):
        below = _sum(children, resource)
        if below > own:
            least = f"{text(resource, own)} is less than those of its children, {text(resource, below)}"
            yield Problem(f"spec.min[{resource}]", least)


def _beyond(resources: Iterable[str], others: Iterable[str]) -> list[str]:
    """Returns the resources that the others lack."""
    return sorted(set(resources) - set(others))


def _sum(quotas: Iterable[QuotaSpec], resource: str) -> int:
    return sum(each.minimum.get(resource, 0) for each in quotas)


def _list(resources: Iterable[str]) -> str:
    return ", ".join(sorted(resources)) or "nothing"


def some(found: Iterable[str]) -> str:
    """Returns the first of them, and how many more there are."""
    shown = list(found)
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
