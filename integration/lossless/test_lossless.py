"""Every method of runtime.v1 with generated messages through the real proxy, between two gRPC peers.

What hooks do not edit must arrive byte for byte, both ways. What they edit must differ, to the protobuf libraries of
both containerd generations, in the fields that the proxy owns and in nothing else. ``--rounds`` says how many times
each method is called; the seed of a failure is in its text.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.harness import decoders, hookserver
from integration.harness.hookserver import PRESENCE, Answering, Question, Reply
from integration.harness.proxy import start_proxy
from integration.lossless import editor, schema
from integration.lossless.compare import differing, first_difference, leaves, unknown
from integration.lossless.conversation import CREATE, EDITED, RUN_POD, UPDATE, Prepare, Turn, as_generated, turns
from integration.lossless.expected import after_edits, owned_paths
from integration.lossless.schema import Method, descriptor
from integration.lossless.wire import Client, Exchange, Server

SEED = 1
Methods = Mapping[str, Method]
Played = list[tuple[Turn, Exchange]]


@pytest.fixture(scope="module")
def methods() -> Methods:
    return schema.methods(decoders.descriptors())


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    number: int = request.config.getoption("--rounds")
    return number


@contextmanager
def through_the_proxy(methods: Methods, answer: Answering | None) -> Iterator[Client]:
    """A client, the proxy with ``answer`` as its only hook server (None: with none), and the server behind it."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koord-lossless-")))
        hook_files = directory / "hookserver.d"
        hook_files.mkdir()
        if answer is not None:
            stack.enter_context(hookserver.serving(directory / "hooks.sock", answer))
            hookserver.write_file(hook_files, directory / "hooks.sock")
        server = Server(frozenset(path for path, method in methods.items() if method.streams))
        stack.enter_context(server.serving(directory / "runtime.sock"))
        stack.callback(start_proxy(directory / "runtime.sock", directory, hook_files).stop)
        client = Client(directory / "proxy.sock", server)
        stack.callback(client.close)
        yield client


def play(methods: Methods, rounds: int, answer: Answering | None, prepare: Prepare = as_generated) -> Played:
    with through_the_proxy(methods, answer) as client:
        return [(turn, client.exchange(turn.method, turn.request, turn.answers))
                for number in range(rounds) for turn in turns(methods, SEED, number, prepare)]  # fmt: skip


def changed(turn: Turn, exchange: Exchange, *, request: bool = True) -> Iterator[str]:
    """The messages that differ from those that were sent; ``request``: compare the request, too."""
    if request and exchange.requests != (turn.request,):
        heard = exchange.requests[0] if exchange.requests else b""
        yield f"{turn.method.path}: {len(exchange.requests)} requests; {first_difference(turn.request, heard)}"
    if exchange.answers != turn.answers:
        yield f"{turn.method.path}: {len(turn.answers)} answers sent, {len(exchange.answers)} heard, or other bytes"


def summary(played: Played) -> str:
    size = sum(len(turn.request) + sum(map(len, turn.answers)) for turn, _ in played)
    return f"{len({turn.method.path for turn, _ in played})} methods, {len(played)} calls, {size} bytes of messages"


def test_without_hook_servers_everything_arrives_byte_for_byte(methods: Methods, rounds: int) -> None:
    played = play(methods, rounds, None)
    assert [line for turn, exchange in played for line in changed(turn, exchange)] == []
    print(f"{summary(played)}: identical")


def test_what_is_held_and_not_edited_arrives_byte_for_byte(methods: Methods, rounds: int) -> None:
    asked: Counter[str] = Counter()

    def without_opinion(question: Question) -> Reply:
        asked[question.stage] += 1
        return Reply(b"", PRESENCE)

    played = play(methods, rounds, without_opinion)
    assert [line for turn, exchange in played for line in changed(turn, exchange)] == []
    assert {stage: asked[stage] for stage in editor.METHOD_OF} == dict.fromkeys(editor.METHOD_OF, rounds)
    print(f"{summary(played)}, {asked.total()} hook calls: identical")


@pytest.fixture(scope="module")
def edited(methods: Methods, request: pytest.FixtureRequest) -> Played:
    """All methods under the hook server that edits."""
    return play(methods, request.config.getoption("--rounds"), editor.edit, editor.prepare)


def test_next_to_edited_calls_everything_else_arrives_byte_for_byte(edited: Played) -> None:
    assert [line for turn, exchange in edited
            for line in changed(turn, exchange, request=turn.method.name not in EDITED)] == []  # fmt: skip


@dataclass(frozen=True, slots=True)
class Library:
    """A protobuf library of containerd's; ``values_are_text``: to it the values of variables are strings."""

    program: Callable[[], Path]
    knows: tuple[str, ...]
    values_are_text: bool


GOLANG = Library(decoders.golang, EDITED, values_are_text=False)
GOGO = Library(decoders.gogo, (RUN_POD, CREATE, UPDATE), values_are_text=True)  # younger methods are not in 1.6


@pytest.mark.parametrize("library", [pytest.param(GOLANG, id="golang"), pytest.param(GOGO, id="gogo")])
def test_both_generations_see_the_edits_and_no_other_change(edited: Played, library: Library) -> None:
    looked_at = [(turn, exchange) for turn, exchange in edited if turn.method.name in library.knows]
    wires = [(descriptor(turn.method.request).full_name, wire)
             for turn, exchange in looked_at for wire in (turn.request, exchange.requests[0])]  # fmt: skip
    decoded = decoders.decode(library.program(), wires)
    assert [each.error for each in decoded if each.error] == []
    changes = 0
    for (turn, _), before, after in zip(looked_at, decoded[::2], decoded[1::2], strict=True):
        name, top = turn.method.name, descriptor(turn.method.request)
        where = f"{turn.method.path}, seed {SEED}, round {turn.round}"
        found = differing(before.fields, after.fields)
        foreign = [path for path in found if not any(path[: len(own)] == own for own in owned_paths(name, top))]
        assert foreign == [], f"{where}: changed without being owned"
        parent = editor.cgroup_parent(turn.round)
        wanted = after_edits(name, top, before.fields, parent, values_are_text=library.values_are_text)
        wrong = differing(wanted, after.fields)
        values = {".".join(path): (dict(leaves(wanted)).get(path), dict(leaves(after.fields)).get(path))
                  for path in wrong}  # fmt: skip
        assert values == {}, f"{where}: (wanted, found)"
        assert after.fields == wanted, where
        changes += len(found)
    print(f"{len(looked_at)} edited requests, {changes} values changed, all of them owned")


def test_unknown_fields_survive_an_edit(edited: Played) -> None:
    met = 0
    for turn, exchange in edited:
        kind = turn.method.request
        before, after = (list(unknown(kind.FromString(wire))) for wire in (turn.request, exchange.requests[0]))
        assert after == before, turn.method.path
        met += len(before) if turn.method.name in EDITED else 0
    assert met > 0
    print(f"{met} unknown fields in edited requests: all there")
