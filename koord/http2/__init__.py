"""HTTP/2 as far as Koord's node processes need it: frames, header blocks, and unary gRPC on unix sockets.

The proxy relays frames with it and asks hook servers; qosd answers hook calls with it. A gRPC library costs either
process three times the latency of a call and most of its memory. What is called rarely (NodeInspect) uses grpcio.
"""
