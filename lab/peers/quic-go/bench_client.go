package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	warmUp          = 20
	warmUpEach      = 4
	warmUpExchanges = 200
	settle          = 500 * time.Millisecond
	rest            = 2 * time.Second
	interval        = 100 * time.Millisecond
)

func beUint32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func beUint64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

func appendUint64(b []byte, values ...uint64) []byte {
	for _, value := range values {
		b = binary.BigEndian.AppendUint64(b, value)
	}
	return b
}

// load is a scenario; each kind uses some of the fields.
type load struct {
	Direction    string
	Session      string
	WarmUp       uint64 `json:"warm_up"`
	Bytes        uint64
	Write        uint32
	Milliseconds int64
	Concurrency  int
	Connections  int
}

func (l load) length() time.Duration { return time.Duration(l.Milliseconds) * time.Millisecond }

type benchmark struct {
	transport *quic.Transport
	server    net.Addr
	tls       *tls.Config
	config    *quic.Config
}

// timing collects how long operations took.
type timing struct {
	lock  sync.Mutex
	taken []time.Duration
}

func (t *timing) record(start time.Time) {
	taken := time.Since(start)
	t.lock.Lock()
	t.taken = append(t.taken, taken)
	t.lock.Unlock()
}

func (t *timing) summary(elapsed time.Duration) map[string]any {
	slices.Sort(t.taken)
	count := len(t.taken)
	percentile := func(percent int) float64 {
		if count == 0 {
			return 0
		}
		rank := max((count*percent+99)/100, 1)
		return float64(t.taken[rank-1].Nanoseconds()) / 1000
	}
	return map[string]any{
		"count": count, "per_second": float64(count) / elapsed.Seconds(),
		"p50_us": percentile(50), "p99_us": percentile(99), "max_us": percentile(100),
	}
}

func benchClient(given *assignment) error {
	role := given.Role.Client
	roots, err := readPool(role.Roots)
	if err != nil {
		return err
	}
	server, err := net.ResolveUDPAddr("udp", role.Connect)
	if err != nil {
		return err
	}
	socket, err := benchSocket(":0")
	if err != nil {
		return err
	}
	b := &benchmark{&quic.Transport{Conn: socket}, server, &tls.Config{
		RootCAs: roots, ServerName: benchServerName, NextProtos: []string{benchALPN},
		CurvePreferences: []tls.CurveID{tls.X25519},
	}, benchConfig(given)}
	if given.Conditions.Tickets {
		b.tls.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	}
	var named map[string]load
	if err := json.Unmarshal(role.Scenario, &named); err != nil {
		return err
	}
	for kind, l := range named {
		measurement, err := b.measure(kind, l)
		if err != nil {
			return err
		}
		measurement["message"] = "measured"
		say(measurement)
	}
	return nil
}

func (b *benchmark) measure(kind string, l load) (map[string]any, error) {
	control, err := b.connect("none")
	if err != nil {
		return nil, err
	}
	switch kind {
	case "bulk":
		return b.bulk(control, l)
	case "verify":
		return b.timed(control, func() (any, error) {
			return "passed", b.transfer(control, l.Direction, l.Bytes, true, period)
		})
	case "exchanges":
		return b.exchanges(control, l)
	case "handshakes":
		return b.handshakes(control, l)
	case "first_bytes":
		return b.firstBytes(control, l)
	case "streams":
		return b.downloads(control, slices.Repeat([]*quic.Conn{control}, l.Concurrency), l)
	case "connections":
		conns, err := b.open(l.Connections, false)
		if err != nil {
			return nil, err
		}
		return b.downloads(control, conns, l)
	case "flow":
		return b.flow(control, l)
	case "idle":
		return b.idle(control, l)
	}
	return nil, unsupported("quic-go has no load " + kind)
}

func (b *benchmark) connect(session string) (*quic.Conn, error) {
	if session == "early" {
		return b.transport.DialEarly(context.Background(), b.server, b.tls, b.config)
	}
	return b.transport.Dial(context.Background(), b.server, b.tls, b.config)
}

// timed has the clock run while work is done.
func (b *benchmark) timed(control *quic.Conn, work func() (any, error)) (map[string]any, error) {
	_, server, _, err := askUsage(control)
	if err != nil {
		return nil, err
	}
	client, _, err := usage()
	if err != nil {
		return nil, err
	}
	result, err := work()
	if err != nil {
		return nil, err
	}
	clientAfter, _, err := usage()
	if err != nil {
		return nil, err
	}
	_, serverAfter, _, err := askUsage(control)
	if err != nil {
		return nil, err
	}
	state := control.ConnectionState()
	stats := control.ConnectionStats()
	mean := func(bytes, packets uint64) float64 { return float64(bytes) / float64(max(packets, 1)) }
	link := map[string]any{
		"cipher":                    tls.CipherSuiteName(state.TLS.CipherSuite),
		"mean_udp_payload":          mean(stats.BytesSent, stats.PacketsSent),
		"mean_udp_payload_received": mean(stats.BytesReceived, stats.PacketsReceived),
		"lost_packets":              stats.PacketsLost,
	}
	control.CloseWithError(0, "")
	b.transport.Close()
	return map[string]any{
		"result": result, "client_cpu_ns": clientAfter - client, "server_cpu_ns": serverAfter - server, "link": link,
	}, nil
}

