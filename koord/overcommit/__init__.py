"""Overcommit: what a node offers again of what its pods requested and do not use, and how that gets onto the Node.

``offer.offer`` is the formula, ``growth.step`` says when its result is shown, ``publish.decide`` what is written for
that, and ``explain.lines`` puts all of it into words. ``normalization`` and ``amplification`` are the two ratios of a
node, ``overallocation`` is what pods hold beyond the offer. All of it is pure.
"""
