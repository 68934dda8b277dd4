"""The relay's own books, compared with those of the two ends. All that the simulation knows of the relay's insides."""

from __future__ import annotations

from runtimeproxy.relay.connection import RelayedConnection
from runtimeproxy.relay.server import RelayServer
from runtimeproxy.relay.stream import Stream
from tests.runtimeproxy.simulation.call import HOLD, check
from tests.runtimeproxy.simulation.client import OWN_WINDOW_BYTES, Client
from tests.runtimeproxy.simulation.end import Side
from tests.runtimeproxy.simulation.runtime import Runtime


def check_stream(connection: RelayedConnection, side: Side) -> None:
    """The client has got all back that it sent on an open stream, or is owed it, and what the runtime gave beyond."""
    stream, call = connection.pair.streams.get(side.id), side.call
    missing = side.spent_bytes - (stream.owed_bytes if isinstance(stream, Stream) else 0)
    due = {call.granted_bytes, 0} if call.method.treatment == HOLD else {call.granted_bytes}
    check(-missing in due, f"call {call.number}: {missing} bytes of its window are missing, due beyond it {due}")


def check_rest(connection: RelayedConnection, client: Client, runtime: Runtime) -> None:
    """Nothing moves, and no call is open: every account of credit is exact, and nothing is remembered."""
    near = client.send_window + connection.pair.credit_bytes
    check(near == OWN_WINDOW_BYTES, f"the client's window and what it is owed are {near}, not {OWN_WINDOW_BYTES}")
    told = connection.pair.client_window_bytes
    check(told == client.send_window, f"the relay takes the client's window of {client.send_window} for {told}")
    far = connection.uplink.outbox.window_bytes
    check(far == runtime.receive_window, f"the relay's window is {far}, the runtime's {runtime.receive_window}")
    passed = client.receive_window
    check(runtime.send_window == passed, f"the runtime may send {runtime.send_window}, the client granted {passed}")
    _check_forgotten(connection, client)
    metrics = connection.pair.metrics
    check(metrics.held_bytes == 0, f"{metrics.held_bytes} bytes are counted as held, and nothing is")
    check(metrics.held_streams == 0, f"{metrics.held_streams} streams are counted as held, and none is")
    used = connection.pair.policy.budget.used_bytes, connection.pair.policy.budget.held_bytes
    check(bool(connection.pair.streams) or used == (0, 0), f"{used} bytes of the budget are used at rest")
    _check_passed(client, runtime)


def _check_forgotten(connection: RelayedConnection, client: Client) -> None:
    outbox = connection.uplink.outbox
    kept = [stream for stream in connection.pair.streams if not client.goaways or stream <= client.goaways[-1][0]]
    check(not kept, f"streams {kept} are remembered, and are over")
    check(not outbox.passing and not outbox._released and not outbox._items, "the outbox is not empty")
    waiting = connection.pair.acks or connection.pair.unacknowledged
    check(not waiting, "SETTINGS are remembered that were acknowledged")
    check(not connection.pair.runtime_settings, "the runtime's SETTINGS are remembered, and were acknowledged")


def _check_passed(client: Client, runtime: Runtime) -> None:
    for sender, reader in ((client, runtime), (runtime, client)):
        who = f"the {reader.name}'s"
        check(reader.sequence_seen == sender.sequence_sent, f"{who} PINGs and extension frames differ from those sent")
        sent = [payload for payload in sender.settings_sent if payload]
        seen = [payload for payload in reader.settings_seen if payload]
        check(seen == sent, f"{who} SETTINGS differ from those sent")
        check(not sender.announced, f"SETTINGS of the {sender.name} were not acknowledged")
        check(not sender.pings, f"PINGs of the {sender.name} were not acknowledged")


def has_dropped_blocks(connection: RelayedConnection) -> bool:
    """Was a header block dropped behind a GOAWAY? The runtime can follow none that comes later, and gets none."""
    return connection.requests._dropped


def check_end(server: RelayServer, connection: RelayedConnection, may_be_blind: bool) -> None:
    """The connection is over: nothing of it is left."""
    check(connection.pair.ended.done(), "both ends have gone, and the connection does not end")
    metrics = server.metrics
    check(not server.connections and not metrics.connections, "the server remembers a connection that is over")
    check(metrics.held_bytes == 0, f"{metrics.held_bytes} bytes are counted as held after the end")
    check(metrics.held_streams == 0, f"{metrics.held_streams} streams are counted as held after the end")
    budget = server.policy.budget
    check((budget.used_bytes, budget.held_bytes) == (0, 0), f"{budget.used_bytes} bytes of the budget are never freed")
    check(not connection.pair.streams, f"streams {list(connection.pair.streams)} are remembered after the end")
    check(may_be_blind or not metrics.blind_connections, f"connections were blind: {dict(metrics.blind_connections)}")
