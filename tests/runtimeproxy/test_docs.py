"""docs/runtime-proxy.md against the tables of the code: flags, fields of held calls, hooks, metrics."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from runtimeproxy.cri.fields import TABLES
from runtimeproxy.cri.methods import METHODS
from runtimeproxy.hooks.edits import RESOURCE_FIELDS
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.metrics import METRICS, PREFIX, Declared, Kind
from runtimeproxy.options import Options

PAGE = (Path(__file__).parents[2] / "docs" / "runtime-proxy.md").read_text()
FLAGS = {entry.metadata["flag"]: entry.metadata for entry in fields(Options)}
FLAG_ROWS = {match[1]: match for match in re.finditer(r"^\| `--([a-z-]+)` \| (\S+) \| (yes)? ?\| ", PAGE, re.MULTILINE)}
WITHOUT_FIELD = {"config", "help", "version"}
OF_OTHER_PROGRAMS = {"unix-socket", "kill-whom", "offline"}


def cells(method: str) -> list[str]:
    """The table row of a CRI call."""
    row = re.search(rf"^\| `{method}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None
    return row[1].split("|")


def named(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_has_a_row_with_its_default(flag: str) -> None:
    _, default, live = FLAG_ROWS[flag].groups()
    assert default == (f"`{FLAGS[flag]['shown']}`" if FLAGS[flag]["shown"] else "none")
    assert (live == "yes") == FLAGS[flag]["live"]


def test_no_other_flag_is_mentioned() -> None:
    assert set(re.findall(r"--([a-z][a-z-]+)", PAGE)) - OF_OTHER_PROGRAMS == FLAGS.keys() | WITHOUT_FIELD | {"flag"}


@pytest.mark.parametrize("declared", METRICS, ids=lambda declared: declared.name)
def test_every_metric_has_a_row_with_its_labels(declared: Declared) -> None:
    exported = PREFIX + declared.name + ("_total" if declared.kind is Kind.COUNTER else "")
    assert f"\n| `{exported}` | {', '.join(f'`{label}`' for label in declared.labels)}".rstrip() + " | " in PAGE


def test_no_other_metric_is_mentioned() -> None:
    known = {PREFIX + declared.name for declared in METRICS}
    assert {name.removesuffix("_total") for name in re.findall(rf"\b{PREFIX}\w+", PAGE)} == known


@pytest.mark.parametrize("method", METHODS)
def test_every_held_call_has_a_row_with_its_hooks_and_fields(method: str) -> None:
    pre, post, editable = cells(method)
    stages = METHODS[method]
    assert named(pre) == ({stages.pre.value} if stages.pre else set())
    assert named(post) == ({stages.post.value} if stages.post else set())
    owned = set(TABLES.get(method, {}))
    assert named(editable) == owned - set(RESOURCE_FIELDS)
    assert ("resources" in editable) == bool(owned & set(RESOURCE_FIELDS))


def test_every_resource_is_listed() -> None:
    listed = re.search(r"^The resources are (.*?) \(cgroup v2 files", PAGE, re.MULTILINE | re.DOTALL)
    assert listed is not None
    assert named(listed[1]) == set(RESOURCE_FIELDS)


def test_hooks_of_the_page_exist() -> None:
    assert set(re.findall(r"`((?:Pre|Post)\w+)`", PAGE)) - {"PreCreateContainerHook"} == STAGES
