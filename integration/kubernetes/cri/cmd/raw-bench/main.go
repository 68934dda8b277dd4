// Command raw-bench measures CRI's Version on two sockets, direct and proxied, with next to no client.
//
// kubelet's gRPC library costs more per call than a relay does, and that hides the relay's cost when both share the
// CPUs. Here a request is two frames that were encoded beforehand, and an answer is counted, not decoded. Blocks and
// periods alternate between the sockets, because a machine's speed varies by the minute; what belongs together is at
// the same index of the two lists. One JSON object on stdout; latencies in microseconds, rates in calls per second.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

type report struct {
	Latency    pairs   `json:"latency_us"` // medians of adjacent blocks
	Throughput []rates `json:"throughput"`
}

type pairs struct {
	Direct  []float64 `json:"direct"`
	Proxied []float64 `json:"proxied"`
}

type rates struct {
	Callers     int   `json:"callers"`
	Connections int   `json:"connections"`
	PerSecond   pairs `json:"per_s"`
}

func main() {
	direct := flag.String("direct", "", "the runtime's own socket")
	proxied := flag.String("proxied", "", "the proxy's socket")
	latencyFor := flag.Duration("latency", 10*time.Second, "how long to measure latency")
	throughputFor := flag.Duration("throughput", 10*time.Second, "how long to measure throughput, for each number of connections")
	period := flag.Duration("period", 500*time.Millisecond, "length of one throughput period on one socket")
	block := flag.Int("block", 50, "calls in one latency block on one socket")
	callers := flag.Int("callers", 8, "calls that are open at any time when measuring throughput")
	flag.Parse()
	if *direct == "" || *proxied == "" || *block < 1 || *callers < 1 || *period <= 0 {
		log.Fatal("-direct and -proxied are required; -block, -callers and -period must be positive")
	}
	sockets := [2]string{*direct, *proxied}
	result := report{}
	var err error
	if result.Latency, err = latency(sockets, *latencyFor, *block); err != nil {
		log.Fatal(err)
	}
	for _, connections := range []int{1, *callers} {
		measured, err := throughput(sockets, *throughputFor, *period, *callers, connections)
		if err != nil {
			log.Fatal(err)
		}
		result.Throughput = append(result.Throughput, rates{*callers, connections, measured})
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(fmt.Errorf("stdout: %w", err))
	}
}