// request sends a request and reads the answer.
func request(conn *quic.Conn, message []byte) ([]byte, error) {
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(message); err != nil {
		return nil, err
	}
	if err := stream.Close(); err != nil {
		return nil, err
	}
	return io.ReadAll(stream)
}

func header(code byte, unique bool, write uint32, value uint64) []byte {
	bytes := make([]byte, headerLength)
	bytes[0] = code
	if unique {
		bytes[1] = 1
	}
	binary.BigEndian.PutUint32(bytes[4:], write)
	binary.BigEndian.PutUint64(bytes[8:], value)
	return bytes
}

func askUsage(conn *quic.Conn) (made, cpu, resident uint64, err error) {
	answer, err := request(conn, header(requestUsage, false, 0, 0))
	if err != nil || len(answer) != 24 {
		return 0, 0, 0, errors.Join(err, fmt.Errorf("%d bytes of usage", len(answer)))
	}
	return beUint64(answer[16:]), beUint64(answer), beUint64(answer[8:]), nil
}

func exchange(conn *quic.Conn, number uint64) error {
	message := bytes.Repeat([]byte{0x5a}, exchangeLength)
	copy(message, header(requestExchange, false, 0, number))
	answer, err := request(conn, message)
	if err == nil && !bytes.Equal(answer, message) {
		err = fmt.Errorf("the answer to exchange %d differs", number)
	}
	return err
}

func (b *benchmark) transfer(conn *quic.Conn, direction string, bytes uint64, unique bool, write uint32) error {
	if direction == "download" {
		return download(conn, bytes, unique, write, make([]byte, period))
	}
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return err
	}
	if _, err := stream.Write(header(requestUpload, unique, 0, bytes)); err != nil {
		return err
	}
	if err := transmit(stream, bytes, unique, write); err != nil {
		return err
	}
	stream.Close()
	answer, err := io.ReadAll(stream)
	if err == nil && (len(answer) != 8 || beUint64(answer) != bytes) {
		err = errors.New("the server confirms another number of bytes")
	}
	return err
}

func download(conn *quic.Conn, bytes uint64, unique bool, write uint32, buffer []byte) error {
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return err
	}
	if _, err := stream.Write(header(requestDownload, unique, write, bytes)); err != nil {
		return err
	}
	stream.Close()
	coming := arrival{unique: unique}
	if err := receive(stream, buffer, coming.take); err != nil {
		return err
	}
	return coming.finish(bytes)
}

func (b *benchmark) bulk(control *quic.Conn, l load) (map[string]any, error) {
	if err := b.transfer(control, l.Direction, l.WarmUp, false, l.Write); err != nil {
		return nil, err
	}
	return b.timed(control, func() (any, error) {
		start := time.Now()
		err := b.transfer(control, l.Direction, l.Bytes, false, l.Write)
		return map[string]any{"bulk": map[string]any{"bytes": l.Bytes, "nanoseconds": time.Since(start).Nanoseconds()}}, err
	})
}

func (b *benchmark) exchanges(control *quic.Conn, l load) (map[string]any, error) {
	for number := range uint64(warmUpExchanges) {
		if err := exchange(control, number); err != nil {
			return nil, err
		}
	}
	return b.timed(control, func() (any, error) {
		return operations(l, 1, func(number uint64, times *timing) error {
			start := time.Now()
			defer times.record(start)
			return exchange(control, number)
		})
	})
}

// operations makes one after the other, so many at a time, and sums them up.
func operations(l load, concurrency int, one func(uint64, *timing) error) (any, error) {
	times, elapsed, err := lanes(concurrency, func(begun uint64, start time.Time) bool {
		return time.Since(start) < l.length()
	}, one)
	return map[string]any{"operations": times.summary(elapsed)}, err
}

func lanes(concurrency int, more func(uint64, time.Time) bool, one func(uint64, *timing) error) (*timing, time.Duration, error) {
	var begun atomic.Uint64
	var group sync.WaitGroup
	times, failures := &timing{}, make([]error, concurrency)
	start := time.Now()
	for lane := range concurrency {
		group.Go(func() {
			for {
				number := begun.Add(1) - 1
				if failures[lane] != nil || !more(number, start) {
					return
				}
				failures[lane] = one(number, times)
			}
		})
	}
	group.Wait()
	return times, time.Since(start), errors.Join(failures...)
}

func (b *benchmark) handshakes(control *quic.Conn, l load) (map[string]any, error) {
	one := func(_ uint64, times *timing) error {
		start := time.Now()
		conn, err := b.connect("none")
		if err != nil {
			return err
		}
		times.record(start)
		return conn.CloseWithError(0, "")
	}
	few := func(begun uint64, _ time.Time) bool { return begun < warmUp }
	if _, _, err := lanes(1, few, one); err != nil {
		return nil, err
	}
	return b.timed(control, func() (any, error) {
		return operations(l, l.Concurrency, one)
	})
}

