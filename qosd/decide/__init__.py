"""Decide: pure functions from a snapshot to what the kernel's files should hold, and why."""
