package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	readBytes    = 1 << 16
	headerBytes  = 9
	largest      = 1<<31 - 1
	initial      = 65535
	answerWithin = 10 * time.Second
)

var noError = make([]byte, 4)

// A call is made again and again, and answered alike each time.
type call struct {
	path    string
	message []byte // with gRPC's five bytes before it
	status  string // grpc-status of its answers
}

// version is VersionRequest{version: "0.1.0"}.
var version = call{"/runtime.v1.RuntimeService/Version", []byte("\x00\x00\x00\x00\x07\x0a\x050.1.0"), "0"}

// connection is an HTTP/2 client that can do one thing: make its call.
type connection struct {
	socket  net.Conn
	call    call
	request []byte // HEADERS and DATA; only the stream ids in them change
	data    int    // where DATA begins in request
	stream  uint32
	rest    []byte   // the beginning of an incomplete frame
	ended   []uint32 // streams that the last read saw answered
	buffer  []byte
	out     []byte
}

// dial connects, makes one call whose answer is checked, and warms up.
func dial(path string, made call, warmUpCalls int) (*connection, error) {
	socket, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &connection{socket: socket, call: made, stream: 1, buffer: make([]byte, readBytes)}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	if err := c.first(c.encodeRequest(encoder, &block)); err != nil {
		return nil, fmt.Errorf("%s: first call: %w", path, err)
	}
	c.prepare(c.encodeRequest(encoder, &block)) // the second block refers to the table and never changes again
	if err := c.calls(warmUpCalls, 1); err != nil {
		return nil, fmt.Errorf("%s: warm-up: %w", path, err)
	}
	return c, nil
}

func (c *connection) encodeRequest(encoder *hpack.Encoder, block *bytes.Buffer) []byte {
	block.Reset()
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", c.call.path},
		{":authority", "localhost"}, {"content-type", "application/grpc"}, {"user-agent", "raw-bench"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			panic(err) // a bytes.Buffer does not fail
		}
	}
	return append([]byte(nil), block.Bytes()...)
}

func (c *connection) prepare(block []byte) {
	c.request = frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, block)
	c.data = len(c.request)
	c.request = append(c.request, frame(http2.FrameData, http2.FlagDataEndStream, c.call.message)...)
}

func frame(kind http2.FrameType, flags http2.Flags, payload []byte) []byte {
	size := len(payload)
	head := []byte{byte(size >> 16), byte(size >> 8), byte(size), byte(kind), byte(flags), 0, 0, 0, 0}
	return append(head, payload...)
}

// first opens the connection with windows that never run out, calls, and checks status and answer.
func (c *connection) first(block []byte) error {
	framer := http2.NewFramer(c.socket, c.socket)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := c.socket.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: largest}); err != nil {
		return err
	}
	if err := framer.WriteWindowUpdate(0, largest-initial); err != nil {
		return err
	}
	c.prepare(block)
	if _, err := c.socket.Write(c.next()); err != nil {
		return err
	}
	for {
		received, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		switch received := received.(type) {
		case *http2.SettingsFrame:
			if !received.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			err = framer.WritePing(true, received.Data)
		case *http2.MetaHeadersFrame:
			if received.StreamEnded() {
				return c.check(received)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (c *connection) check(trailers *http2.MetaHeadersFrame) error {
	for _, field := range trailers.RegularFields() {
		if field.Name == "grpc-status" && field.Value == c.call.status {
			return nil
		}
	}
	return fmt.Errorf("answered with %v", trailers.Fields)
}

// next is one request, valid until the following call of next.
func (c *connection) next() []byte {
	binary.BigEndian.PutUint32(c.request[5:], c.stream)
	binary.BigEndian.PutUint32(c.request[c.data+5:], c.stream)
	c.stream += 2
	return c.request
}

// calls makes `count` calls, `open` of them at any time.
func (c *connection) calls(count, open int) error {
	if err := c.socket.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	c.out = c.out[:0]
	for i := 0; i < open && i < count; i++ {
		c.out = append(c.out, c.next()...)
	}
	for sent, answered := min(open, count), 0; answered < count; {
		if _, err := c.socket.Write(c.out); err != nil {
			return err
		}
		c.out = c.out[:0]
		if err := c.read(); err != nil {
			return err
		}
		ended := len(c.ended)
		answered += ended
		for ; ended > 0 && sent < count; ended, sent = ended-1, sent+1 {
			c.out = append(c.out, c.next()...)
		}
	}
	return nil
}

// read takes what has arrived and notes the answers that ended; what must be answered at once is added to c.out.
func (c *connection) read() error {
	size, err := c.socket.Read(c.buffer)
	if err != nil {
		return err
	}
	data := append(c.rest, c.buffer[:size]...)
	c.ended = c.ended[:0]
	for len(data) >= headerBytes {
		end := headerBytes + (int(data[0])<<16 | int(data[1])<<8 | int(data[2]))
		if len(data) < end {
			break
		}
		switch kind, flags := http2.FrameType(data[3]), http2.Flags(data[4]); {
		case kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream):
			c.ended = append(c.ended, binary.BigEndian.Uint32(data[5:])&largest)
		case kind == http2.FramePing && !flags.Has(http2.FlagPingAck):
			c.out = append(c.out, frame(http2.FramePing, http2.FlagPingAck, data[headerBytes:end])...)
		case kind == http2.FrameSettings && !flags.Has(http2.FlagSettingsAck):
			c.out = append(c.out, frame(http2.FrameSettings, http2.FlagSettingsAck, nil)...)
		case kind == http2.FrameRSTStream && binary.BigEndian.Uint32(data[headerBytes:]) == uint32(http2.ErrCodeNo):
			// The server had answered before it saw the end of the request; the answer has been counted.
		case kind == http2.FrameRSTStream && bytes.Equal(data[headerBytes:end], noError):
			// grpc-go, when it has answered before its reader saw that the request had ended
		case kind == http2.FrameGoAway || kind == http2.FrameRSTStream:
			return fmt.Errorf("%v: % x", kind, data[headerBytes:end])
		}
		data = data[end:]
	}
	c.rest = append(c.rest[:0], data...)
	if len(c.out) > 0 && len(c.ended) == 0 {
		if _, err := c.socket.Write(c.out); err != nil {
			return err
		}
		c.out = c.out[:0]
	}
	return nil
}
