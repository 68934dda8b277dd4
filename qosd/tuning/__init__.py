"""Advice for latency-sensitive containers that their own limits or requests hurt.

A container that its own quota throttles is no reason to suppress others: it needs another limit, and only its owner can
give it one. So this is said, with figures, and never done: Koord itself never raises a pod's limits beyond CPU burst.
The advice is one that kubelet's in-place resize would carry out; where that would refuse it, the advice says so.

Nothing here runs in a tick. ``koordctl explain`` asks, and then the five minutes of samples that the store keeps anyway
are read for the pods in question: some milliseconds for each, where declared windows would cost every node every second
for answers that are seldom wanted.
"""
