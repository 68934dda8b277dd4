"""CPU burst: the parts of the strategy ``cpuBurst``.

candidates  which containers may burst, from which quota, and how
bucket      for how long
sharepool   whether the node has CPU for it
steps       by how much at a time
rounds      the next quota of each container
strategy    the opinions on kernel files
"""
