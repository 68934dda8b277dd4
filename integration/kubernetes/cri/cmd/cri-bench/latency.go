package main

import (
	"context"
	"math/rand"
	"time"
)

// measureLatency takes turns of one block of calls on each side; microseconds by the side's name.
//
// How threads and goroutines of a connection come to lie is settled when it is opened, and makes some slower than
// others. So connections are renewed on all sides together: what belongs to one of them is the sample.
func measureLatency(chosen options) (map[string][][]float64, error) {
	blocks := map[string][][]float64{}
	lot := rand.New(rand.NewSource(chosen.seed))
	for end := time.Now().Add(chosen.latencyFor); time.Now().Before(end); {
		if err := measureConnections(chosen, lot, blocks); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

func measureConnections(chosen options, lot *rand.Rand, blocks map[string][][]float64) error {
	calls := make([]caller, len(chosen.sides))
	for i, each := range chosen.sides {
		call, closeConnection, err := connect(each.Path, chosen.method)
		if err != nil {
			return err
		}
		defer closeConnection()
		calls[i] = call
	}
	for range chosen.blocks {
		for _, i := range lot.Perm(len(calls)) {
			block, err := timeBlock(calls[i], chosen.block)
			if err != nil {
				return err
			}
			blocks[chosen.sides[i].Name] = append(blocks[chosen.sides[i].Name], block)
		}
	}
	return nil
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
