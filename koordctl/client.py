"""The call to a daemon, and an error that says what to do about it."""

from __future__ import annotations

import os
from typing import cast

import click
import grpc

from koord.pb.koord import inspect_pb2 as inspect
from koord.service import unixsocket

_LIST_PODS = "/koord.node.v1.NodeInspect/ListPods"
_OPTIONS = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]


class Unreachable(click.ClickException):
    """Nobody answered on the socket."""

    exit_code = 2


class Refused(click.ClickException):
    """The daemon answered with an error."""

    exit_code = 3


def list_pods(socket: str, namespace: str, name: str, timeout_s: float) -> inspect.ListPodsResponse:
    """Ask the qosd on ``socket`` (a path, or ``unix:///path``) for its pods; raises Unreachable or Refused."""
    path = unixsocket.without_scheme(socket)
    _check(path)
    with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
        call = channel.unary_unary(
            _LIST_PODS,
            request_serializer=inspect.ListPodsRequest.SerializeToString,
            response_deserializer=inspect.ListPodsResponse.FromString,
        )
        try:
            answer = call(inspect.ListPodsRequest(namespace=namespace, name=name), timeout=timeout_s)
        except grpc.RpcError as error:
            raise _meaning(cast(grpc.Call, error), path, timeout_s) from error
    return answer


def _check(path: str) -> None:
    """Say at once what gRPC would report as a vague "unavailable"."""
    if not os.path.exists(path):
        raise Unreachable(
            f"no socket at {path}: is koord-qosd running (systemctl status koord-qosd)? Another path: --socket."
        )
    if not os.access(path, os.R_OK | os.W_OK):
        raise Unreachable(f"no permission for {path}: only its owner may ask; try as root.")


def _meaning(error: grpc.Call, path: str, timeout_s: float) -> click.ClickException:
    code, details = error.code(), error.details()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unreachable(f"koord-qosd on {path} did not answer within {timeout_s:g} s.")
    if code is grpc.StatusCode.UNAVAILABLE and "runtime" not in (details or ""):
        return Unreachable(f"nobody listens on {path}: koord-qosd has ended or restarts ({details}).")
    return Refused(f"koord-qosd answered {code.name}: {details}")
