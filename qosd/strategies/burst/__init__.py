"""CPU burst: what the strategy ``cpuBurst`` is made of.

candidates  which containers may burst, from which quota, and how
bucket      for how long
sharepool   whether the node has CPU for it
steps       by how much at a time
rounds      what becomes of each container's burst
strategy    what is wanted of the kernel's files for it
"""
