"""Installing Koord on this node and removing it without a trace.

``prepare`` gathers what there is, ``plan`` (pure) makes the steps of it or says why not, ``execute`` carries them out
with a ``record`` that is written before each step, so that what a kill leaves behind can be undone from the record
alone. A ``step`` is a value: what it will do, how to do it, and how to undo it; both may be repeated.
"""
