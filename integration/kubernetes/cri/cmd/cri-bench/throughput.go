package main

import (
	"context"
	"math/rand"
	"sync"
	"time"
)

// rates of many callers that share connections, in calls per second by the side's name.
type rates struct {
	Callers     int                  `json:"callers"`
	Connections int                  `json:"connections"`
	PerSecond   map[string][]float64 `json:"per_s"`
}

// measureThroughput takes turns of one period on each side.
func measureThroughput(chosen options, connections int) (rates, error) {
	result := rates{Callers: chosen.callers, Connections: connections, PerSecond: map[string][]float64{}}
	calls := make([][]caller, len(chosen.sides))
	for i, each := range chosen.sides {
		for range connections {
			call, closeConnection, err := connect(each.Path, chosen.method)
			if err != nil {
				return result, err
			}
			defer closeConnection()
			calls[i] = append(calls[i], call)
		}
	}
	lot := rand.New(rand.NewSource(chosen.seed))
	for end := time.Now().Add(chosen.throughputFor); time.Now().Before(end); {
		for _, i := range lot.Perm(len(calls)) {
			rate, err := ratePerSecond(calls[i], chosen.callers, chosen.period)
			if err != nil {
				return result, err
			}
			result.PerSecond[chosen.sides[i].Name] = append(result.PerSecond[chosen.sides[i].Name], rate)
		}
	}
	return result, nil
}

// ratePerSecond lets callers call for one period; caller i uses connection i modulo their number.
func ratePerSecond(calls []caller, callers int, period time.Duration) (float64, error) {
	counts := make([]int, callers)
	failures := make([]error, callers)
	started := time.Now()
	var group sync.WaitGroup
	for i := 0; i < callers; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			call := calls[i%len(calls)]
			for time.Since(started) < period {
				if failures[i] = call(context.Background()); failures[i] != nil {
					return
				}
				counts[i]++
			}
		}()
	}
	group.Wait()
	elapsed, total := time.Since(started).Seconds(), 0
	for i := range counts {
		if failures[i] != nil {
			return 0, failures[i]
		}
		total += counts[i]
	}
	return float64(total) / elapsed, nil
}
