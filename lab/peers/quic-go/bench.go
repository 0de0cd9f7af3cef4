package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/quic-go/quic-go"
)

// The benchmark: an assignment as JSON, its loads, and one line of JSON as the answer.

const (
	benchALPN       = "quicket-bench"
	benchServerName = "localhost"
	benchWindow     = 16 << 20
	benchStreams    = 1000
	benchIdle       = 300 * time.Second
	// What quic-go asks for itself, and more than the kernel may grant.
	benchSocketBuffer = 7 << 20
	// The largest packets that quic-go sends without path MTU discovery.
	benchPayload = 1452
)

type assignment struct {
	Core       int
	Conditions struct {
		Cipher     string
		Payload    map[string]int
		Congestion string
		Encryption bool
		Tickets    bool
	}
	Role struct {
		Server *struct{ Listen, Certificate, Key string }
		Client *struct {
			Connect, Roots string
			Scenario       json.RawMessage
		}
	}
}

// unsupported is why quic-go cannot do what a load needs.
type unsupported string

func (u unsupported) Error() string { return string(u) }

// say prints a message of the benchmark.
func say(message map[string]any) {
	line, err := json.Marshal(message)
	if err == nil {
		os.Stdout.Write(append(line, '\n'))
	}
}

func runBench(text string) error {
	err := carryOut(text)
	var cannot unsupported
	switch {
	case err == nil:
		return nil
	case errors.As(err, &cannot):
		say(map[string]any{"message": "unsupported", "reason": cannot.Error()})
		return nil
	default:
		say(map[string]any{"message": "failed", "reason": err.Error()})
		os.Exit(1)
		return nil
	}
}

func carryOut(text string) error {
	var given assignment
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return err
	}
	if err := pinAll(given.Core); err != nil {
		return err
	}
	if given.Role.Server != nil {
		return benchServer(&given)
	}
	// It is the client who says what cannot be.
	conditions := given.Conditions
	switch {
	case !conditions.Encryption:
		return unsupported("quic-go always encrypts")
	case conditions.Cipher != "aes-128-gcm":
		return unsupported("Go chooses the cipher suite itself: AES-128-GCM in the first place")
	case conditions.Congestion != "cubic":
		return unsupported("quic-go has one congestion controller, NewReno")
	case conditions.Payload["fixed"] == 0:
		return unsupported("quic-go sends 1,452 bytes in a UDP payload at most")
	}
	return benchClient(&given)
}

// pinAll moves all threads to a core; those that are started later follow.
func pinAll(core int) error {
	runtime.GOMAXPROCS(1)
	var set [128]byte
	set[core/8] = 1 << (core % 8)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		var id int
		fmt.Sscan(thread.Name(), &id)
		_, _, code := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(id), uintptr(len(set)), uintptr(unsafe.Pointer(&set)))
		if code != 0 && code != syscall.ESRCH {
			return fmt.Errorf("cannot run on core %d: %w", core, code)
		}
	}
	return nil
}

func benchSocket(address string) (*net.UDPConn, error) {
	resolved, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", resolved)
	if err != nil {
		return nil, err
	}
	return socket, errors.Join(socket.SetReadBuffer(benchSocketBuffer), socket.SetWriteBuffer(benchSocketBuffer))
}

func benchConfig(given *assignment) *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 benchIdle,
		InitialStreamReceiveWindow:     benchWindow,
		MaxStreamReceiveWindow:         benchWindow,
		InitialConnectionReceiveWindow: benchWindow,
		MaxConnectionReceiveWindow:     benchWindow,
		MaxIncomingStreams:             benchStreams,
		InitialPacketSize:              uint16(min(given.Conditions.Payload["fixed"], benchPayload)),
		DisablePathMTUDiscovery:        true,
		Allow0RTT:                      given.Conditions.Tickets,
	}
}

// What a client asks: see the workload's requests.
const (
	requestUpload = 1 + iota
	requestDownload
	requestExchange
	requestUsage
	requestHold
)

const (
	headerLength   = 16
	exchangeLength = 1024
	period         = 64 << 10
)

// pattern fills what is at an offset of the pattern, which repeats unless it is unique.
func pattern(unique bool, offset uint64, out []byte) {
	for i := 0; i < len(out); {
		index := offset / 8
		if !unique {
			index %= period / 8
		}
		z := (index + 1) * 0x9e3779b97f4a7c15
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
		z ^= z >> 31
		for skip := offset % 8; skip < 8 && i < len(out); skip++ {
			out[i] = byte(z >> (8 * skip))
			i, offset = i+1, offset+1
		}
	}
}

