package main

import (
	"math/rand"
	"sync"
	"time"
)

// dialAll opens `count` connections to each of the sides, warmed up, in their order.
func dialAll(chosen options, count int) (open [][]*connection, closeAll func(), err error) {
	closeAll = func() {
		for _, connections := range open {
			for _, c := range connections {
				c.socket.Close()
			}
		}
	}
	for _, each := range chosen.sides {
		open = append(open, nil)
		for i := 0; i < count; i++ {
			c, err := dial(each.Path, chosen.call, chosen.warmUp)
			if err != nil {
				closeAll()
				return nil, nil, err
			}
			open[len(open)-1] = append(open[len(open)-1], c)
		}
	}
	return open, closeAll, nil
}

// latency takes turns of one block of calls on each side, and renews the connections of all sides together: what a
// connection's threads and buffers are like is settled when it is opened.
func latency(chosen options) (map[string][][]float64, error) {
	blocks := map[string][][]float64{}
	lot := rand.New(rand.NewSource(chosen.seed))
	for end := time.Now().Add(chosen.latencyFor); time.Now().Before(end); {
		if err := latencyOfConnections(chosen, lot, blocks); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

func latencyOfConnections(chosen options, lot *rand.Rand, blocks map[string][][]float64) error {
	open, closeAll, err := dialAll(chosen, 1)
	if err != nil {
		return err
	}
	defer closeAll()
	for range chosen.blocks {
		for _, i := range lot.Perm(len(chosen.sides)) {
			block, err := timeBlock(open[i][0], chosen.block)
			if err != nil {
				return err
			}
			blocks[chosen.sides[i].Name] = append(blocks[chosen.sides[i].Name], block)
		}
	}
	return nil
}

func timeBlock(c *connection, count int) ([]float64, error) {
	samples := make([]float64, count)
	for i := range samples {
		started := time.Now()
		if err := c.calls(1, 1); err != nil {
			return nil, err
		}
		samples[i] = microseconds(time.Since(started))
	}
	return samples, nil
}

func microseconds(took time.Duration) float64 { return float64(took.Nanoseconds()) / 1000 }

// throughput takes turns of a period on each side, with `callers` calls open over all connections together.
func throughput(chosen options, connections int) (map[string][]float64, error) {
	open, closeAll, err := dialAll(chosen, connections)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	measured := map[string][]float64{}
	lot := rand.New(rand.NewSource(chosen.seed))
	for end := time.Now().Add(chosen.throughputFor); time.Now().Before(end); {
		for _, i := range lot.Perm(len(chosen.sides)) {
			rate, err := ratePerSecond(open[i], chosen.callers/connections, chosen.period)
			if err != nil {
				return nil, err
			}
			measured[chosen.sides[i].Name] = append(measured[chosen.sides[i].Name], rate)
		}
	}
	return measured, nil
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
