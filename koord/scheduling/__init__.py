"""Where pods can go and where they should: the state of a cluster in columns, and what decides by it.

``ClusterState`` holds one column per figure over all nodes, ``Plugin`` filters and scores all nodes at once, and
``Framework`` makes one decision of its plugins. No clock, no network, no thread: the scheduler, the descheduler and a
simulation put events in and read decisions.

Sources of the rules: pkg/scheduler of Kubernetes 1.28 to 1.36.
"""
