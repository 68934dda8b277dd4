"""What the host's end of a guest's channel says of an agent that answers, is started anew, or is silent."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from integration.guest.channel import AgentGone, Channel, GuestHung

HELLO = b'{"hello": "boot-1"}\n'
PING_S = 0.2
REQUEST = {"argv": ["true"]}


class Agent:
    """The other end: says what a test lets it say."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def say(self, data: bytes) -> None:
        self._connection.sendall(data)

    def next(self) -> dict[str, Any]:
        return dict(json.loads(self._lines.readline()))

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def skip(self, words: bytes = b"") -> None:
        """No answer to the next request."""
        self.next()
        self.say(words)

    def answer_second(self) -> None:
        self.skip()
        self.answer()

    def answer(self) -> None:
        self.say(json.dumps({"id": self.next()["id"], "files": []}).encode() + b"\n")


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Channel, Agent]]:
    """Both ends, after the first hello."""
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with closing(Channel(path, PING_S)) as channel:
            connection, _ = listener.accept()
            with connection:
                agent = Agent(connection)
                agent.say(HELLO)
                channel.wait_boot(1, 5)
                yield channel, agent


def test_a_socket_at_which_nobody_listens_yet(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        later = threading.Timer(0.1, listener.listen)
        later.start()
        Channel(path, PING_S).close()
        later.join()


def test_a_guest_that_goes_on_says_no_hello(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with closing(Channel(path, PING_S, boot_id="boot-1")) as channel:
            connection, _ = listener.accept()
            with connection:
                assert (channel.boots, channel.boot_id) == (1, "boot-1")
                Agent(connection).say(HELLO.replace(b"boot-1", b"boot-2"))
                channel.wait_boot(2, 5)
                assert channel.boot_id == "boot-2"


def test_an_answer(ends: tuple[Channel, Agent]) -> None:
    channel, agent = ends
    helper = threading.Thread(target=agent.answer)
    helper.start()
    assert channel.ask(REQUEST, 5)["files"] == []
    helper.join()


@pytest.mark.parametrize(
    ("words", "boots"),
    [
        (HELLO, 1),
        (b'{"id": 1, "files": ["half' + HELLO, 1),
        (b'{"hello": "boot-2"}\n', 2),
    ],
    ids=["its agent", "its agent, within an answer", "the guest"],
)
def test_started_anew(ends: tuple[Channel, Agent], words: bytes, boots: int) -> None:
    channel, agent = ends
    helper = threading.Thread(target=agent.skip, args=(words,))
    helper.start()
    with pytest.raises(AgentGone, match="during true"):
        channel.ask(REQUEST, 5)
    helper.join()
    assert channel.boots == boots


def test_qemu_has_ended(ends: tuple[Channel, Agent]) -> None:
    channel, agent = ends
    agent.close()
    for _ in range(3):
        with pytest.raises(AgentGone, match="true"):
            channel.ask(REQUEST, 5)


def test_a_slow_request_is_no_hang(ends: tuple[Channel, Agent]) -> None:
    channel, agent = ends
    helper = threading.Thread(target=agent.answer_second)
    helper.start()
    with pytest.raises(TimeoutError, match=r"within 0\.1 s to true"):
        channel.ask(REQUEST, 0.1)
    helper.join()


def test_a_silent_guest_has_hung(ends: tuple[Channel, Agent]) -> None:
    channel, agent = ends
    for timeout_s in (0.1, 60):  # the second request does not wait
        with pytest.raises(GuestHung, match=f"within 0.1 s to true, nor within {PING_S} s to anything else"):
            channel.ask(REQUEST, timeout_s)
    assert agent.next() and agent.next()
