"""How many lines come, and what they say of those that did not."""

from __future__ import annotations

import logging

import pytest

from koord.service.loglimit import LineLimit, limit


def test_lines_beyond_the_most_are_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    logger = logging.getLogger("tests.loglimit")
    logger.addFilter(LineLimit(2, 60, lambda: now_s))
    for at_s in (0, 1, 2, 59, 60, 61, 62, 500):
        now_s = at_s
        logger.warning("at %d", at_s)
    assert [record.getMessage() for record in caplog.records] == [
        "at 0",
        "at 1",
        "at 60 (2 lines were left out)",
        "at 61",
        "at 500 (1 lines were left out)",
    ]


def test_a_logger_is_limited_once() -> None:
    limit("tests.once", "tests.once")
    limit("tests.once")
    assert len(logging.getLogger("tests.once").filters) == 1