// arrival checks a transfer as it comes: all bytes of a unique one, else eight of each piece.
type arrival struct {
	unique   bool
	offset   uint64
	wrong    error
	expected []byte
}

func (a *arrival) take(piece []byte) {
	looked := piece
	if !a.unique {
		looked = piece[:min(len(piece), 8)]
	}
	if cap(a.expected) < len(looked) {
		a.expected = make([]byte, len(looked))
	}
	expected := a.expected[:len(looked)]
	pattern(a.unique, a.offset, expected)
	if !bytes.Equal(expected, looked) && a.wrong == nil {
		a.wrong = fmt.Errorf("wrong byte behind offset %d", a.offset)
	}
	a.offset += uint64(len(piece))
}

func (a *arrival) finish(bytes uint64) error {
	if a.wrong == nil && a.offset != bytes {
		return fmt.Errorf("%d bytes came in place of %d", a.offset, bytes)
	}
	return a.wrong
}

// receive reads to the end of a stream.
func receive(stream io.Reader, buffer []byte, take func([]byte)) error {
	for {
		length, err := stream.Read(buffer)
		take(buffer[:length])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var block = func() []byte {
	bytes := make([]byte, period)
	pattern(false, 0, bytes)
	return bytes
}()

// transmit writes a transfer piece by piece; no piece goes beyond a period.
func transmit(stream io.Writer, bytes uint64, unique bool, write uint32) error {
	var own []byte
	if unique {
		own = make([]byte, period)
	}
	for offset := uint64(0); offset < bytes; {
		start := offset % period
		length := min(bytes-offset, uint64(write), period-start)
		piece := block[start : start+length]
		if unique {
			piece = own[:length]
			pattern(true, offset, piece)
		}
		if _, err := stream.Write(piece); err != nil {
			return err
		}
		offset += length
	}
	return nil
}

// usage is CPU time in nanoseconds and resident memory in bytes, so far.
func usage() (cpu, resident uint64, err error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, 0, err
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, err
	}
	var size, pages uint64
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		return 0, 0, err
	}
	return uint64(used.Utime.Nano() + used.Stime.Nano()), pages * uint64(os.Getpagesize()), nil
}

var handshakes atomic.Uint64

func benchServer(given *assignment) error {
	role := given.Role.Server
	certificate, err := tls.LoadX509KeyPair(role.Certificate, role.Key)
	if err != nil {
		return err
	}
	socket, err := benchSocket(role.Listen)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket}
	listener, err := transport.ListenEarly(&tls.Config{
		Certificates:           []tls.Certificate{certificate},
		NextProtos:             []string{benchALPN},
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: !given.Conditions.Tickets,
	}, benchConfig(given))
	if err != nil {
		return err
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	say(map[string]any{"message": "listening", "address": socket.LocalAddr().String()})
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			if !given.Conditions.Tickets {
				<-conn.HandshakeComplete()
			}
			handshakes.Add(1)
			for {
				stream, err := conn.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					if err := answer(stream); err != nil {
						conn.CloseWithError(1, err.Error())
					}
				}()
			}
		}()
	}
}

func answer(stream *quic.Stream) error {
	var header [headerLength]byte
	if _, err := io.ReadFull(stream, header[:]); err != nil {
		return err
	}
	unique, write, value := header[1] == 1, beUint32(header[4:8]), beUint64(header[8:])
	if header[0] == requestUpload {
		coming := arrival{unique: unique}
		if err := receive(stream, make([]byte, period), coming.take); err != nil {
			return err
		}
		if err := coming.finish(value); err != nil {
			return err
		}
		stream.Write(header[8:])
		return stream.Close()
	}
	rest, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	switch header[0] {
	case requestDownload:
		err = transmit(stream, value, unique, write)
	case requestUsage:
		var cpu, resident uint64
		if cpu, resident, err = usage(); err == nil {
			_, err = stream.Write(appendUint64(nil, cpu, resident, handshakes.Load()))
		}
	case requestExchange, requestHold:
		_, err = stream.Write(append(header[:], rest...))
	default:
		err = fmt.Errorf("unknown request %d", header[0])
	}
	if err != nil {
		return err
	}
	return stream.Close()
}
