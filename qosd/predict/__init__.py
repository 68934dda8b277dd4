"""Peak prediction: what pods, classes and the node will need, learnt from what they used, with its confidence."""
