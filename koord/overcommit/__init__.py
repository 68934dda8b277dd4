"""Overcommit: what a node offers again of what its pods requested and do not use, and how that gets onto the Node.

``offer.offer`` is the formula by a ``strategy``, of what the Node (``nodeamounts``), its pods (``demand``) and its
NodeMetric (``report``) say; ``publish`` decides how much of its result the Node shows and what is written for that, and
``explain.lines`` puts all of it into words. ``ratios`` are the two ratios of a node. All of it is pure.
"""
