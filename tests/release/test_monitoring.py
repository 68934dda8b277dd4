"""The alerts and the dashboard name metrics that there are, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from koord.service.metrics import MetricType, families
from koord_manager.metrics import PREFIX as MANAGER
from koord_manager.metrics import Metrics as ManagerMetrics
from qosd import gauges
from qosd.metrics import PREFIX as QOSD
from qosd.metrics import Metrics as QosdMetrics
from qosd.sense.exposition import LABELS
from qosd.sense.table import METRICS
from release.pages.metrics import measured_name, name_of
from runtimeproxy.metrics import PREFIX as PROXY
from runtimeproxy.metrics import Metrics as ProxyMetrics
from tests.support import docpages

MONITORING = docpages.ROOT / "manifests" / "monitoring"
OF_PROMETHEUS = {"instance", "le"}


def known() -> dict[str, set[str]]:
    """By every name that a series may have, its labels."""
    found = {measured_name(each): set(LABELS[each.scope]) for each in METRICS}
    for prefix, declared in (
        (PROXY, families(ProxyMetrics)),
        (QOSD, (*families(QosdMetrics), *gauges.FAMILIES)),
        (MANAGER, families(ManagerMetrics)),
    ):
        for family in declared:
            suffixes = ("_bucket", "_sum", "_count") if family.kind is MetricType.HISTOGRAM else ("",)
            found |= {name_of(prefix, family) + suffix: set(family.labels) for suffix in suffixes}
    return found


KNOWN = known()


def alerts() -> Iterator[tuple[str, str, str]]:
    """Name, expression and text of each."""
    document: Any = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


def panels() -> Iterator[tuple[str, str, str]]:
    """Title, expression and legend of each line."""
    document: Any = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in document["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


@pytest.mark.parametrize(("name", "expression", "text"), [*alerts(), *panels()])
def test_it_names_what_there_is(name: str, expression: str, text: str) -> None:
    series = re.findall(r"\bkoord_\w+", expression)
    assert series and set(series) <= KNOWN.keys()
    labels = set.union(*(KNOWN[each] for each in series)) | OF_PROMETHEUS
    grouped = {label.strip() for each in re.findall(r"by \(([^)]*)\)", expression) for label in each.split(",")}
    matched = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression))
    shown = set(re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", text))
    assert grouped | matched | {label for pair in shown for label in pair if label} <= labels
    assert expression.count("(") == expression.count(")")


def test_every_alert_has_its_paragraph_for_operators() -> None:
    page = docpages.page("troubleshooting.md")
    assert [name for name, _, _ in alerts() if f"`{name}`" not in page] == []
