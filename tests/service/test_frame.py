"""Configuration, logging and signals."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koord.service import log, process
from koord.service.config import ConfigError, read_yaml
from koord.service.lines import LineWriter


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: [", "is not YAML"),
        (b"- 1", "must be a mapping"),
        (b"text", "must be a mapping"),
        (b"\xff", "is not UTF-8 at byte 0"),
        (b"[" * 1000, "is nested too deeply"),
    ],
)
def test_bad_yaml_names_the_file(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=why) as caught:
        read_yaml(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1")
    (tmp_path / "empty.yaml").write_text("")
    assert read_yaml(tmp_path / "x.yaml") == {"a": 1}
    assert read_yaml(tmp_path / "empty.yaml") == {}
    with pytest.raises(FileNotFoundError):
        read_yaml(tmp_path / "none.yaml")


@contextmanager
def logging_to(fd: int, environ: dict[str, str]) -> Iterator[LineWriter]:
    root, stderr = logging.getLogger(), sys.stderr
    level, handlers = root.level, root.handlers[:]
    try:
        yield log.set_up("debug", ("koord",), environ, fd)
    finally:
        sys.stderr = stderr
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("koord").setLevel(logging.NOTSET)


@pytest.mark.parametrize(("environ", "start"), [({}, "20"), ({"JOURNAL_STREAM": "8:1"}, "<4>koord.test: two\\nlines")])
def test_log_lines(environ: dict[str, str], start: str) -> None:
    reader, fd = os.pipe()
    with open(reader) as stream, logging_to(fd, environ) as lines:
        logging.getLogger("koord.test").warning("two\nlines")
        logging.getLogger("elsewhere").info("not shown")
        print("what Python prints itself", file=sys.stderr)
        assert lines.flush()
        os.close(fd)
        first, second = stream.read().splitlines()
    assert first.startswith(start)
    assert second == "what Python prints itself"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ünïcödé and 漢字", "plain, ünïcödé and 漢字"),
        ("a\nb\r<2>forged", "a\\nb\\r<2>forged"),
        ("\x1b[2J\x9b\x00\x7f", "\\x1b[2J\\x9b\\x00\\x7f"),
        ("\u2028\u2029\x85\v\f", "\\u2028\\u2029\\x85\\x0b\\x0c"),
        ("\u202eright to left\u2066", "\\u202eright to left\\u2066"),
        ("lone \udc80", "lone \\udc80"),
    ],
)
def test_a_message_cannot_forge_a_line_or_move_the_cursor(text: str, expected: str) -> None:
    record = logging.LogRecord("koord.test", logging.WARNING, "", 0, "server said %s", (text,), None)
    assert log.LineFormatter(journal=True).format(record) == f"<4>koord.test: server said {expected}"


@pytest.mark.parametrize("journal", [True, False])
def test_lines_without_a_logger_look_like_a_loggers(journal: bool) -> None:
    put: list[str] = []
    log.InfoLines("koord.audit", journal, put.append).write("one line")
    record = logging.LogRecord("koord.audit", logging.INFO, "", 0, "one line", None, None)
    expected = log.LineFormatter(journal).format(record)
    begin = 0 if journal else len("2026-01-02T03:04:05.678Z")
    assert put[0][begin:] == expected[begin:]
    assert len(put[0]) == len(expected)


@pytest.mark.parametrize(("level", "priority"), [(50, 2), (40, 3), (30, 4), (20, 6), (10, 7), (5, 7)])
def test_syslog_priorities(level: int, priority: int) -> None:
    assert log.syslog_priority(level) == priority


async def test_signals_end_and_reload() -> None:
    reloads: list[int] = []
    with process.signals(lambda: reloads.append(1)) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 5)
    assert reloads == [1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
