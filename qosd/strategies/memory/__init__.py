"""Memory QoS beyond the files of pods and containers, which the hook ``memory`` sets.

tiers    memory.min and memory.low of kubelet's tiers
reclaim  background reclaim and page-cache limits, by writes to ``memory.reclaim``
probe    how much is reclaimed next, and when
"""
