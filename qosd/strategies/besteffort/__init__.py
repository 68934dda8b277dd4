"""Puts the CPU limits of best-effort pods on kernel files and tasks, whichever strategy has set these limits.

strategy  quotas of tier and containers, weights and ``cpu.idle`` of pods
division  one amount of CPU time divided among containers
slices    how long their tasks run in one go
"""
