"""``koord-runtime-proxy``: options, sockets, relay, life, in this order and nothing more before the first accept.

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

from koord.service.listen_fds import ListenFdsError, take_listen_fds
from koord.service.log import set_up
from koord.service.notify import Notifier, NotifyEnvironmentError, watchdog_interval_us
from runtimeproxy.assemble import assemble
from runtimeproxy.bypass import Bypass
from runtimeproxy.life import LOGGED, Life, Process
from runtimeproxy.listen import Listener, ListenError, Listeners, access_like, adopt, bind, usable
from runtimeproxy.options import CommandLine, OptionError, Options, load, parse_command_line
from runtimeproxy.upgrade import own_command, take_predecessor

log = logging.getLogger("runtimeproxy")


def main() -> int:
    try:
        command_line = parse_command_line(sys.argv[1:])
        options = load(command_line)
    except OptionError as error:
        print(f"koord-runtime-proxy: {error}", file=sys.stderr)
        return 2
    set_up(options.log_level, LOGGED, os.environ)
    try:
        process, served = _start(options, os.environ)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(command_line, options, process, served))
    except (ListenError, ListenFdsError, NotifyEnvironmentError, OSError) as error:
        log.error("%s", error)
        return 1
    return 0


def _start(options: Options, environ: MutableMapping[str, str]) -> tuple[Process, list[Listener]]:
    """What systemd or a predecessor handed over, and the sockets to serve."""
    pid = os.getpid()
    from_predecessor, predecessor = take_predecessor(environ)
    handed_over = adopt([*take_listen_fds(environ, pid), *from_predecessor])
    served = usable(handed_over, options.endpoint) or [bind(options.endpoint, access_like(options.backend))]
    process = Process(
        command=own_command(sys.executable, sys.orig_argv, sys.argv),
        environ=dict(environ),
        notifier=Notifier(environ.get("NOTIFY_SOCKET")),
        watchdog_us=watchdog_interval_us(environ, pid),
        predecessor=predecessor,
    )
    return process, served


async def _serve(command_line: CommandLine, options: Options, process: Process, served: list[Listener]) -> None:
    loop = asyncio.get_running_loop()
    if options.mode == "Docker":
        log.info("backend mode Docker: %s must be the CRI endpoint of cri-dockerd", options.backend)
    relay, attachments = assemble(loop, options)
    listeners = Listeners(loop, relay, process.notifier, served, options.backend)
    bypass = Bypass(relay.set_bypass, options.bypass, options.bypass_file)
    life = Life(
        process, command_line, options, relay=relay, listeners=listeners, bypass=bypass, attachments=attachments
    )
    await life.run()


if __name__ == "__main__":
    sys.exit(main())
