"""CPU suppression: how much of the node's CPU best-effort pods may have, so that other pods do not notice them.

strategy   decides by one of three policies; ``qosd.strategies.besteffort`` writes the kernel files
allowance  upstream's formula
formula    its policies: whole CPUs, or CPU time
cpuchoice  which CPUs, so that few change hands
cpuwait    how long best-effort pods make latency-sensitive containers wait for CPUs
steps      steps against these waits, kept only if they help
trial      tells whether a step helps
loadbaseline  how long a container would wait without best-effort pods
regulator  a limit that follows the wait
"""
