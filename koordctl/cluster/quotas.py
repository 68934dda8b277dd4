"""What koord-scheduler says of an ElasticQuota, as lines and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from koord.model.schedulerpages import QuotaPage
from koordctl.table import align
from koordctl.values import NONE

_HEADER = ["RESOURCE", "MIN", "MAX", "REQUEST", "USED", "RUNTIME"]


def lines(page: QuotaPage) -> Iterator[str]:
    where = f"{page.namespace}/{page.name}" if page.namespace else page.name
    above = f", below {page.parent}" if page.parent else ""
    tree = f", in tree {page.tree}" if page.tree else ""
    lends = "" if page.lends else ", lends nothing"
    pods = "1 pod of its own is" if page.pod_count == 1 else f"{page.pod_count} pods of its own are"
    yield f"{where}{above}{tree}{lends}: {pods} on nodes"
    if page.children:
        yield f"  its children: {', '.join(page.children)}"
    if page.problem:
        yield f"  problem: {page.problem}"
    rows = [
        [each.resource, each.minimum, each.maximum or NONE, each.request, each.used, each.runtime or NONE]
        for each in page.amounts
    ]
    yield from align(_HEADER, rows).splitlines()
    for each in page.amounts:
        if each.steps:
            over = ", and uses more" if each.is_overused else ""
            yield f"why it may use {each.runtime} {each.resource}{over}:"
            yield from (f"  {step}" for step in each.steps)


def document(page: QuotaPage) -> dict[str, Any]:
    """Returns it for programs."""
    found: dict[str, Any] = msgspec.to_builtins(page)
    return found
