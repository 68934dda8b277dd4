"""docs/runtime-proxy.md against the tables of the code: flags, fields of held calls, hooks, metrics."""

from __future__ import annotations

import re

import pytest

from koord.service.metrics import Family, MetricType, families
from runtimeproxy.cri.fields import TABLES
from runtimeproxy.cri.methods import METHODS
from runtimeproxy.hooks.edits import RESOURCE_FIELDS
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.metrics import PREFIX, Metrics
from runtimeproxy.options import PROGRAM
from tests.support import docpages

PAGE = docpages.page("runtime-proxy.md")
FAMILIES = families(Metrics)
FLAGS = PROGRAM.table
FLAG_ROWS = docpages.flags(PAGE)
WITHOUT_FIELD = {"config", "help", "version"}
OF_OTHER_PROGRAMS = {"unix-socket", "kill-whom", "offline"}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_has_a_row_with_its_default(flag: str) -> None:
    default, live, _ = FLAG_ROWS[flag]
    assert default == (f"`{FLAGS[flag].default_text}`" if FLAGS[flag].default_text else "none")
    assert (live == "yes") == FLAGS[flag].live


def test_no_other_flag_is_mentioned() -> None:
    assert docpages.mentioned_flags(PAGE) - OF_OTHER_PROGRAMS == FLAGS.keys() | WITHOUT_FIELD | {"flag"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_metric_has_a_row_with_its_labels(family: Family) -> None:
    exported = PREFIX + family.name + ("_total" if family.kind is MetricType.COUNTER else "")
    assert f"\n| `{exported}` | {', '.join(f'`{label}`' for label in family.labels)}".rstrip() + " | " in PAGE


def test_no_other_metric_is_mentioned() -> None:
    assert docpages.mentioned_metrics(PAGE, PREFIX) == {PREFIX + family.name for family in FAMILIES}


@pytest.mark.parametrize("method", METHODS)
def test_every_held_call_has_a_row_with_its_hooks_and_fields(method: str) -> None:
    pre, post, editable = docpages.rows(PAGE, method)[method]
    stages = METHODS[method]
    assert docpages.code(pre) == {stage.value for stage in stages.pre}
    assert docpages.code(post) == ({stages.post.value} if stages.post else set())
    owned = set(TABLES.get(method, {}))
    assert docpages.code(editable) == owned - set(RESOURCE_FIELDS)
    assert ("resources" in editable) == bool(owned & set(RESOURCE_FIELDS))


def test_every_resource_is_listed() -> None:
    listed = re.search(r"^The resources are (.*?) \(cgroup v2 files", PAGE, re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert docpages.code(listed[1]) == set(RESOURCE_FIELDS)


def test_hooks_of_the_page_exist() -> None:
    assert set(re.findall(r"`((?:Pre|Post)\w+)`", PAGE)) - {"PreCreateContainerHook"} == STAGES
