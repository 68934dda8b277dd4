"""What the manager's caches have of objects that there are thousands of: as much as it has a use for, small.

pods          without volumes and most of the status, and with what each counts in its node's offer
nodemetrics   packed, and read where a node is looked at
nodeslos      the specs, of which most are equal
topologies    the CPU model
"""
