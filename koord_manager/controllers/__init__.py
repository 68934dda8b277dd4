"""The leader's controllers: each looks at one node and makes of it what it is to be.

They are level-triggered: desired = f(observed), written only where it differs, and called again after any change.
"""
