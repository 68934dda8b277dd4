"""Runs a kubeconfig's credential plugin (``aws eks get-token`` and its like), as client-go does.

The program is told what is wanted in KUBERNETES_EXEC_INFO and prints an ExecCredential. Invariant: it has ``TIMEOUT_S``
and no terminal, and is dead when ``run`` returns. Fails with ``PluginError``, which has what the program complained of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from koord.kube.kubeconfig import ExecPlugin
from koord.model import core

TIMEOUT_S = 30.0
_MAX_BYTES = 1 << 20
_SHOWN = 300


class PluginError(Exception):
    """The plugin did not say who we are."""


class PluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``expiration_timestamp`` None: good until the server refuses it."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True):
    status: PluginStatus | None = None


async def run(plugin: ExecPlugin, environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> PluginStatus:
    """What the program says. Raises PluginError."""
    told = {**environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin)}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=told,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        raise PluginError(f"{plugin.command} cannot be run: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(timeout_s):
            output, complaint = await process.communicate()
    except TimeoutError as error:
        raise PluginError(f"{plugin.command} took more than {timeout_s:g} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        said = complaint[-_SHOWN:].decode(errors="replace").strip()
        raise PluginError(f"{plugin.command} exited with {process.returncode}: {said}")
    return _status(plugin, output)


def _exec_info(plugin: ExecPlugin) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    return msgspec.json.encode(info).decode()


def _status(plugin: ExecPlugin, output: bytes) -> PluginStatus:
    if len(output) > _MAX_BYTES:
        raise PluginError(f"{plugin.command} printed {len(output)} bytes")
    try:
        status = core.read(_ExecCredential, output).status
    except ValueError as error:
        raise PluginError(f"{plugin.command} printed no ExecCredential: {error}") from error
    if status is None or not (status.token or status.client_certificate_data):
        raise PluginError(f"{plugin.command} printed an ExecCredential without credential")
    return status
