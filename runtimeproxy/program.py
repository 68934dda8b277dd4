"""The whole program: options, sockets, relay, life, in this order and nothing more before the first accept.

Ends with 0 after SIGTERM or a hand-over, 2 for options that make no sense, 1 for anything else that prevents serving;
one line on standard error says what.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import MutableMapping

import uvloop

from koord.service.lines import LineWriter
from koord.service.listen_fds import ListenFdsError, take_listen_fds
from koord.service.log import set_up
from koord.service.notify import Notifier, NotifyEnvironmentError, watchdog_interval_us
from koord.service.options import CommandLine, OptionError
from runtimeproxy.assemble import assemble
from runtimeproxy.bypass import Bypass
from runtimeproxy.life import LOGGED, Life, StartContext
from runtimeproxy.listen import (
    ListenError,
    Listeners,
    ListeningSocket,
    access_like,
    adopt,
    bind,
    is_own,
    own_name,
    usable,
)
from runtimeproxy.options import PROGRAM, Options
from runtimeproxy.upgrade import own_command, take_predecessor

_SWITCH_S = 0.0005  # how long the thread that renders a page may keep a call from Python's interpreter
log = logging.getLogger("runtimeproxy")


def main() -> int:
    try:
        command_line = PROGRAM.parse(sys.argv[1:])
        options = PROGRAM.load(command_line)
    except OptionError as error:
        print(f"koord-runtime-proxy: {error}", file=sys.stderr)
        return 2
    lines = set_up(options.log_level, LOGGED, os.environ)
    try:
        process, served, stale = _start(options, os.environ)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(command_line, options, process, served, stale, lines))
    except (ListenError, ListenFdsError, NotifyEnvironmentError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


def _start(options: Options, environ: MutableMapping[str, str]) -> tuple[StartContext, list[ListeningSocket], set[str]]:
    """Returns what systemd or a predecessor handed over, the sockets to serve, and our own ones that are not served."""
    pid = os.getpid()
    from_predecessor, predecessor = take_predecessor(environ)
    handed_over = adopt([*take_listen_fds(environ, pid), *from_predecessor])
    served = usable(handed_over, options.endpoint)
    stale = {each.name for each in handed_over if is_own(each.name)} - {each.name for each in served}
    served = served or [bind(options.endpoint, access_like(options.backend), own_name(stale))]
    process = StartContext(
        command=own_command(sys.executable, sys.orig_argv, sys.argv),
        environ=dict(environ),
        notifier=Notifier(environ.get("NOTIFY_SOCKET")),
        watchdog_us=watchdog_interval_us(environ, pid),
        predecessor=predecessor,
    )
    return process, served, stale


async def _serve(
    command_line: CommandLine,
    options: Options,
    process: StartContext,
    served: list[ListeningSocket],
    stale: set[str],
    lines: LineWriter,
) -> None:
    sys.setswitchinterval(_SWITCH_S)
    loop = asyncio.get_running_loop()
    if options.mode == "Docker":
        log.info("backend mode Docker: %s must be the CRI endpoint of cri-dockerd", options.backend)
    relay, attachments = assemble(loop, options, lines)
    listeners = Listeners(loop, relay, process.notifier, served, options.backend, stale)
    bypass = Bypass(relay.set_bypass, options.bypass, options.bypass_file)
    life = Life(
        process, command_line, options, relay=relay, listeners=listeners, bypass=bypass, attachments=attachments
    )
    await life.run()
