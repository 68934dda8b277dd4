"""Memory QoS beyond the files of pods and containers, which the hook ``memory`` gives.

tiers    kubelet's tiers protect what their pods are protected of
reclaim  background reclaim and page-cache limits, by writes to ``memory.reclaim``
probe    how much is reclaimed next, and when
"""
