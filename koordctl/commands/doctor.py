"""``koordctl doctor``: what Koord assumes of this node, checked, with and without the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from koordctl import options
from koordctl.exits import EPILOG, FAILED, OK

if TYPE_CHECKING:
    from koord.host.doctor.facts import DaemonFacts

_RUNTIME_TIMEOUT_S = 2.0
_VERSION = "/runtime.v1.RuntimeService/Version"


@click.command(epilog=EPILOG)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    help="The node's root directory: a host mount, or a recorded tree (with --offline).",
)
@click.option("--offline", is_flag=True, help="Ask neither koord-qosd nor the runtime; look at files only.")
@click.option(
    "--runtime", default="", metavar="PATH", help="The container runtime's socket; found by itself if absent."
)
@options.output()
@options.daemon
def doctor(root: Path, offline: bool, runtime: str, output: str, socket: str, timeout_s: float) -> int:
    """Check every assumption: one line each, and what to do about it. Ends with 4 if something fails."""
    from koord.host.doctor.checks import examine  # noqa: PLC0415
    from koord.host.doctor.collect import collect  # noqa: PLC0415
    from koordctl.views import doctor as view  # noqa: PLC0415

    daemon, says = (None, "not asked (--offline)") if offline else _daemon(socket, timeout_s)
    ask = (lambda path: None) if offline else ask_runtime
    findings = examine(collect(root, ask, runtime_socket=runtime, daemon=daemon, daemon_says=says))
    if output == "table":
        click.echo(view.table(findings))
    else:
        from koordctl.output import render  # noqa: PLC0415

        click.echo(render({"findings": [view.plain(each) for each in findings]}, output))
    return FAILED if view.failed(findings) else OK


def ask_runtime(socket: str) -> tuple[str, str] | None:
    """Name and version of the runtime that listens on ``socket``; None if it does not answer."""
    from koord.http2 import blocking  # noqa: PLC0415
    from koord.http2.grpc import UnaryError  # noqa: PLC0415
    from koord.pb.cri import api_pb2 as cri  # noqa: PLC0415

    try:
        answer = blocking.call(socket, _VERSION, cri.VersionRequest().SerializeToString(), _RUNTIME_TIMEOUT_S)
    except UnaryError:
        return None
    version = cri.VersionResponse.FromString(answer)
    return version.runtime_name, version.runtime_version


def _daemon(socket: str, timeout_s: float) -> tuple[DaemonFacts | None, str]:
    """What the daemon says of itself, or why it cannot be asked."""
    from koord.host.doctor.facts import DaemonFacts  # noqa: PLC0415
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415

    try:
        node = Daemon(socket, timeout_s).ask("GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    except click.ClickException as error:
        return None, error.message
    facts = DaemonFacts(
        version=node.daemon.version,
        open_files_limit=node.daemon.open_files_limit,
        acting_front_end=next((each.name for each in node.front_ends if each.acting), ""),
        attached_front_ends=tuple(each.name for each in node.front_ends if each.attached),
        failing_loops=tuple(f"{each.name} ({each.last_error})" for each in node.loops if each.failures),
        contested=tuple(f"{each.path} ({each.why})" for each in node.contested),
        rules_warnings=tuple(node.warnings),
        journal_dropped=node.daemon.journal_dropped,
    )
    return facts, ""
