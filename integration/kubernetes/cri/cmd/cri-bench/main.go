// Command cri-bench measures CRI calls on several sockets with kubelet's gRPC library and dial options.
//
// All sockets are measured in one run, because a machine's speed varies by the minute: blocks of calls (latency) and
// periods (throughput) take turns between the sockets, in an order drawn by lot. What belongs together is at the same
// index of each socket's list. One JSON object on stdout; latencies in microseconds, rates in calls per second.
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

	"koord/integration/cri/internal/sides"
)

type options struct {
	sides         sides.List
	method        string
	latencyFor    time.Duration
	throughputFor time.Duration
	period        time.Duration
	block, blocks int
	callers       int
	connections   []int
	seed          int64
}

type report struct {
	Method     string                 `json:"method"`
	Latency    map[string][][]float64 `json:"latency_us,omitempty"` // by socket's name: blocks of calls
	Throughput []rates                `json:"throughput,omitempty"`
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
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
}

func parse(arguments []string) (options, error) {
	var chosen options
	flags := flag.NewFlagSet("cri-bench", flag.ExitOnError)
	flags.Var(&chosen.sides, "side", "name=path of a socket; once for each")
	flags.StringVar(&chosen.method, "method", "Version", "Version, Status, ListPodSandbox, ListContainers or ListImages")
	flags.DurationVar(&chosen.latencyFor, "latency", 10*time.Second, "how long to measure latency; 0 = not at all")
	flags.DurationVar(&chosen.throughputFor, "throughput", 10*time.Second, "how long to measure throughput for each entry of -connections; 0 = not at all")
	flags.DurationVar(&chosen.period, "period", 500*time.Millisecond, "length of one turn of a socket when measuring throughput")
	flags.IntVar(&chosen.block, "block", 20, "calls in one turn of a socket when measuring latency")
	flags.IntVar(&chosen.blocks, "blocks", 50, "blocks of a socket before all connections are renewed, when measuring latency")
	flags.IntVar(&chosen.callers, "callers", 8, "concurrent callers when measuring throughput")
	flags.Int64Var(&chosen.seed, "seed", 1, "of the order of the sockets")
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
	if len(chosen.sides) == 0 {
		return chosen, fmt.Errorf("-side is required")
	}
	if chosen.block < 1 || chosen.blocks < 1 || chosen.callers < 1 || chosen.period <= 0 {
		return chosen, fmt.Errorf("-block, -blocks, -callers and -period must be positive")
	}
	return chosen, nil
}
