from __future__ import annotations

import pytest

from runtimeproxy.audit import MAX_VALUE_CHARS, Audit, AuditLog


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def audit(lines: list[str]) -> Audit:
    return AuditLog(lines.append)


@pytest.mark.parametrize(
    "field",
    [
        "envs[TOKEN]",
        "envs",
        "annotations[example.com/token]",
        "annotations[]",
        "annotations",
        "labels[app]",
        "annotations[notkoordinator.sh/token]",
        "labels[x.com/koordinator.sh/token]",
        "annotations[koordinator.sh]",
    ],
)
def test_what_must_not_be_shown_is_not(lines: list[str], audit: Audit, field: str) -> None:
    audit.edited("pod a/b", field, "before-secret", "after-secret", "x.json")
    assert "secret" not in lines[0]
    assert field.partition("[")[0] in lines[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("container a/b/c", "cpu_shares", "1024", "2", "koord-qosd.json"),
            'edit object="container a/b/c" field=cpu_shares before=1024 after=2 who=koord-qosd.json',
        ),
        (
            ("pod a/b", "annotations[koordinator.sh/qosClass]", "", "BE", "x.json"),
            'edit object="pod a/b" field=annotations[koordinator.sh/qosClass] before="" after=BE who=x.json',
        ),
        (
            ("pod a/b", "cgroup_parent", "/kubepods", "", "x.json"),
            'edit object="pod a/b" field=cgroup_parent before=/kubepods after="" who=x.json',
        ),
    ],
)
def test_lines(lines: list[str], audit: Audit, arguments: tuple[str, str, str, str, str], expected: str) -> None:
    audit.edited(*arguments)
    assert lines == [expected]


def test_a_line_is_one_line_and_bounded(lines: list[str], audit: Audit) -> None:
    audit.edited('pod a\nedit object="x" who=forged', "cpuset_cpus", "\x1b[31m", "9" * 10_000, "x.json")
    (text,) = lines
    assert text.isprintable()
    assert '"pod a\\nedit object=\\"x\\" who=forged"' in text
    assert "9" * MAX_VALUE_CHARS in text
    assert len(text) < 2 * MAX_VALUE_CHARS
