"""An offer in words: each term of the formula with its figure, for ``koordctl explain node --overcommit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from koord.overcommit.amounts import BATCH, MID, ZERO, CPUMemory, cpu_text, memory_text
from koord.overcommit.demand import Held
from koord.overcommit.offer import MidTerms, Overcommit, Terms
from koord.overcommit.strategy import CalculatePolicy


class _Resource(NamedTuple):
    """One of the two columns of all amounts."""

    pick: Callable[[CPUMemory], int]
    unit: Callable[[int], str]

    def text(self, amount: CPUMemory) -> str:
        return self.unit(self.pick(amount))


_CPU = _Resource(lambda amount: amount.cpu_milli, cpu_text)
_MEMORY = _Resource(lambda amount: amount.memory_bytes, memory_text)
_PODS = {
    CalculatePolicy.USAGE: "used by pods",
    CalculatePolicy.REQUEST: "requested by pods",
    CalculatePolicy.MAX_USAGE_REQUEST: "used or requested by pods",
}


def lines(offer: Overcommit) -> list[str]:
    """Returns the lines of the explanation; those that belong to a line above are indented."""
    return [*_body(offer), *(f"problem: {problem}" for problem in offer.problems)]


def _body(offer: Overcommit) -> Iterator[str]:
    terms, mid_terms, batch, mid = offer.terms, offer.mid_terms, offer.batch, offer.mid
    if terms is None or mid_terms is None or batch is None or mid is None:
        yield from _degraded(offer)
        return
    if offer.age_s is not None:
        yield f"by a report that is {offer.age_s:.0f} s old; pods are all that are not koord-batch"
    yield from _batch(BATCH.cpu, _CPU, terms, offer)
    yield from _batch(BATCH.memory, _MEMORY, terms, offer)
    yield from _mid(MID.cpu, _CPU, mid_terms, mid, offer)
    yield from _mid(MID.memory, _MEMORY, mid_terms, mid, offer)


def _degraded(offer: Overcommit) -> Iterator[str]:
    if offer.held == Held():
        yield f"no batch and no mid resources: {offer.degraded}"
        return
    yield f"no batch and no mid resources beyond what running pods request: {offer.degraded}"
    for names, held in ((BATCH, offer.held.batch), (MID, offer.held.mid)):
        if held != ZERO:
            yield f"{names.cpu} {_CPU.text(held)}, {names.memory} {_MEMORY.text(held)}"


def _held(of: _Resource, held: CPUMemory, left: CPUMemory) -> Iterator[str]:
    """Yields a line wherever pods run that request something: it may be what the node shows."""
    if of.pick(held):
        more = ": more than that" if of.pick(held) > of.pick(left) else ""
        yield f"  at least {of.text(held)}, which running pods request{more}"


def _batch(name: str, of: _Resource, terms: Terms, offer: Overcommit) -> Iterator[str]:
    policy = terms.cpu_policy if of is _CPU else terms.memory_policy
    left, published = offer.original_batch - offer.third_party, offer.published_batch or ZERO
    yield f"{name} {of.text(published)}"
    yield f"  policy {policy}: {_formula(of, terms, policy)}"
    if policy is not CalculatePolicy.REQUEST:
        measured = f"measured {of.text(terms.system_usage)} + host applications {of.text(terms.host_applications)}"
        yield f"  used by the system {of.text(terms.system_used)} = max({measured}, reserved)"
    reserved = f"kubelet {of.text(terms.kubelet_reserved)}, annotation {of.text(terms.annotation_reserved)}"
    yield f"  reserved {of.text(terms.node_reserved)} = max({reserved})"
    limit = terms.cpu_limit_milli if of is _CPU else terms.memory_limit_bytes
    if limit is not None:
        yield f"  at most {of.unit(limit)}"
    if of is _CPU and offer.normalization_percent != 100:
        ratio = offer.normalization_percent / 100
        yield f"  × {ratio:.2f} of CPU normalization = {of.text(offer.original_batch)}"
    if of.pick(offer.third_party):
        yield f"  - {of.text(offer.third_party)} that other schedulers have given away"
    yield from _held(of, offer.held.batch, left)


def _formula(of: _Resource, terms: Terms, policy: CalculatePolicy) -> str:
    used = {
        CalculatePolicy.USAGE: terms.high_priority_used,
        CalculatePolicy.REQUEST: terms.high_priority_request,
        CalculatePolicy.MAX_USAGE_REQUEST: terms.high_priority_max,
    }[policy]
    is_by_request = policy is CalculatePolicy.REQUEST
    taken = [
        ("margin", terms.margin),
        ("reserved", terms.node_reserved) if is_by_request else ("used by the system", terms.system_used),
        (_PODS[policy], used),
        *([] if is_by_request else [("used by pods that the API does not list", terms.dangling)]),
    ]
    parts = "".join(f" - {label} {of.text(amount)}" for label, amount in taken)
    return f"total {of.text(terms.total)}{parts} = {of.text(terms.left())} (at least 0)"


def _mid(name: str, of: _Resource, terms: MidTerms, mid: CPUMemory, offer: Overcommit) -> Iterator[str]:
    yield f"{name} {of.text(offer.published_mid or ZERO)}"
    limit = f"at most {of.text(terms.limit)}"
    if terms.static is not None:
        yield f"  a fixed share of the capacity {of.text(terms.static)}, {limit}"
    else:
        least = f"min(reclaimable {of.text(terms.reclaimable)}, unused {of.text(terms.unused)})"
        share = f"{of.text(terms.unallocated_share)} of the unallocated {of.text(terms.unallocated)}"
        yield f"  {least} + {share}, {limit}"
    yield from _held(of, offer.held.mid, mid)
