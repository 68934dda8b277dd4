package main

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

const fifoPriority = 10

// A plannedTurn is the calls of one turn on one side, at intended instants after its beginning.
type plannedTurn struct {
	Side string    `json:"side"`
	Due  []float64 `json:"due_us"` // rising
}

// openLoop makes the planned turns one after the other.
//
// The client must be no part of the figure. Its one thread runs under SCHED_FIFO, sleeps until the next instant or
// answer in ppoll (Go's own timers are as coarse as epoll's milliseconds), and nothing is collected as garbage. How
// late it nevertheless sends is reported beside.
func openLoop(chosen options, plan []plannedTurn) (turns map[string][][]float64, late []float64, err error) {
	open, closeAll, err := dialAll(chosen, 1)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll()
	connections := map[string]*connection{}
	for i, each := range chosen.sides {
		connections[each.Name] = open[i][0]
	}
	debug.SetGCPercent(-1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: fifoPriority}
	if err := unix.SchedSetAttr(0, &fifo, 0); err != nil {
		return nil, nil, fmt.Errorf("SCHED_FIFO: %w", err)
	}
	turns = map[string][][]float64{}
	for _, planned := range plan {
		turn := openTurn{connection: connections[planned.Side]}
		if turn.connection == nil {
			return nil, nil, fmt.Errorf("-open: a turn of %q, which is no -side", planned.Side)
		}
		for _, due := range planned.Due {
			turn.due = append(turn.due, time.Duration(due*float64(time.Microsecond)))
		}
		if err := turn.run(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", planned.Side, err)
		}
		turns[planned.Side] = append(turns[planned.Side], turn.latencies)
		late = append(late, turn.late...)
	}
	return turns, late, nil
}

type openTurn struct {
	*connection
	due             []time.Duration
	latencies, late []float64 // microseconds
}

func (t *openTurn) run() error {
	if err := t.socket.SetDeadline(time.Time{}); err != nil {
		return err
	}
	t.out = t.out[:0]
	began, first := time.Now(), t.stream
	for sent := 0; len(t.latencies) < len(t.due); {
		for ; sent < len(t.due) && time.Since(began) >= t.due[sent]; sent++ {
			if _, err := t.socket.Write(t.next()); err != nil {
				return err
			}
			t.late = append(t.late, microseconds(time.Since(began)-t.due[sent]))
		}
		wait := answerWithin
		if sent < len(t.due) {
			wait = max(0, t.due[sent]-time.Since(began))
		}
		readable, err := readableWithin(t.socket.(*net.UnixConn), wait)
		if err != nil {
			return err
		}
		if !readable && sent == len(t.due) {
			return fmt.Errorf("%d of %d calls without an answer for %v", len(t.due)-len(t.latencies), len(t.due), answerWithin)
		}
		if !readable {
			continue
		}
		if err := t.read(); err != nil {
			return err
		}
		now := time.Since(began)
		if len(t.out) > 0 {
			if _, err := t.socket.Write(t.out); err != nil {
				return err
			}
			t.out = t.out[:0]
		}
		for _, stream := range t.ended {
			t.latencies = append(t.latencies, microseconds(now-t.due[(stream-first)/2]))
		}
	}
	return nil
}

func readableWithin(socket *net.UnixConn, wait time.Duration) (bool, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	timeout, ready, failure := unix.NsecToTimespec(wait.Nanoseconds()), 0, error(unix.EINTR)
	err = raw.Control(func(descriptor uintptr) {
		for failure == unix.EINTR {
			ready, failure = unix.Ppoll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, &timeout, nil)
		}
	})
	return ready > 0, errors.Join(err, failure)
}
