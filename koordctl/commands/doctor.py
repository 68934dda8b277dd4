"""``koordctl doctor``: checks what Koord needs of this node, with and without the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koordctl import guide, options
from koordctl.exits import FAILED, OK

if TYPE_CHECKING:
    from koordctl.fields import ListingLayout
    from koordctl.node.facts import DaemonFacts


@click.command(short_help=guide.summary("doctor"), epilog=guide.examples("doctor"))
@options.root("The node's root directory: a host mount, or a recorded tree (with --offline).")
@click.option("--offline", is_flag=True, help="Ask neither koord-qosd nor the runtime; look at files only.")
@options.runtime
@options.listing("views.doctor:FINDINGS", "wide: whole, however narrow the terminal is.")
@options.daemon
def doctor(root: Path, offline: bool, runtime: str, layout: ListingLayout[Any], socket: str, timeout_s: float) -> int:
    """Check what Koord needs of this node: one line for each check, and what to do.

    The last lines say whether Koord can be installed here, or why not. Exit code 4: a check failed, or Koord does not
    run and cannot be installed.
    """
    from koordctl.doctor.checks import blockers, examine  # noqa: PLC0415
    from koordctl.node.collect import gather  # noqa: PLC0415
    from koordctl.output import show  # noqa: PLC0415
    from koordctl.views import doctor as view  # noqa: PLC0415

    daemon = (None, "not asked (--offline)") if offline else _daemon(socket, timeout_s)
    facts = gather(root, offline, runtime, daemon)
    findings, reasons = examine(facts), blockers(facts)
    report = (findings, reasons, layout, facts.recorded)
    show(layout, lambda: view.page(*report), lambda: view.document(*report))
    refused = bool(reasons) and facts.daemon is None
    return FAILED if view.failed(findings) or refused else OK


def _daemon(socket: str, timeout_s: float) -> tuple[DaemonFacts | None, str]:
    """Returns what the daemon says of itself, or None and why it cannot be asked."""
    from koord.pb.koord import inspect_pb2 as inspect  # noqa: PLC0415
    from koordctl.client import Daemon  # noqa: PLC0415
    from koordctl.node.facts import DaemonFacts  # noqa: PLC0415
    from koordctl.views import node as node_view  # noqa: PLC0415

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
        warnings=tuple(node.warnings),
        journal_dropped=node.daemon.journal_dropped,
        policy=tuple(node_view.policy_lines(node.policy)),
        is_policy_doubtful=bool(node_view.doubtful_policy(node.policy)),
        lacking=tuple(f"{each.name} lacks {each.lacks}" for each in node.strategies if each.lacks),
    )
    return facts, ""
