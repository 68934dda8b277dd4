"""HTTP/2 as far as Koord's node processes need it: frames, header blocks, and gRPC on unix sockets.

The proxy relays frames with it and asks hook servers; qosd answers hook calls and koordctl with it, and asks the
runtime; koordctl asks qosd. A gRPC library costs a process three times the latency of a call and most of its memory.
"""
