from __future__ import annotations

import logging

import pytest

from runtimeproxy.audit import MAX_VALUE_CHARS, AuditLog
from runtimeproxy.hooks.observe import Audit


@pytest.fixture
def audit() -> Audit:
    return AuditLog(logging.getLogger("koord.audit"))


def line(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = caplog.records
    return record.getMessage()


@pytest.mark.parametrize(
    "field",
    ["envs[TOKEN]", "envs", "annotations[example.com/token]", "annotations[]", "annotations", "labels[app]"],
)
def test_what_must_not_be_shown_is_not(caplog: pytest.LogCaptureFixture, audit: Audit, field: str) -> None:
    with caplog.at_level(logging.INFO, "koord.audit"):
        audit.edited("pod a/b", field, "before-secret", "after-secret", "x.json")
    assert "secret" not in line(caplog)
    assert field.partition("[")[0] in line(caplog)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("container a/b/c", "cpu_shares", "1024", "2", "koord-qosd.json"),
         'edit object="container a/b/c" field=cpu_shares before=1024 after=2 who=koord-qosd.json'),
        (("pod a/b", "annotations[koordinator.sh/qosClass]", "", "BE", "x.json"),
         'edit object="pod a/b" field=annotations[koordinator.sh/qosClass] before="" after=BE who=x.json'),
        (("pod a/b", "cgroup_parent", "/kubepods", "", "x.json"),
         'edit object="pod a/b" field=cgroup_parent before=/kubepods after="" who=x.json'),
    ],
)
def test_lines(
    caplog: pytest.LogCaptureFixture, audit: Audit, arguments: tuple[str, str, str, str, str], expected: str
) -> None:
    with caplog.at_level(logging.INFO, "koord.audit"):
        audit.edited(*arguments)
    assert line(caplog) == expected


def test_a_line_is_one_line_and_bounded(caplog: pytest.LogCaptureFixture, audit: Audit) -> None:
    with caplog.at_level(logging.INFO, "koord.audit"):
        audit.edited('pod a\nedit object="x" who=forged', "cpuset_cpus", "\x1b[31m", "9" * 10_000, "x.json")
    text = line(caplog)
    assert text.isprintable()
    assert '"pod a\\nedit object=\\"x\\" who=forged"' in text
    assert "9" * MAX_VALUE_CHARS in text
    assert len(text) < 2 * MAX_VALUE_CHARS
