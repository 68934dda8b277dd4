// Command cri-bench measures CRI calls on two sockets, direct and proxied, with kubelet's gRPC library and dial options.
//
// Both sockets are measured in one run, interleaved, because a machine's speed varies by the minute: latency in small
// blocks of calls that alternate, throughput in short periods that alternate. The figure that matters is the difference
// within a pair. One JSON object on stdout; times in microseconds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
)

type options struct {
	direct, proxied string
	method          string
	latencyFor      time.Duration
	throughputFor   time.Duration
	period          time.Duration
	block           int
	callers         int
	connections     []int
}

type report struct {
	Method     string       `json:"method"`
	Latency    *latency     `json:"latency,omitempty"`
	Throughput []throughput `json:"throughput,omitempty"`
}

func main() {
	chosen, err := parse(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	result := report{Method: chosen.method}
	if chosen.latencyFor > 0 {
		if result.Latency, err = measureLatency(chosen); err != nil {
			log.Fatal(err)
		}
	}
	for _, connections := range chosen.connections {
		if chosen.throughputFor == 0 {
			break
		}
		measured, err := measureThroughput(chosen, connections)
		if err != nil {
			log.Fatal(err)
		}
		result.Throughput = append(result.Throughput, measured)
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		log.Fatal(err)
	}
}

func parse(arguments []string) (options, error) {
	var chosen options
	flags := flag.NewFlagSet("cri-bench", flag.ExitOnError)
	flags.StringVar(&chosen.direct, "direct", "", "the runtime's own socket")
	flags.StringVar(&chosen.proxied, "proxied", "", "the proxy's socket")
	flags.StringVar(&chosen.method, "method", "Version", "Version, Status, ListPodSandbox, ListContainers or ListImages")
	flags.DurationVar(&chosen.latencyFor, "latency", 10*time.Second, "how long to measure latency; 0 = not at all")
	flags.DurationVar(&chosen.throughputFor, "throughput", 10*time.Second, "how long to measure throughput for each entry of -connections; 0 = not at all")
	flags.DurationVar(&chosen.period, "period", 500*time.Millisecond, "length of one throughput period on one socket")
	flags.IntVar(&chosen.block, "block", 20, "calls in one latency block on one socket")
	flags.IntVar(&chosen.callers, "callers", 8, "concurrent callers when measuring throughput")
	connections := flags.String("connections", "1,8", "numbers of connections that the callers share, by commas")
	if err := flags.Parse(arguments); err != nil {
		return chosen, err
	}
	for _, word := range strings.Split(*connections, ",") {
		number, err := strconv.Atoi(word)
		if err != nil || number < 1 {
			return chosen, fmt.Errorf("-connections: not a positive number: %q", word)
		}
		chosen.connections = append(chosen.connections, number)
	}
	if chosen.direct == "" || chosen.proxied == "" {
		return chosen, fmt.Errorf("-direct and -proxied are required")
	}
	if chosen.block < 1 || chosen.callers < 1 || chosen.period <= 0 {
		return chosen, fmt.Errorf("-block, -callers and -period must be positive")
	}
	return chosen, nil
}
