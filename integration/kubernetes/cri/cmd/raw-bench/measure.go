package main

import (
	"sort"
	"sync"
	"time"
)

// latency alternates blocks of calls between the sockets; each list holds one median per block.
func latency(sockets [2]string, duration time.Duration, block int) (pairs, error) {
	var open [2]*connection
	for side, path := range sockets {
		var err error
		if open[side], err = dial(path); err != nil {
			return pairs{}, err
		}
		defer open[side].socket.Close()
	}
	var medians [2][]float64
	for end, first := time.Now().Add(duration), 0; time.Now().Before(end); first = 1 - first {
		for _, side := range []int{first, 1 - first} {
			median, err := timeBlock(open[side], block)
			if err != nil {
				return pairs{}, err
			}
			medians[side] = append(medians[side], median)
		}
	}
	return pairs{medians[0], medians[1]}, nil
}

func timeBlock(c *connection, count int) (float64, error) {
	samples := make([]float64, count)
	for i := range samples {
		started := time.Now()
		if err := c.calls(1, 1); err != nil {
			return 0, err
		}
		samples[i] = float64(time.Since(started).Nanoseconds()) / 1000
	}
	sort.Float64s(samples)
	return samples[count/2], nil
}

// throughput alternates periods between the sockets, with `callers` calls open over all connections together.
func throughput(sockets [2]string, duration, period time.Duration, callers, connections int) (pairs, error) {
	var open [2][]*connection
	for side, path := range sockets {
		for i := 0; i < connections; i++ {
			c, err := dial(path)
			if err != nil {
				return pairs{}, err
			}
			defer c.socket.Close()
			open[side] = append(open[side], c)
		}
	}
	var measured [2][]float64
	for end, first := time.Now().Add(duration), 0; time.Now().Before(end); first = 1 - first {
		for _, side := range []int{first, 1 - first} {
			rate, err := ratePerSecond(open[side], callers/connections, period)
			if err != nil {
				return pairs{}, err
			}
			measured[side] = append(measured[side], rate)
		}
	}
	return pairs{measured[0], measured[1]}, nil
}

const batch = 64 // calls between two looks at the clock, for each call that is open

func ratePerSecond(connections []*connection, open int, period time.Duration) (float64, error) {
	counts := make([]int, len(connections))
	failures := make([]error, len(connections))
	started := time.Now()
	var group sync.WaitGroup
	for i, c := range connections {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Since(started) < period && failures[i] == nil {
				failures[i] = c.calls(batch*open, open)
				counts[i] += batch * open
			}
		}()
	}
	group.Wait()
	elapsed, total := time.Since(started).Seconds(), 0
	for i, failure := range failures {
		if failure != nil {
			return 0, failure
		}
		total += counts[i]
	}
	return float64(total) / elapsed, nil
}
