package main

import (
	"context"
	"sync"
	"time"
)

// throughput of many callers that share connections. Ratio is the median over pairs of adjacent periods of
// proxied / direct.
type throughput struct {
	Callers     int     `json:"callers"`
	Connections int     `json:"connections"`
	Direct      float64 `json:"direct_per_s"`
	Proxied     float64 `json:"proxied_per_s"`
	Pairs       int     `json:"pairs"`
	Ratio       float64 `json:"ratio"`
}

func measureThroughput(chosen options, connections int) (throughput, error) {
	result := throughput{Callers: chosen.callers, Connections: connections}
	var calls [2][]caller
	for side, socket := range []string{chosen.direct, chosen.proxied} {
		for i := 0; i < connections; i++ {
			call, closeConnection, err := connect(socket, chosen.method)
			if err != nil {
				return result, err
			}
			defer closeConnection()
			calls[side] = append(calls[side], call)
		}
	}
	var rates [2][]float64
	var ratios []float64
	for end, first := time.Now().Add(chosen.throughputFor), 0; time.Now().Before(end); first = 1 - first {
		for _, side := range []int{first, 1 - first} {
			rate, err := ratePerSecond(calls[side], chosen.callers, chosen.period)
			if err != nil {
				return result, err
			}
			rates[side] = append(rates[side], rate)
		}
		last := len(rates[0]) - 1
		ratios = append(ratios, rates[1][last]/rates[0][last])
	}
	result.Direct, result.Proxied = quantile(rates[0], 0.5), quantile(rates[1], 0.5)
	result.Pairs, result.Ratio = len(ratios), quantile(ratios, 0.5)
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
