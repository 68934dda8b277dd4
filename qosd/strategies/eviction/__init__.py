"""Eviction by NodeSLO's thresholds: each strategy states a shortage, and the engine of ``qosd.decide`` does the rest.

evicting      what the strategies have in common
memoryusage   the node's memory, or the limit of all pods, is nearly used up
cpuusage      the node's CPUs are in use
satisfaction  best-effort pods get too little of the CPU that they requested
allocatable   pods requested more than is allocatable
windows       the window over which CPU usage is judged
"""
