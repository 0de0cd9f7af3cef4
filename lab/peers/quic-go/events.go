package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// facts is what one end knows of a connection.
type facts struct {
	Version    string `json:"version"`
	ALPN       string `json:"alpn"`
	Resumed    bool   `json:"resumed"`
	EarlyData  bool   `json:"early_data"`
	Retry      bool   `json:"retry"`
	KeyUpdates *int64 `json:"key_updates,omitempty"`
}

func factsOf(conn *quic.Conn, retry bool) facts {
	state := conn.ConnectionState()
	return facts{
		Version:   fmt.Sprintf("0x%08x", uint32(state.Version)),
		ALPN:      state.TLS.NegotiatedProtocol,
		Resumed:   state.TLS.DidResume,
		EarlyData: state.Used0RTT,
		Retry:     retry,
	}
}

type connectionEvent struct {
	Event      string `json:"event"`
	Connection int    `json:"connection"`
	facts
}

type closedEvent struct {
	Event      string `json:"event"`
	Connection int    `json:"connection"`
	Streams    int64  `json:"streams"`
	facts
}

type fileEvent struct {
	Event      string `json:"event"`
	Connection int    `json:"connection"`
	Path       string `json:"path"`
	Bytes      int    `json:"bytes"`
	SHA256     string `json:"sha256"`
}

type echoEvent struct {
	Event         string `json:"event"`
	Connection    int    `json:"connection"`
	Streams       uint   `json:"streams"`
	Datagrams     uint   `json:"datagrams"`
	DatagramsLost uint   `json:"datagrams_lost"`
}

var outputMutex sync.Mutex

func emit(event any) {
	outputMutex.Lock()
	defer outputMutex.Unlock()
	// A closed standard output is no error: whoever started the peer has lost interest.
	_ = json.NewEncoder(os.Stdout).Encode(event)
}

func emitError(message string) {
	emit(map[string]string{"event": "error", "message": message})
}

// counts is what the driver asks about and quic-go tells only to qlog, on its way to the file that
// QLOGDIR asks for.
type counts struct {
	keysUpdated, retries atomic.Int64
	file                 qlogwriter.Trace
}

// recorder passes on what it counts.
type recorder struct {
	*counts
	file qlogwriter.Recorder
}

// keyUpdates counts each update once: it changes the keys of both directions, each an event.
func (c *counts) keyUpdates() *int64 {
	updates := c.keysUpdated.Load() / 2
	return &updates
}

func (c *counts) AddProducer() qlogwriter.Recorder {
	if c.file == nil {
		return &recorder{c, nil}
	}
	return &recorder{c, c.file.AddProducer()}
}

func (c *counts) SupportsSchemas(schema string) bool { return schema == qlog.EventSchema }

func (r *recorder) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func (c *recorder) RecordEvent(event qlogwriter.Event) {
	if c.file != nil {
		c.file.RecordEvent(event)
	}
	switch event := event.(type) {
	case qlog.KeyUpdated:
		if event.Trigger == qlog.KeyUpdateLocal || event.Trigger == qlog.KeyUpdateRemote {
			c.keysUpdated.Add(1)
		}
	case qlog.PacketReceived:
		if event.Header.PacketType == qlog.PacketTypeRetry {
			c.retries.Add(1)
		}
	}
}

func newCounts(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
	// A nil that has a type is not equal to nil.
	if file := qlog.DefaultConnectionTracer(ctx, isClient, id); file != nil {
		return &counts{file: file}
	}
	return &counts{}
}

// keyLog opens the file for TLS secrets that SSLKEYLOGFILE names; without, they go nowhere.
func keyLog() (io.Writer, error) {
	name := os.Getenv("SSLKEYLOGFILE")
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func countsOf(conn *quic.Conn) *counts { return conn.QlogTrace().(*counts) }
