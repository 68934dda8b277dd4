"""Moments that the simulation has found to matter, each on its own."""

from __future__ import annotations

import logging

import pytest

from tests.runtimeproxy.simulation.call import Call
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, Side
from tests.runtimeproxy.simulation.interceptor import METHODS
from tests.runtimeproxy.simulation.profile import ALL, HUGE_TABLE_BYTES, Profile
from tests.runtimeproxy.simulation.scene import Scene

pytestmark = pytest.mark.exhaustive

PLAIN = Profile((), 0, 9, (), 1 << 30, 1 << 18, 1 << 27, False, False, False, ALL, (), False)
ANSWER = [(b":status", b"200"), (b"grpc-status", b"5")]


@pytest.fixture
def scene() -> Scene:
    logging.getLogger("koord.relay").setLevel(logging.CRITICAL)
    scene = Scene(PLAIN, Dice(1))
    scene.interceptor.prompt = False
    scene.far.connect(scene.connection.answers)
    scene.client.send_settings({})
    scene.runtime.send_settings({})
    scene.deliver()
    return scene


def opened(scene: Scene, method: str, size_bytes: int = 100) -> Side:
    """A call of ``/model.Service/<method>`` whose HEADERS have arrived."""
    plan = next(each for each in METHODS if each.path.endswith(b"/" + method.encode()))
    number = len(scene.calls)
    message = number.to_bytes(4) * (size_bytes // 4)
    fields = [(b":method", b"POST"), (b":path", plan.path), (b"x-number", b"%d" % number)]
    call = Call(number, plan, fields, b"\0" + len(message).to_bytes(4) + message, message)
    scene.calls.append(call)
    scene.client.open(call, Dice(3))
    scene.deliver()
    return next(side for side in scene.client.sides.values() if side.call is call)


def sent(scene: Scene, side: Side, most_bytes: int = ALL) -> None:
    """More of a call's DATA has arrived at the relay."""
    assert scene.client.send_data(side, most_bytes, None, True)
    scene.client.close_if_ended(side)
    scene.deliver()


@pytest.mark.parametrize("part_bytes", [0, 40, ALL])
def test_a_held_request_that_the_runtime_answers_unseen_never_reaches_it(scene: Scene, part_bytes: int) -> None:
    side = opened(scene, "Hold")
    if part_bytes:
        sent(scene, side, part_bytes)
    scene.runtime.end_answer(scene.runtime.sides[side.id], ANSWER, Dice(1))
    scene.deliver()
    scene.settle()
    assert side.call.outcome == "answered"
    assert side.call.reset_at_runtime
    assert side.call.arrived_bytes == 0
    scene.finish()


def test_what_crosses_a_refusal_does_not_follow_the_reset(scene: Scene) -> None:
    side = opened(scene, "Hold")
    sent(scene, side)
    scene.interceptor.refuse(scene.interceptor.pending[side.call.number], 8, "no")
    scene.loop.run_one()
    while scene.runtime.read(ALL):
        pass
    scene.client.reset(side)
    while scene.far.deliver(ALL):  # the acknowledgement for which the refusal waits
        pass
    scene.deliver()  # a second RST_STREAM is a Violation
    assert side.call.reset_at_runtime
    scene.finish()


def test_a_stream_that_the_runtime_will_not_look_at_is_not_held(scene: Scene) -> None:
    scene.client.stalled = True  # so it has not read the GOAWAY
    scene.runtime.leave()
    while scene.far.deliver(ALL):
        pass
    call = Call(0, METHODS[4], [(b":path", METHODS[4].path)], b"\0\0\0\0\4abcd", b"abcd")
    scene.client.open(call, Dice(3))
    side = scene.client.sides[1]
    scene.client.send_data(side, 3, None, True)
    while scene.near.deliver(ALL):
        pass
    assert scene.server.metrics.held_bytes == 0
    scene.rest()
    assert call.outcome == "not taken"
    scene.finish()


@pytest.mark.parametrize("settings", [{INITIAL_WINDOW_SIZE: 100}, {HEADER_TABLE_SIZE: 0}])
def test_an_acknowledgement_stays_behind_what_was_sent_before_it(scene: Scene, settings: dict[int, int]) -> None:
    for size_bytes in (60_000, 40_000):  # the runtime gives no credit back: the rest of the second waits in the relay
        side = opened(scene, "Pass", size_bytes)
        side.call.trailers = [(b"x-trailer", b"%d" % side.id)]
        while not side.ended:
            assert scene.client.send_more(side, Dice(3), ALL)
            scene.deliver()
    scene.runtime.send_settings(settings)
    scene.deliver()
    scene.runtime.credit_connection(60_000)
    scene.runtime.uncredited_bytes -= 60_000
    scene.deliver()  # DATA beyond the new window, or a header block with the old table, is a Violation
    assert side.call.arrived_whole
    scene.finish()


def test_a_tapped_request_goes_on_where_the_runtime_answers_early(scene: Scene) -> None:
    for method, size_bytes in (("Pass", 60_000), ("Tap", 40_000)):  # of which the rest waits in the relay
        side = opened(scene, method, size_bytes)
        while not side.ended:
            sent(scene, side)
    scene.runtime.end_answer(scene.runtime.sides[side.id], ANSWER, Dice(1))
    scene.settle()
    assert side.call.arrived_whole
    scene.finish()


def test_the_first_byte_that_is_no_preface_tells_that_the_client_speaks_something_else() -> None:
    scene = Scene(PLAIN, Dice(1))
    scene.far.connect(scene.connection.answers)
    scene.near.incoming[:] = b"P"
    assert scene.connect()
    assert scene.near.deliver(1)
    scene.near.incoming += b"OST"
    assert scene.near.deliver(ALL)
    assert scene.far.take(ALL) == b"POST"


def test_a_client_whose_runtime_has_gone_before_it_was_read_is_not_left_waiting() -> None:
    scene = Scene(PLAIN, Dice(1))
    scene.far.connect(scene.connection.answers)
    scene.hang_up(scene.runtime)
    while scene.far.deliver(ALL) or scene.loop.run_one():
        pass
    scene.deliver()
    assert scene.client.gone


def test_a_drain_allows_no_stream_that_the_runtime_will_not_look_at(scene: Scene) -> None:
    scene.runtime.leave()
    scene.deliver()
    scene.server.drain()
    scene.deliver()  # a GOAWAY that allows more than the one before is a Violation
    assert [last_stream for last_stream, _ in scene.client.goaways] == [0, 0, 0]
    scene.finish()


def test_trailers_that_cannot_be_read_stay_behind_the_held_request(scene: Scene) -> None:
    scene.runtime.send_settings({HEADER_TABLE_SIZE: HUGE_TABLE_BYTES})
    side = opened(scene, "Hold")
    side.call.trailers, side.call.uneditable = [(b"x-trailer", b"1")], "trailers"
    scene.deliver()
    scene.client.send_more(side, Dice(3), ALL)
    scene.client._encoder.header_table.resized = True
    scene.client._encoder.table_size_changes[:] = [HUGE_TABLE_BYTES]
    scene.client.send_more(side, Dice(3), ALL)
    scene.settle()
    assert scene.server.metrics.blind_connections == {"request headers": 1}
    assert side.call.arrived_whole
    assert side.call.outcome == "answered"
