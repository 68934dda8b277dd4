"""Peak prediction: the future need of pods, classes and the node, learnt from their use, with its confidence."""
