"""A log that nobody reads: what is queued, what is dropped, what is said of it, and that nobody waits."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fcntl import F_GETFL, fcntl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.service.lines import MAX_LINE_BYTES, LineWriter, error_stream

PATIENCE_S = 20.0  # of the test, not a promise
LINE = "x" * 1000


def notice(missing: int) -> str:
    return f"missing {missing}"


@dataclass
class Log:
    """A writer, and the end of its pipe or socket that a log reader would read."""

    writer: LineWriter
    reader: int
    fd: int
    text: bytes = b""
    unread_bytes: int = 0  # before the first line

    def stop_reading(self) -> None:
        """From here on nothing can be written: the pipe, or the socket's buffer, is full."""
        os.set_blocking(self.fd, False)
        with suppress(BlockingIOError):
            while True:
                self.unread_bytes += os.write(self.fd, b"." * 1000)
        os.set_blocking(self.fd, True)

    def fill(self) -> int:
        """Stop reading and put numbered lines until one is dropped; how many were put."""
        self.stop_reading()
        for count in itertools.count():
            self.writer.put(f"{count} {LINE}")
            if self.writer.dropped:
                return count + 1
        raise AssertionError

    def lines(self, wanted: int) -> list[str]:
        """Read on until there are that many lines."""
        while self.unread_bytes:
            self.unread_bytes -= len(os.read(self.reader, self.unread_bytes))
        while self.text.count(b"\n") < wanted:
            self.text += os.read(self.reader, 65536)
        return self.text.decode().splitlines()


@pytest.fixture(params=["pipe", "socket"])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    if request.param == "pipe":
        reader, fd = os.pipe()
    else:
        reader, fd = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    writer = LineWriter(fd, notice, limit_bytes=100_000)
    yield Log(writer, reader, fd)
    os.close(reader)  # whatever is still being written fails now
    assert writer.flush(PATIENCE_S)
    os.close(fd)


def test_lines_come_out_promptly_and_in_order(log: Log) -> None:
    for number in range(100):
        log.writer.put(str(number))
        assert log.lines(number + 1)[number] == str(number)  # read before the next is put
    assert log.writer.flush(PATIENCE_S)
    assert log.writer.dropped == 0


def test_a_reader_that_stops_costs_lines_and_nothing_else(log: Log) -> None:
    put = log.fill()
    for _ in range(9):
        log.writer.put(LINE)
    assert log.writer.dropped == 10
    assert not log.writer.flush(0.01)
    kept = [f"{number} {LINE}" for number in range(put - 1)]
    assert log.lines(put) == [*kept, "missing 10"]  # said without waiting for a further line
    log.writer.put("after")
    assert log.lines(put + 1) == [*kept, "missing 10", "after"]


def test_the_notice_stands_where_lines_are_missing(log: Log) -> None:
    put = log.fill()
    log.lines(put // 2)  # the reader is slow rather than stopped: there may be room before the queue is empty
    log.writer.put("after")
    said = log.lines(put + 1)
    assert said.index("missing 1") == put - 1
    assert said[put] == "after"


def test_the_queue_is_bounded_in_bytes_and_in_empty_lines() -> None:
    reader, fd = os.pipe()
    writer = LineWriter(fd, notice, limit_bytes=64_000)
    for _ in range(100_000):
        writer.put("")
    assert 100_000 - writer.dropped <= 65_536 + 64_000 // 64  # the pipe's own room, and ours
    os.close(reader)
    writer.flush(PATIENCE_S)
    os.close(fd)


def test_a_long_line_is_cut_at_a_character(log: Log) -> None:
    log.writer.put("é" * MAX_LINE_BYTES)
    (line,) = log.lines(1)
    assert line == "é" * (MAX_LINE_BYTES // 2) + "…"


def test_a_reader_that_is_gone_is_counted_and_a_new_one_is_told() -> None:
    """The reader of a FIFO may come back; so may room on a disk."""
    reader, fd = os.pipe()
    os.close(reader)
    writer = LineWriter(fd, notice)
    for _ in range(3):
        writer.put("lost")
    assert writer.flush(PATIENCE_S)
    assert writer.dropped == 3
    fresh, replacement = os.pipe()
    os.dup2(replacement, fd)
    writer.put("after")
    assert writer.flush(PATIENCE_S)
    assert os.read(fresh, 1000) == b"missing 3\nafter\n"
    for each in (fresh, replacement, fd):
        os.close(each)


def test_the_shared_description_is_left_as_it_is(log: Log) -> None:
    """It may be another process's too: a shell's terminal, a predecessor's journal stream."""
    before = fcntl(log.fd, F_GETFL)
    log.fill()
    assert fcntl(log.fd, F_GETFL) == before


def test_a_description_that_somebody_made_non_blocking_loses_nothing(log: Log) -> None:
    put = log.fill()
    os.set_blocking(log.fd, False)
    assert log.lines(put)[-1] == "missing 1"
    assert log.writer.dropped == 1


def test_several_threads_put_whole_lines(log: Log) -> None:
    def put(name: str) -> None:
        for number in range(200):
            log.writer.put(f"{name}{number}")

    threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    said = log.lines(800)
    for thread in threads:
        thread.join()
    for name in "abcd":
        assert [line for line in said if line.startswith(name)] == [f"{name}{number}" for number in range(200)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))))
def test_what_python_prints_comes_out_whole(texts: list[str]) -> None:
    reader, fd = os.pipe()
    writer = LineWriter(fd, notice)
    stream = error_stream(writer)
    for text in texts:
        print(text, file=stream)
    assert writer.flush(PATIENCE_S)
    os.close(fd)
    with open(reader, encoding="utf-8", newline="\n") as said:
        expected = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
        assert said.read().split("\n")[:-1] == expected
