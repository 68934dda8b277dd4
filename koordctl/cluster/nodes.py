"""The nodes of a cluster as rows: size, use and offer, and whether latency-sensitive pods are protected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from koord.model import core, documents
from koord.model.core import Node
from koord.model.nodemetric import NodeMetric
from koord.overcommit import amounts
from koord.overcommit.amounts import BATCH, ZERO
from koord.overcommit.strategy import required
from koord.sloconfig.loading import CONFIG_MAP_NAME
from koordctl.cluster.state import ClusterState
from koordctl.fields import Listing, ListingField, ListingLayout, Visibility
from koordctl.values import NONE, age

WITHOUT_POLICY = (
    "koord-manager goes by the last that it has read; if it has read none since it started, Nodes stay as they are"
)
_LATE_REPORTS = 3
_REPORT_INTERVAL_S = 60.0  # unless the NodeMetric says otherwise


class Protection(StrEnum):
    """Whether latency-sensitive pods of a node are protected from best-effort ones."""

    ON = "on"
    OFF = "off"
    STALE = "stale"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ClusterNodeRow:
    """CPU in thousandths, memory in bytes; None: not known, or absent."""

    name: str
    is_ready: bool
    cpu_milli: int | None
    cpu_used_milli: int | None
    memory_bytes: int | None
    memory_used_bytes: int | None
    batch_cpu_milli: int | None
    batch_cpu_held_milli: int
    batch_memory_bytes: int | None
    batch_memory_held_bytes: int
    report_age_s: float | None
    protection: Protection
    remark: str


def page(state: ClusterState, layout: ListingLayout[ClusterNodeRow]) -> str:
    """Renders the nodes, without a final line break."""
    table = layout.table(rows(state))
    return f"{table}\n{state.absence_of_policy}: {WITHOUT_POLICY}" if state.absence_of_policy else table


def rows(state: ClusterState) -> list[ClusterNodeRow]:
    """Returns the nodes by name."""
    return [_row(state, state.nodes[name]) for name in sorted(state.nodes)]


def _row(state: ClusterState, node: Node) -> ClusterNodeRow:
    name = node.metadata.name
    metric = state.metrics.get(name)
    capacity, batch = amounts.read(node.status.capacity), amounts.read(node.status.allocatable, BATCH)
    report = None if metric is None else metric.status.node_metric
    used = amounts.read({} if report is None else report.node_usage.resources)
    held, age_s = state.held(name), report_age_s(metric, state.now_s)
    protection = _protection(state, name, metric, age_s)
    return ClusterNodeRow(
        name=name,
        is_ready=is_ready(node),
        cpu_milli=capacity.cpu_milli,
        cpu_used_milli=used.cpu_milli,
        memory_bytes=capacity.memory_bytes,
        memory_used_bytes=used.memory_bytes,
        batch_cpu_milli=batch.cpu_milli,
        batch_cpu_held_milli=held.cpu_milli,
        batch_memory_bytes=batch.memory_bytes,
        batch_memory_held_bytes=held.memory_bytes,
        report_age_s=age_s,
        protection=protection,
        remark="; ".join(_remarks(state, node, protection)),
    )


def is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


def report_age_s(metric: NodeMetric | None, now_s: float) -> float | None:
    """Returns how old the report is, 0 if the node's clock is ahead; None without a report."""
    written_s = None if metric is None else core.unix_s(metric.status.update_time)
    return None if written_s is None else max(0.0, now_s - written_s)


def _protection(state: ClusterState, name: str, metric: NodeMetric | None, age_s: float | None) -> Protection:
    """Returns the protection; what NodeSLO says counts only where an agent reports."""
    if metric is None or age_s is None:
        return Protection.NONE
    policy = metric.spec.metric_collect_policy
    interval_s = (policy and policy.report_interval_seconds) or _REPORT_INTERVAL_S
    if age_s > _LATE_REPORTS * interval_s:
        return Protection.STALE
    is_on = documents.at(state.slos.get(name), "resourceUsedThresholdWithBE", "enable") is True
    return Protection.ON if is_on else Protection.OFF


def _remarks(state: ClusterState, node: Node, protection: Protection) -> Iterator[str]:
    if protection is Protection.NONE:
        yield "no agent reports"
    elif protection is Protection.STALE:
        yield "its agent reports no more"
    if why := absence_of_batch(state, node):
        yield why


def absence_of_batch(state: ClusterState, node: Node) -> str:
    """Says why the Node offers no batch resources, or none but what its pods hold; "" if it offers more."""
    shown = amounts.read(node.status.allocatable, BATCH)
    if shown.cpu_milli is not None:
        held = state.held(node.metadata.name)
        return _absence_beyond(state, node) if held != ZERO and shown.filled() == held else ""
    if state.absence_of_policy:
        return state.absence_of_policy
    strategy = state.strategy(node)
    if not strategy.enable:
        return f"{CONFIG_MAP_NAME} does not enable colocation for it"
    offer = state.offer(node)
    if offer.degraded:
        return f"no batch resources: {offer.degraded}"
    limit = required(strategy.degrade_time_minutes)
    return f"no batch resources, though its report (at most {limit} min old) has all: does koord-manager run?"


def _absence_beyond(state: ClusterState, node: Node) -> str:
    """Says why it offers no more than its pods hold; "" if there just is no more."""
    if state.absence_of_policy:
        return state.absence_of_policy
    if not state.strategy(node).enable:
        return "colocation is not enabled for it: it shows what running pods request, until they have ended"
    degraded = state.offer(node).degraded
    return f"no batch resources beyond what running pods request: {degraded}" if degraded else ""


def _cpu(milli: int | None) -> str:
    return NONE if milli is None else amounts.cpu_text(milli)


def _memory(amount_bytes: int | None) -> str:
    return NONE if amount_bytes is None else amounts.memory_text(amount_bytes)


NODES: Listing[ClusterNodeRow] = Listing(
    "nodes",
    (
        ListingField("name", "NODE"),
        ListingField("ready", "READY", value="is_ready"),
        ListingField("cpu_milli", "CPU", lambda row: _cpu(row.cpu_milli)),
        ListingField("cpu_used_milli", "CPU-USED", lambda row: _cpu(row.cpu_used_milli)),
        ListingField("memory_bytes", "MEMORY", lambda row: _memory(row.memory_bytes)),
        ListingField("memory_used_bytes", "MEMORY-USED", lambda row: _memory(row.memory_used_bytes)),
        ListingField("batch_cpu_milli", "BATCH-CPU", lambda row: _cpu(row.batch_cpu_milli)),
        ListingField("batch_cpu_held_milli", "CPU-HELD", lambda row: _cpu(row.batch_cpu_held_milli)),
        ListingField("batch_memory_bytes", "BATCH-MEMORY", lambda row: _memory(row.batch_memory_bytes)),
        ListingField("batch_memory_held_bytes", "MEMORY-HELD", lambda row: _memory(row.batch_memory_held_bytes)),
        ListingField(
            "report_age_s", "REPORT", lambda row: NONE if row.report_age_s is None else f"{age(row.report_age_s)} ago"
        ),
        ListingField("protection", "PROTECTION"),
        ListingField("remark", "REMARK", visibility=Visibility.FILLED),
    ),
    "The cluster has no nodes.",
)
