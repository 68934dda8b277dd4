"""What a node offers again of what its pods requested and do not use: batch and mid resources, and every term of it.

This is upstream's formula, of which each part stands in a module of its own: ``nodeamounts``, ``report``, ``demand``,
``batch`` and ``mid``. It differs where upstream sells something twice: free pods and mid requests count, so does a pod
without a measurement under ``maxUsageRequest``, and amplified units are divided before they are set off against real
ones. ``report`` has a second clock.

kubelet admits running pods again when it restarts, and ends those that the Node no longer offers room for. So the Node
shows at least what they hold (``held``), also while nothing is offered: then that is all, and nothing new fits.

Invariant: an offer is removed (None, not 0) exactly when ``degraded`` says why. It is never negative, and more use
never makes more of it. What cannot be read is a sentence in ``problems``, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from koord.model.annotations.decode import Bad
from koord.model.core import Node, Pod
from koord.model.nodemetric import NodeMetric
from koord.overcommit import batch, demand, mid, nodeamounts, report
from koord.overcommit.amounts import NOTHING, CPUMemory, shown
from koord.overcommit.batch import Terms, required
from koord.overcommit.demand import Held, PodDemand
from koord.overcommit.mid import MidTerms
from koord.overcommit.nodeamounts import NodeAmounts
from koord.overcommit.strategy import CalculatePolicy, ColocationStrategy

__all__ = ["CPUMemory", "Offer", "Terms", "offer", "offer_by_demands"]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    batch: CPUMemory | None = None
    """With the normalization of the node's CPUs; None: nothing may be offered."""
    mid: CPUMemory | None = None
    """None: nothing may be offered."""
    held: Held = Held()
    """What the Node shows at least, since its pods request it; nothing where the strategy does not cover them."""
    degraded: str = ""
    """Why both are None."""
    third_party: CPUMemory = NOTHING
    """What of ``batch`` other schedulers have given away."""
    terms: Terms | None = None
    mid_terms: MidTerms | None = None
    normalization_percent: int = 100
    age_s: float | None = None
    """Of the report."""
    problems: tuple[str, ...] = ()

    @property
    def published_batch(self) -> CPUMemory | None:
        """What is left of ``batch`` for Kubernetes, with what is held; None: to be removed from the node."""
        return shown(self.batch, self.held.batch, self.third_party)

    @property
    def published_mid(self) -> CPUMemory | None:
        return shown(self.mid, self.held.mid)

    @property
    def original_batch(self) -> CPUMemory:
        """What other schedulers go by (annotation ``originExtendedAllocatable``)."""
        return self.batch or NOTHING


def offer(
    node: Node,
    pods: Sequence[Pod],
    metric: NodeMetric | None,
    strategy: ColocationStrategy,
    now_s: float,
    metric_seen_s: float | None = None,
    normalization_ratio: float = 1.0,
) -> Offer:
    """``pods``: all that are bound to the node. ``strategy``: complete; raises ValueError if it is not.

    ``now_s``: by the manager's clock; ``metric_seen_s``: when that showed this ``updateTime`` first, None if nobody
    knows. ``normalization_ratio``: of the node's CPUs to nominal ones; two decimals count, and only above 1.
    """
    demands = (demand.of_pod(pod) for pod in pods)
    return offer_by_demands(node, demands, metric, strategy, now_s, metric_seen_s, normalization_ratio)


def offer_by_demands(
    node: Node,
    pods: Iterable[PodDemand],
    metric: NodeMetric | None,
    strategy: ColocationStrategy,
    now_s: float,
    metric_seen_s: float | None = None,
    normalization_ratio: float = 1.0,
) -> Offer:
    """``offer``, for who keeps what ``demand.of_pod`` makes of a pod."""
    problems: list[str] = []
    pods, by_pods = [*pods], list[str]()
    held = held_by(pods, strategy, by_pods.append)
    fresh = report.freshness(metric, 60 * required(strategy.degrade_time_minutes), now_s, metric_seen_s)
    if fresh.problem:
        problems.append(fresh.problem)
    amounts = nodeamounts.read(node, problems.append)
    figures = None if metric is None or fresh.degraded else report.figures(metric, problems.append)
    if metric is None or figures is None or amounts.total is None:
        reason = fresh.degraded or _lacking(amounts)
        return Offer(held=held, degraded=reason, age_s=fresh.age_s, problems=(*problems, *sorted(by_pods)))
    demands = demand.total(pods, metric.status.pods_metric, by_pods.append, amounts.amplification)
    _check_policy(strategy, problems.append)
    terms = batch.terms(amounts, amounts.total, figures, demands, strategy)
    mid_terms = mid.terms(amounts.total, terms.node_reserved, figures, demands, strategy)
    percent = _percent(normalization_ratio)
    return Offer(
        batch=terms.result().percent(percent, 100),
        mid=mid_terms.result(),
        held=held,
        third_party=amounts.third_party,
        terms=terms,
        mid_terms=mid_terms,
        normalization_percent=percent,
        age_s=fresh.age_s,
        problems=(*problems, *sorted(set(by_pods))),
    )


def held_by(pods: Iterable[PodDemand], strategy: ColocationStrategy, bad: Bad) -> Held:
    """What a node with ``pods`` shows at least, whether anything is offered on it or not."""
    return demand.held(pods, bad) if strategy.covers_running_pods else Held()


def _lacking(amounts: NodeAmounts) -> str:
    return "the node's capacity is not known" if amounts.total is None else "the NodeMetric lacks the node's figures"


def _check_policy(strategy: ColocationStrategy, bad: Bad) -> None:
    if strategy.cpu_calculate_policy is CalculatePolicy.REQUEST:
        bad("cpuCalculatePolicy: there is no 'request' for CPU, 'usage' applies")


def _percent(normalization_ratio: float) -> int:
    """Its two decimals are how the annotation says it."""
    return int(f"{normalization_ratio:.2f}".replace(".", "")) if normalization_ratio > 1 else 100
