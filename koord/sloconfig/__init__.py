"""The ConfigMap ``slo-controller-config``: what an administrator writes once, and what it means for each node.

``rows.ROWS`` is the table of its keys, ``loading.load`` reads it, ``config.SLOConfig`` answers for a node, and
``checks.check`` says what is wrong with it before it is stored. All of it is pure.
"""
