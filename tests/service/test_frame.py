"""Configuration, logging and signals."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
from pathlib import Path

import pytest

from koord.service import log, process
from koord.service.config import ConfigError, read_yaml


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


@pytest.mark.parametrize(("environ", "start"), [({}, "20"), ({"JOURNAL_STREAM": "8:1"}, "<4>koord.test: two\\nlines")])
def test_log_lines(environ: dict[str, str], start: str) -> None:
    root = logging.getLogger()
    before, stream = (root.level, root.handlers[:]), io.StringIO()
    try:
        log.set_up("debug", ("koord",), environ, stream)
        logging.getLogger("koord.test").warning("two\nlines")
        logging.getLogger("elsewhere").info("not shown")
    finally:
        root.handlers[:] = before[1]
        root.setLevel(before[0])
        logging.getLogger("koord").setLevel(logging.NOTSET)
    assert stream.getvalue().startswith(start)
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("journal", [True, False])
def test_lines_without_a_logger_look_like_a_loggers(journal: bool) -> None:
    stream = io.StringIO()
    log.InfoLines("koord.audit", journal, stream).write("one line")
    record = logging.LogRecord("koord.audit", logging.INFO, "", 0, "one line", None, None)
    expected = log.LineFormatter(journal).format(record) + "\n"
    begin = 0 if journal else len("2026-01-02T03:04:05.678Z")
    assert stream.getvalue()[begin:] == expected[begin:]
    assert len(stream.getvalue()) == len(expected)


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
