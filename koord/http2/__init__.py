"""HTTP/2 as far as Koord's processes need it: frames, header blocks, gRPC on unix sockets and, for NodeLink, over TLS.

The proxy relays frames with it and asks hook servers; qosd answers hook calls and koordctl with it, asks the runtime,
and reports to koord-manager; koordctl asks qosd. A gRPC library costs a node's process three times the latency of a
call and most of its memory, and the manager half as much CPU again for each report.
"""
