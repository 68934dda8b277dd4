"""The pages that are made of the code's tables are those that are committed, and have a row for everything."""

from __future__ import annotations

import pytest

from koord.model import slo
from koord.service.metrics import families
from qosd.koordlet.table import KOORDLET, PREFIX
from qosd.metrics import Metrics
from qosd.policy.slofields import CLASSES, MEANINGS, STRATEGY
from qosd.sense.table import METRICS
from release.pages import PAGES
from tests.support import docpages

NODE_SLO = docpages.page("node-slo.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_one_that_make_docs_writes(name: str) -> None:
    assert docpages.page(name) == PAGES[name], "make docs"


def test_every_metric_of_koordlet_has_a_row_and_what_it_names_is_ours() -> None:
    rows = docpages.rows(docpages.page("koordlet-metrics.md").replace("` †", "`"), rf"{PREFIX}\w+")
    assert list(rows) == [f"{PREFIX}{metric.name}" for metric in KOORDLET]
    ours = {metric.name for metric in METRICS} | {family.name for family in families(Metrics)}
    assert {name for metric in KOORDLET for name in metric.own} <= ours


def test_every_field_of_nodeslo_has_a_line_with_its_meaning() -> None:
    lines = NODE_SLO.splitlines()
    for meaning in MEANINGS.values():
        assert len([line for line in lines if f"| {meaning} |" in line]) >= 1
    paths = [leaf.path for leaf in slo.every_leaf()]
    of_one_class = [path for path in paths if not any(path.startswith(f"{STRATEGY}.{cls}.") for cls in CLASSES[1:])]
    assert len([line for line in lines if line.startswith("| `")]) == len(of_one_class)
