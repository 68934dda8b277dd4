"""The rules under which the daemon is measured: none, and those under which every strategy that it has is on."""

from __future__ import annotations

EVERYTHING = """\
spec:
  resourceUsedThresholdWithBE:
    enable: true
    cpuSuppressPolicy: cfsQuota
    memoryEvictThresholdPercent: 90
    cpuEvictThresholdPercent: 95
    evictEnabledPriorityThreshold: 5999
    cpuEvictBESatisfactionLowerPercent: 30
    cpuEvictBESatisfactionUpperPercent: 50
    cpuAllocatableEvictThresholdPercent: 120
    cpuAllocatableEvictLowerPercent: 100
    memoryAllocatableEvictThresholdPercent: 120
    memoryAllocatableEvictLowerPercent: 100
    allocatableEvictPriorityThreshold: 5999
  cpuBurstStrategy: {policy: auto}
  resourceQOSStrategy:
    lsrClass: {memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 50, oomKillGroup: 1}}
    lsClass: {memoryQOS: {enable: true, minLimitPercent: 20, lowLimitPercent: 50, oomKillGroup: 1}}
    beClass:
      cpuQOS: {enable: true, schedIdle: 1}
      memoryQOS: {enable: true, wmarkRatio: 95}
  systemStrategy: {watermarkScaleFactor: 150}
node:
  features: {AllAlpha: true, BECPUManager: false}
  cpuNormalizationRatio: 1.2
  allocatable: {kubernetes.io/batch-cpu: "2000", kubernetes.io/batch-memory: 20Gi}
  evictionDryRun: true
"""
"""Eviction decides all that it would, and evicts nobody: the pods have to be there for the whole measurement."""

PRESSURE = EVERYTHING + "  cpuSuppress: {policy: pressure}\n"
