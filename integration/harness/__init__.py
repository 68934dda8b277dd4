"""Starts and removes the real parts that tests, demo, storm and bench share.

Invariant: an object that makes something (process, mount, cgroup, interface, directory, sysctl) removes it in its own
``close()``, also after a failure, and touches nothing that it did not make.
"""
