"""What each quota requests, uses and may use, and why: pages, by what is known now.

A quota costs some ten microseconds; all are looked through in slices, between which other work goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from koord.model.schedulerpages import QuotaAmounts, QuotaPage, QuotasPage
from koord.quota import words
from koord.quota.forest import OUTSIDE, Forest, Quota
from koord.quota.spec import text
from koord.scheduling.state import ClusterState

_SLICE = 50


async def quotas(state: ClusterState) -> QuotasPage:
    """Says what all come to."""
    forest, found = state.quotas.up_to_date(), list[QuotaPage]()
    for number, name in enumerate([each.name for each in forest] if forest is not None else []):
        page = quota(state, name, has_steps=False)
        if page is not None:
            found.append(page)
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    return QuotasPage(tuple(found))


def quota(state: ClusterState, name: str, has_steps: bool = True) -> QuotaPage | None:
    """Explains a quota; None: there is none of that name."""
    forest, found = state.quotas.up_to_date(), state.quotas.get(name)
    if forest is None or found is None:
        return None
    spec = found.spec
    return QuotaPage(
        name,
        spec.namespace,
        "" if found.is_outside else spec.parent,
        spec.tree,
        spec.lends,
        found.problem or state.quotas.problems.get((spec.namespace, name), ""),
        tuple(sorted(found.children)),
        len(state.quotas.placed_in(name)),
        tuple([_amounts(forest, found, each, has_steps) for each in sorted({*found.resources(), *found.counted.used})]),
    )


def _amounts(forest: Forest, quota: Quota, resource: str, has_steps: bool) -> QuotaAmounts:
    spec, used = quota.spec, quota.counted.used.get(resource, 0)
    is_limited = resource in spec.maximum
    runtime = forest.runtime(quota, resource) if is_limited else None
    return QuotaAmounts(
        resource,
        text(resource, spec.minimum.get(resource, 0)),
        text(resource, spec.maximum[resource]) if is_limited else "",
        text(resource, quota.request.get(resource, quota.counted.request.get(resource, 0))),
        text(resource, used),
        "" if runtime is None else text(resource, runtime),
        runtime is not None and used > runtime,
        tuple(_steps(forest, quota, resource)) if has_steps and is_limited and not quota.problem else (),
    )


def _steps(forest: Forest, quota: Quota, resource: str) -> Iterator[str]:
    if quota.is_outside:
        yield f"{quota.name} is in no tree, and may use its max"
        return
    total, tree = text(resource, forest.total(quota.spec.tree, resource)), quota.spec.tree
    if tree:
        root = forest.root_of(tree)
        said = f"as its root {root.name} says" if root is not None else "as no quota is its root"
        yield f"tree {tree}: {total}, {said}"
    else:
        parts = [f"{text(resource, forest.cluster(resource))} of all nodes"]
        for outside in OUTSIDE:
            found = forest.get(outside)
            used = 0 if found is None else found.counted.used.get(resource, 0)
            if used:
                parts.append(f"{text(resource, used)} that {outside} uses")
        if others := forest.in_other_trees(resource):
            parts.append(f"{text(resource, others)} of other trees")
        yield f"the tree: {total} = {' - '.join(parts)}"
    yield from words.lines(forest.levels(quota, resource), resource)
