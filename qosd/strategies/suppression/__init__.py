"""CPU suppression: how much of the node best-effort pods may have, so that the others do not notice them.

strategy   one of three policies decides, and ``qosd.strategies.besteffort`` puts it on the kernel's files
allowance  upstream's formula
formula    its policies: whole CPUs, or CPU time
cpuchoice  which CPUs, so that few change hands
cpuwait    how long best-effort pods make latency-sensitive containers wait for CPUs
steps      steps against it, kept only where they help
trial      does a step help?
loadbaseline  what would a container wait anyway?
regulator  a limit that follows the wait
"""
