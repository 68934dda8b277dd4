"""Which workload a pod belongs to, read off its name, since a node is told of no owner.

Controllers name pods by rule: a Deployment ``<name>-<template hash>-<5>``, a DaemonSet or Job ``<name>-<5>``, a
CronJob's Job ``<name>-<minute of the run>-<5>`` (with ``-<index>`` between, if indexed), a StatefulSet
``<name>-<ordinal>``. The generated parts use an alphabet without vowels and look-alikes, so a pod of a person's own
naming is seldom cut; if it is, two pods share a model, which is a poorer start and no error.
"""

from __future__ import annotations

import re

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_RUN = r"\d{8,10}(?:-\d{1,5})?"  # the minute since 1970 at which a CronJob's run was due
_GENERATED = re.compile(rf"^(?P<name>.+?)(?:-(?:{_RUN}|{_RANDOM}{{6,10}}))?-{_RANDOM}{{5}}$")
_ORDINAL = re.compile(r"^(?P<name>.+)-\d{1,5}$")


def workload_name(pod_name: str) -> str:
    """Returns the controller's name in ``pod_name``; the whole name if no rule fits."""
    found = _GENERATED.match(pod_name) or _ORDINAL.match(pod_name)
    return found["name"] if found else pod_name
