"""The frame relay: connections of CRI clients passed to the runtime frame by frame, a few streams held on the way."""