func (b *benchmark) firstBytes(control *quic.Conn, l load) (map[string]any, error) {
	one := func(session string) func(uint64, *timing) error {
		return func(number uint64, times *timing) error { return b.firstByte(session, number, times) }
	}
	first := func(begun uint64, _ time.Time) bool { return begun < 1 }
	few := func(begun uint64, _ time.Time) bool { return begun < warmUp }
	if _, _, err := lanes(1, first, one("none")); err != nil {
		return nil, err
	}
	if _, _, err := lanes(1, few, one(l.Session)); err != nil {
		return nil, err
	}
	return b.timed(control, func() (any, error) { return operations(l, 1, one(l.Session)) })
}

func (b *benchmark) firstByte(session string, number uint64, times *timing) error {
	start := time.Now()
	conn, err := b.connect(session)
	if err != nil {
		return err
	}
	if err := exchange(conn, number); err != nil {
		return err
	}
	times.record(start)
	if session == "early" {
		<-conn.HandshakeComplete()
		if !conn.ConnectionState().Used0RTT {
			return errors.New("early data was rejected")
		}
		// The first answer came before the ticket for the next connection.
		if err := exchange(conn, number); err != nil {
			return err
		}
	}
	if session == "resumed" && !conn.ConnectionState().TLS.DidResume {
		return errors.New("the server did not resume the session")
	}
	return conn.CloseWithError(0, "")
}

// open opens connections; the server is told to hold them if they are to be idle.
func (b *benchmark) open(count int, hold bool) ([]*quic.Conn, error) {
	conns := make([]*quic.Conn, 0, count)
	for range count {
		conn, err := b.connect("none")
		if err != nil {
			return nil, err
		}
		if hold {
			if _, err := request(conn, header(requestHold, false, 0, 0)); err != nil {
				return nil, err
			}
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// downloads loads each of conns with one download after the other.
func (b *benchmark) downloads(control *quic.Conn, conns []*quic.Conn, l load) (map[string]any, error) {
	run := func(more func(uint64, time.Time) bool) (*timing, time.Duration, error) {
		free := make(chan int, len(conns))
		buffers := make([][]byte, len(conns))
		for lane := range conns {
			free <- lane
			buffers[lane] = make([]byte, min(l.Bytes, period))
		}
		return lanes(len(conns), more, func(_ uint64, times *timing) error {
			lane := <-free
			defer func() { free <- lane }()
			start := time.Now()
			defer times.record(start)
			return download(conns[lane], l.Bytes, false, period, buffers[lane])
		})
	}
	if _, _, err := run(func(begun uint64, _ time.Time) bool { return begun < uint64(max(warmUp, warmUpEach*len(conns))) }); err != nil {
		return nil, err
	}
	return b.timed(control, func() (any, error) {
		times, elapsed, err := run(func(_ uint64, start time.Time) bool { return time.Since(start) < l.length() })
		return map[string]any{"transfers": map[string]any{"summary": times.summary(elapsed), "bytes": l.Bytes}}, err
	})
}

func (b *benchmark) flow(control *quic.Conn, l load) (map[string]any, error) {
	conn, err := b.connect("none")
	if err != nil {
		return nil, err
	}
	return b.timed(control, func() (any, error) {
		stream, err := conn.OpenStreamSync(context.Background())
		if err != nil {
			return nil, err
		}
		if _, err := stream.Write(header(requestDownload, false, period, ^uint64(0))); err != nil {
			return nil, err
		}
		stream.Close()
		intervals := make([]uint64, l.length()/interval)
		buffer := make([]byte, period)
		start := time.Now()
		for {
			length, err := stream.Read(buffer)
			after := time.Since(start)
			if after >= l.length() {
				break
			}
			intervals[after/interval] += uint64(length)
			if err != nil {
				return nil, err
			}
		}
		conn.CloseWithError(0, "")
		return map[string]any{"flow": map[string]any{"intervals": intervals}}, nil
	})
}

func (b *benchmark) idle(control *quic.Conn, l load) (map[string]any, error) {
	if _, err := b.open(1, true); err != nil {
		return nil, err
	}
	time.Sleep(settle)
	return b.timed(control, func() (any, error) {
		_, _, server, err := askUsage(control)
		_, client, err2 := usage()
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		held, err := b.open(l.Connections, true)
		if err != nil {
			return nil, err
		}
		time.Sleep(rest)
		_, _, serverAfter, err := askUsage(control)
		_, clientAfter, err2 := usage()
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		say(map[string]any{"message": "holding", "connections": len(held)})
		io.Copy(io.Discard, os.Stdin)
		less := func(after, before uint64) uint64 { return max(after, before) - before }
		return map[string]any{"idle": map[string]any{
			"connections": len(held), "server_bytes": less(serverAfter, server), "client_bytes": less(clientAfter, client),
		}}, nil
	})
}
