package main

import (
	"context"
	"math/rand"
	"sort"
	"time"
)

const (
	resamples     = 2000
	bootstrapSeed = 1
)

type percentiles struct {
	Calls int     `json:"calls"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
}

// latency of one caller. Paired is the median over pairs of adjacent blocks of (proxied block's median − direct block's
// median); Low and High are its 95 % bootstrap interval.
type latency struct {
	Direct  percentiles `json:"direct"`
	Proxied percentiles `json:"proxied"`
	Pairs   int         `json:"pairs"`
	Paired  float64     `json:"paired_median_us"`
	Low     float64     `json:"paired_low_us"`
	High    float64     `json:"paired_high_us"`
}

func measureLatency(chosen options) (*latency, error) {
	var calls [2]caller
	for i, socket := range []string{chosen.direct, chosen.proxied} {
		call, closeConnection, err := connect(socket, chosen.method)
		if err != nil {
			return nil, err
		}
		defer closeConnection()
		calls[i] = call
	}
	var samples [2][]float64
	var differences []float64
	for end, first := time.Now().Add(chosen.latencyFor), 0; time.Now().Before(end); first = 1 - first {
		var medians [2]float64
		for _, side := range []int{first, 1 - first} {
			block, err := timeBlock(calls[side], chosen.block)
			if err != nil {
				return nil, err
			}
			samples[side] = append(samples[side], block...)
			medians[side] = quantile(block, 0.5)
		}
		differences = append(differences, medians[1]-medians[0])
	}
	low, high := bootstrap(differences)
	return &latency{
		Direct: summary(samples[0]), Proxied: summary(samples[1]),
		Pairs: len(differences), Paired: quantile(differences, 0.5), Low: low, High: high,
	}, nil
}

func timeBlock(call caller, count int) ([]float64, error) {
	block := make([]float64, 0, count)
	for i := 0; i < count; i++ {
		started := time.Now()
		if err := call(context.Background()); err != nil {
			return nil, err
		}
		block = append(block, float64(time.Since(started).Nanoseconds())/1000)
	}
	return block, nil
}

func summary(samples []float64) percentiles {
	return percentiles{Calls: len(samples), P50: quantile(samples, 0.5), P99: quantile(samples, 0.99)}
}

// quantile by linear interpolation between order statistics; the samples are not changed.
func quantile(samples []float64, q float64) float64 {
	sorted := append([]float64(nil), samples...)
	sort.Float64s(sorted)
	position := q * float64(len(sorted)-1)
	index := int(position)
	if index+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	rest := position - float64(index)
	return sorted[index]*(1-rest) + sorted[index+1]*rest
}

// bootstrap returns the 95 % interval of the median by resampling.
func bootstrap(values []float64) (float64, float64) {
	random := rand.New(rand.NewSource(bootstrapSeed))
	medians := make([]float64, resamples)
	resample := make([]float64, len(values))
	for i := range medians {
		for j := range resample {
			resample[j] = values[random.Intn(len(values))]
		}
		medians[i] = quantile(resample, 0.5)
	}
	return quantile(medians, 0.025), quantile(medians, 0.975)
}
