"""What 2,000 mTLS connections of nodes cost a server, by implementation of gRPC. ``python -m bench.nodelink``.

The same clients report every five seconds to servers that do the same with each report: read it and note it. Memory is
beside what the process has before the first connection.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench import stats
from bench.nodelinkprocesses import cpu_s, load, memory_mib
from koord.http2.server import ServerReply, UnaryServer
from koord.model.nodelink import SERVER_NAME
from koord.pb.koord import nodelink_pb2 as pb
from koord.tls import certificates
from koord.tls.certificates import KeyPair, ServingCertificate
from koord.tls.context import LiveContext
from koord.tls.listener import listening_socket
from koord_manager.freshusage import FreshFigures

REPORT = "/koord.nodelink.v1.NodeLink/Report"
ANSWER = pb.NodeReportAnswer().SerializeToString()
Take = Callable[[bytes], bytes]


@asynccontextmanager
async def koord_http2(ca: KeyPair, pair: KeyPair, take: Take) -> AsyncIterator[int]:
    tls = LiveContext(None, "h2")
    tls.load(ServingCertificate(pair, ca.certificate))
    server = UnaryServer({REPORT: lambda message, fields: ServerReply(take(message))})
    listener = await asyncio.get_running_loop().create_server(
        server.protocol, "127.0.0.1", 0, ssl=tls.server_context, backlog=1024
    )
    yield listener.sockets[0].getsockname()[1]


@asynccontextmanager
async def grpcio(ca: KeyPair, pair: KeyPair, take: Take) -> AsyncIterator[int]:
    """As the manager has it: with its options, and behind its gate."""
    import grpc.aio  # noqa: PLC0415 - only this server has it

    from koord_manager.nodelink import identity  # noqa: PLC0415
    from koord_manager.nodelink import server as nodelink  # noqa: PLC0415
    from koord_manager.nodelink.gate import ConnectionGate  # noqa: PLC0415

    gate = ConnectionGate()

    async def answer(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        gate.prove(int(context.peer().rpartition(":")[2]), identity.node_of(context.auth_context(), time.time()))
        return take(message)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
            return grpc.unary_unary_rpc_method_handler(answer) if details.method == REPORT else None

    server = grpc.aio.server(options=nodelink.options())
    server.add_generic_rpc_handlers((Handler(),))
    credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)], ca.certificate, True)
    inner_port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    listener = listening_socket("127.0.0.1", 0)
    async with gate.open(listener, inner_port):
        yield listener.getsockname()[1]


SERVERS: Mapping[str, Callable[[KeyPair, KeyPair, Take], AbstractAsyncContextManager[int]]] = {
    "koord.http2": koord_http2,
    "grpcio": grpcio,
}


def serve(name: str, pki: Path) -> None:
    """Prints its port, and ends with its standard input."""
    ca, pair = (KeyPair((pki / f"{stem}.key").read_bytes(), (pki / f"{stem}.crt").read_bytes()) for stem in ("ca", "s"))
    figures = FreshFigures(time.monotonic)

    def take(message: bytes) -> bytes:
        figures.take(message, pb.NodeReport.FromString(message))
        return ANSWER

    async def run() -> None:
        async with SERVERS[name](ca, pair, take) as port:
            print(port, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def measure(name: str, directory: Path, nodes: int, pods: int, seconds: float) -> str:
    """A row; the server's interval begins when every node has been heard."""
    now = datetime.now(UTC)
    ca = certificates.issue_ca(now)
    pair = certificates.issue_serving(ca, [SERVER_NAME], now)
    for stem, made in (("ca", ca), ("s", pair)):
        (directory / f"{stem}.key").write_bytes(made.key)
        (directory / f"{stem}.crt").write_bytes(made.certificate)
    argv = [sys.executable, "-m", "bench.nodelink", f"--serve={name}", f"--pki={directory}"]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        before_mib = memory_mib(server.pid)
        with load(directory, ca, port, nodes, pods) as clients:
            settled_s = 15.0 + nodes / 100
            time.sleep(settled_s)
            clients.say("forget")
            begun_s, used_s = time.monotonic(), cpu_s(server.pid)
            time.sleep(seconds)
            passed_s, used_s = time.monotonic() - begun_s, cpu_s(server.pid) - used_s
            mib = memory_mib(server.pid)
            latencies_ms, failures = clients.end()
    finally:
        server.kill()
        server.wait()
    rate = len(latencies_ms) / passed_s
    p50, p99 = (stats.percentile(latencies_ms, percent) for percent in (50.0, 99.0))
    return (
        f"{name:12} {used_s / passed_s:5.3f} core  {used_s / max(1, len(latencies_ms)) * 1e6:4.0f} us a report  "
        f"{mib:6.1f} MiB (+{(mib - before_mib) / nodes * 1024:.0f} KiB a node)  p50 {p50:.1f} p99 {p99:.1f} ms  "
        f"{rate:.0f}/s  {len(failures)} failed"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="NodeLink's servers side by side.")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--pods", type=int, default=30, help="of a report (default: 30)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each server (default: 30)")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--pki", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.pki)
        return 0
    rows = []
    for name in SERVERS:
        with tempfile.TemporaryDirectory(prefix="koord-bench-") as directory:
            rows.append(measure(name, Path(directory), options.nodes, options.pods, options.seconds))
        print(rows[-1], flush=True)
    print(f"bench-nodelink: {options.nodes} nodes, {options.pods} pods each: {rows[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
