"""A line about each command, and examples: for the list of ``koordctl --help`` and the end of each help."""

from __future__ import annotations

from typing import NamedTuple


class Guide(NamedTuple):
    """``summary``: at most 60 characters, which no terminal of 80 columns cuts. ``examples``: with what they do."""

    summary: str
    examples: tuple[tuple[str, str], ...]


GUIDES = {
    "cluster": Guide(
        "Show what each node of the cluster uses and offers.",
        (("cluster", "every node"), ("cluster --sort-by -batch_cpu_milli", "the one that offers most first")),
    ),
    "completion": Guide(
        "Print the completion script of your shell.",
        (("completion bash > /etc/bash_completion.d/koordctl", "for all users"),),
    ),
    "disable": Guide(
        "Turn strategies off, and put their files back.",
        (("disable cpuSuppress", "one"), ("disable all", "until koord-qosd ends, or enable all")),
    ),
    "doctor": Guide(
        "Check what Koord needs of this node, and what to do.",
        (("doctor", "this node"), ("doctor --root /mnt/node --offline", "the copied files of another")),
    ),
    "enable": Guide("Turn strategies on again.", (("enable all", "all that were turned off"),)),
    "explain": Guide(
        "Say why a file, a pod or a node is as it is.",
        (
            ("explain pod jobs/train", "its files and their formulas; in a cluster: why it is pending or gone"),
            ("explain node worker-1", "what a node of the cluster offers, and why"),
            ("explain file /kubepods/besteffort/cpu_quota", "one kernel file"),
        ),
    ),
    "explain file": Guide(
        "Explain one kernel file.",
        (
            ("explain file /sys/fs/cgroup/cpu/kubepods/besteffort/cpu.cfs_quota_us", "by its path"),
            ("explain file /kubepods/besteffort/cpu_quota", "by its cgroup and row"),
        ),
    ),
    "explain node": Guide(
        "Explain this node's files, or what another node offers.",
        (("explain node", "the files of this node that are no pod's"), ("explain node worker-1", "its offer, by term")),
    ),
    "explain pod": Guide(
        "Explain a pod's files, or why it is pending or gone.",
        (
            ("explain pod jobs/train", "by koord-qosd, where that runs, else by the API server"),
            ("explain pod train -n jobs --cluster", "by the API server"),
        ),
    ),
    "explain quota": Guide(
        "Explain what an ElasticQuota may use.",
        (("explain quota team-a", "each resource, from the cluster down"),),
    ),
    "get": Guide(
        "Show NodeMetrics, NodeSLOs, profiles and quotas.",
        (("get nodemetrics", "all"), ("get nodeslo worker-1 -o yaml", "one, whole")),
    ),
    "install": Guide(
        "Install Koord on this node.",
        (("install --dry-run", "what would be done"), ("install --no-daemon", "the proxy, beside the chart's agent")),
    ),
    "journal": Guide(
        "Show what was written: when, by whom, before and after.",
        (
            ("journal --since 10m --pod jobs/train", "of one pod"),
            ("journal --file cpu_quota -o wide", "of one kind of file, with reasons"),
        ),
    ),
    "lint": Guide(
        "Check manifests before you apply them.",
        (("lint profile.yaml job.yaml", "both together"), ("lint -", "what kubectl get -o yaml prints, by a pipe")),
    ),
    "metrics": Guide(
        "Show the newest sample of every metric.",
        (("metrics node_cpu", "those whose names begin so"), ("metrics pod_ --subject train --history", "of one pod")),
    ),
    "node": Guide(
        "Show this node: size, usage, strategies, health.",
        (("node", "all of it"), ("node --section strategies", "one table")),
    ),
    "plan": Guide("Show what the next tick would write.", (("plan", "nothing is written"),)),
    "pods": Guide(
        "Show pods: class, and desired against actual values.",
        (("pods -n jobs", "of a namespace"), ("pods train -o wide", "every value, its file and its reason")),
    ),
    "queue": Guide(
        "List the pods that wait for koord-scheduler, and why.",
        (
            ("queue", "the most important first"),
            ("queue --scheduler 127.0.0.1:10251 -o wide", "by a port that you forwarded"),
        ),
    ),
    "restore": Guide(
        "Put every file back as it was, without koord-qosd.",
        (("restore --dry-run", "what would be put back"), ("restore", "put it back")),
    ),
    "top": Guide(
        "Show live what the node and its pods use.",
        (
            ("top", "q quits"),
            ("top --sort-by -memory_usage_bytes", "by memory"),
            ("top --once -o json", "for programs"),
        ),
    ),
    "uninstall": Guide(
        "Remove Koord from this node without a trace.",
        (("uninstall --dry-run", "what would be done"), ("uninstall", "")),
    ),
    "version": Guide("Print the versions of koordctl and koord-qosd.", (("version", "both"), ("version -o json", ""))),
}
"""By command, and ``group command``."""


def summary(command: str) -> str:
    """Returns the line for the list of commands."""
    return GUIDES[command].summary


def examples(command: str) -> str:
    """Returns the end of the command's help; click leaves the lines after ``\\b`` as they are."""
    found = GUIDES[command].examples
    width = max(len(example) for example, _ in found)
    lines = [f"  koordctl {example:<{width}}  {remark}".rstrip() for example, remark in found]
    return "\n".join(["\b", "Examples:", *lines])
