"""What is left to best-effort pods of the CPU, on the kernel's files and on tasks, whoever holds them back.

strategy  quotas of tier and containers, weights and ``cpu.idle`` of pods
division  one amount of CPU time divided among containers
slices    how long their tasks run in one go
"""
