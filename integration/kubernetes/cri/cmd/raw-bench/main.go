// Command raw-bench measures a CRI call, Version by default, on several sockets, with next to no client.
//
// kubelet's gRPC library costs more per call than a relay does, and that hides the relay's cost when both share the
// CPUs. Here a request is two frames that were encoded beforehand, and an answer is counted, not decoded. Blocks and
// periods take turns between the sockets, in an order drawn by lot, because a machine's speed varies by the minute;
// what belongs together is at the same index of each socket's list. One JSON object on stdout; latencies in
// microseconds, rates in calls per second.
//
// With -open, requests are sent at the instants that standard input plans (a JSON list of turns, see open.go), whether
// or not earlier ones are answered, and latency counts from the intended instant: a stall counts for every call that it
// meets.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"koord/integration/cri/internal/sides"
)

type report struct {
	Latency    map[string][][]float64 `json:"latency_us,omitempty"` // by socket's name: blocks of calls
	Throughput []rates                `json:"throughput,omitempty"`
	Late       []float64              `json:"sent_late_us,omitempty"` // -open: how late the client itself was
}

type rates struct {
	Callers     int                  `json:"callers"`
	Connections int                  `json:"connections"`
	PerSecond   map[string][]float64 `json:"per_s"`
}

const largestMessage = 16<<10 - 5 // with its prefix, one frame of HTTP/2's default size

type options struct {
	call                      call
	sides                     sides.List
	latencyFor, throughputFor time.Duration
	period                    time.Duration
	block, blocks, callers    int
	open                      bool
	seed                      int64
	warmUp                    int
}

func main() {
	chosen, err := parse(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	var result report
	if chosen.open {
		var plan []plannedTurn
		if err = json.NewDecoder(os.Stdin).Decode(&plan); err == nil {
			result.Latency, result.Late, err = openLoop(chosen, plan)
		}
	} else {
		err = closedLoop(chosen, &result)
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(fmt.Errorf("stdout: %w", err))
	}
}

func closedLoop(chosen options, result *report) (err error) {
	if chosen.latencyFor > 0 {
		if result.Latency, err = latency(chosen); err != nil {
			return err
		}
	}
	for _, connections := range []int{1, chosen.callers} {
		if chosen.throughputFor == 0 {
			break
		}
		measured, err := throughput(chosen, connections)
		if err != nil {
			return err
		}
		result.Throughput = append(result.Throughput, rates{chosen.callers, connections, measured})
	}
	return nil
}

func parse(arguments []string) (options, error) {
	chosen := options{call: version}
	flags := flag.NewFlagSet("raw-bench", flag.ExitOnError)
	flags.Var(&chosen.sides, "side", "name=path of a socket; once for each")
	flags.DurationVar(&chosen.latencyFor, "latency", 10*time.Second, "how long to measure latency; 0 = not at all")
	flags.DurationVar(&chosen.throughputFor, "throughput", 10*time.Second, "how long to measure throughput, for each number of connections; 0 = not at all")
	flags.BoolVar(&chosen.open, "open", false, "latency of calls at the instants that standard input plans, and nothing else")
	flags.DurationVar(&chosen.period, "period", 500*time.Millisecond, "length of one turn of a socket in -throughput")
	flags.IntVar(&chosen.block, "block", 50, "calls in one turn of a socket in -latency")
	flags.IntVar(&chosen.blocks, "blocks", 20, "blocks of a socket in -latency before all connections are renewed")
	flags.IntVar(&chosen.warmUp, "warm-up", 500, "calls on a new connection that are not measured")
	flags.IntVar(&chosen.callers, "callers", 8, "calls that are open at any time when measuring throughput")
	flags.Int64Var(&chosen.seed, "seed", 1, "of everything that is drawn by lot")
	flags.StringVar(&chosen.call.path, "path", version.path, "/package.Service/Method to call")
	flags.StringVar(&chosen.call.status, "status", version.status, "grpc-status of its answers")
	message := flags.String("message", "", "its request in base64, at most 16 KiB; without it, Version's")
	if err := flags.Parse(arguments); err != nil {
		return chosen, err
	}
	if len(chosen.sides) == 0 || chosen.block < 1 || chosen.blocks < 1 || chosen.callers < 1 || chosen.period <= 0 {
		return chosen, fmt.Errorf("-side is required; -block, -blocks, -callers and -period must be positive")
	}
	if *message != "" {
		encoded, err := base64.StdEncoding.DecodeString(*message)
		if err != nil || len(encoded) > largestMessage {
			return chosen, fmt.Errorf("-message: %d bytes, %v", len(encoded), err)
		}
		chosen.call.message = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(encoded))), encoded...)
	}
	return chosen, nil
}
