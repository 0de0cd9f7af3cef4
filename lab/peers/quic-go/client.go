package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	concurrency      = 100
	ticketPatience   = 2 * time.Second
	datagramPatience = 500 * time.Millisecond
	datagramAttempts = 5
	// The codes of the RESET_STREAM and STOP_SENDING frames of a client that gives streams up.
	resetCode = 7
	stopCode  = 8
	// Where 30 % of the packets are lost, the usual five seconds are not enough.
	handshakePatience = 60 * time.Second
	// Into a download, the handshake is over.
	migrateAfter  = 500 * time.Millisecond
	probePatience = 5 * time.Second
)

// tickets is a session cache that tells when a ticket has come.
type tickets struct {
	tls.ClientSessionCache
	came chan struct{}
}

func (t *tickets) Put(key string, state *tls.ClientSessionState) {
	t.ClientSessionCache.Put(key, state)
	select {
	case t.came <- struct{}{}:
	default:
	}
}

type client struct {
	clientArguments
	transport *quic.Transport
	address   net.Addr
	tls       *tls.Config
	config    *quic.Config
	tickets   *tickets
}

func runClient(arguments clientArguments) error {
	roots, err := readPool(arguments.ca)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", arguments.connect)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	secrets, err := keyLog()
	if err != nil {
		return err
	}
	cache := &tickets{tls.NewLRUClientSessionCache(8), make(chan struct{}, 1)}
	c := &client{
		clientArguments: arguments,
		transport:       &quic.Transport{Conn: socket},
		address:         address,
		tls: &tls.Config{
			RootCAs:            roots,
			ServerName:         arguments.serverName,
			NextProtos:         []string{arguments.alpn},
			ClientSessionCache: cache,
			KeyLogWriter:       secrets,
		},
		config: &quic.Config{
			EnableDatagrams:      true,
			HandshakeIdleTimeout: handshakePatience,
			Tracer:               newCounts,
		},
		tickets: cache,
	}
	if arguments.cert != "" {
		certificate, err := tls.LoadX509KeyPair(arguments.cert, arguments.key)
		if err != nil {
			return err
		}
		c.tls.Certificates = []tls.Certificate{certificate}
	}
	defer c.transport.Close()
	if err := c.work(); err != nil {
		return err
	}
	emit(map[string]string{"event": "done"})
	return nil
}

// readPool reads certificates to trust.
func readPool(path string) (*x509.CertPool, error) {
	authorities, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate", path)
	}
	return pool, nil
}

func (c *client) work() error {
	if c.oneByOne || c.parallel {
		return c.eachAlone()
	}
	paths, number := c.download, 1
	if c.resume || c.earlyData {
		first := min(1, len(paths))
		if err := c.first(paths[:first]); err != nil {
			return err
		}
		paths, number = paths[first:], 2
	}
	if c.earlyData {
		return c.early(number, paths)
	}
	conn, err := c.transport.Dial(context.Background(), c.address, c.tls, c.config)
	if err != nil {
		return err
	}
	c.report(conn, number)
	if err := c.everything(conn, number, paths); err != nil {
		return err
	}
	return c.close(conn, number)
}

// eachAlone downloads each file over a connection of its own, none of which resumes a session.
func (c *client) eachAlone() error {
	c.tls.ClientSessionCache = nil
	if c.parallel {
		return parallel(len(c.download), c.alone)
	}
	for i := range c.download {
		if err := c.alone(i); err != nil {
			return err
		}
	}
	return nil
}

// alone downloads the file of that index over a connection of its own.
func (c *client) alone(i int) error {
	conn, err := c.transport.Dial(context.Background(), c.address, c.tls, c.config)
	if err != nil {
		return err
	}
	c.report(conn, i+1)
	if err := c.get(conn, i+1, []string{c.download[i]}); err != nil {
		return err
	}
	return c.close(conn, i+1)
}

// first makes the connection whose session is resumed later.
func (c *client) first(paths []string) error {
	conn, err := c.transport.Dial(context.Background(), c.address, c.tls, c.config)
	if err != nil {
		return err
	}
	c.report(conn, 1)
	if err := c.get(conn, 1, paths); err != nil {
		return err
	}
	select {
	case <-c.tickets.came:
	case <-time.After(ticketPatience):
		return errors.New("no session ticket came")
	}
	return c.close(conn, 1)
}

// early sends the first requests at once, and again if the server refuses early data.
func (c *client) early(number int, paths []string) error {
	conn, err := c.transport.DialEarly(context.Background(), c.address, c.tls, c.config)
	if err != nil {
		return err
	}
	err = c.get(conn, number, paths)
	if errors.Is(err, quic.Err0RTTRejected) {
		if conn, err = conn.NextConnection(context.Background()); err == nil {
			err = c.get(conn, number, paths)
		}
	}
	if err != nil {
		return err
	}
	<-conn.HandshakeComplete()
	c.report(conn, number)
	return c.close(conn, number)
}

// everything is all that the command line asks of the last connection.
func (c *client) everything(conn *quic.Conn, number int, paths []string) error {
	moved := make(chan error, 1)
	if c.migrate != "" {
		go func() { moved <- c.move(conn) }()
	} else {
		moved <- nil
	}
	if err := errors.Join(c.get(conn, number, paths), <-moved); err != nil {
		return err
	}
	// quic-go cannot be asked for a key update: it makes the first one by itself after 100 packets.
	if c.keyUpdate && *countsOf(conn).keyUpdates() == 0 {
		return errors.New("no key update in as many packets as were downloaded")
	}
	if c.alpn != alpnEcho {
		return nil
	}
	for i := range c.resets {
		if err := giveUp(conn, uint32(i)); err != nil {
			return err
		}
	}
	if err := parallel(int(c.streams), func(i int) error { return echoStream(conn, uint32(i)) }); err != nil {
		return err
	}
	lost := uint(0)
	for i := range c.datagrams {
		again, err := echoDatagram(conn, uint32(i))
		if err != nil {
			return err
		}
		lost += again
	}
	emit(echoEvent{"echo", number, c.streams, c.datagrams, lost})
	return nil
}

func (c *client) report(conn *quic.Conn, number int) {
	emit(connectionEvent{"connection", number, factsOf(conn, countsOf(conn).retries.Load() > 0)})
}

// move goes to another local address in the middle of a download.
func (c *client) move(conn *quic.Conn) error {
	time.Sleep(migrateAfter)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(c.migrate)})
	if err != nil {
		return err
	}
	path, err := conn.AddPath(&quic.Transport{Conn: socket})
	if err != nil {
		return err
	}
	probing, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	if err := path.Probe(probing); err != nil {
		return err
	}
	return path.Switch()
}

func (c *client) close(conn *quic.Conn, number int) error {
	facts := factsOf(conn, countsOf(conn).retries.Load() > 0)
	facts.KeyUpdates = countsOf(conn).keyUpdates()
	emit(closedEvent{"closed", number, int64(len(c.download)) + int64(c.streams), facts})
	code := quic.ApplicationErrorCode(0)
	if c.alpn == alpnH3 {
		code = quic.ApplicationErrorCode(h3NoError)
	}
	return conn.CloseWithError(code, "done")
}

func (c *client) get(conn *quic.Conn, number int, paths []string) error {
	get := func(path string) ([]byte, error) { return getHTTP09(conn, path) }
	if c.alpn == alpnH3 {
		session := (&http3.Transport{DisableCompression: true}).NewClientConn(conn)
		get = func(path string) ([]byte, error) { return getHTTP3(session, c.serverName, path) }
	}
	return parallel(len(paths), func(i int) error {
		content, err := get(paths[i])
		if err != nil {
			return fmt.Errorf("%s: %w", paths[i], err)
		}
		return store(c.out, number, paths[i], content)
	})
}

// parallel calls work for every number below count, a limited number of them at a time, and
// returns the first error.
func parallel(count int, work func(int) error) error {
	places := make(chan struct{}, concurrency)
	results := make(chan error, count)
	for i := range count {
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			results <- work(i)
		}()
	}
	for range count {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func getHTTP09(conn *quic.Conn, path string) ([]byte, error) {
	return ask(conn, []byte("GET "+path+"\r\n"))
}

// ask sends a request on a new stream and returns all that comes back.
func ask(conn *quic.Conn, request []byte) ([]byte, error) {
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(request); err != nil {
		return nil, err
	}
	if err := stream.Close(); err != nil {
		return nil, err
	}
	return io.ReadAll(stream)
}

func getHTTP3(session *http3.ClientConn, authority, path string) ([]byte, error) {
	request, err := http.NewRequest(http.MethodGet, "https://"+authority+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := session.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %d", response.StatusCode)
	}
	return io.ReadAll(response.Body)
}

func echoStream(conn *quic.Conn, number uint32) error {
	payload := echoPayload(number, echoStreamLength)
	echo, err := ask(conn, payload)
	if err == nil && !bytes.Equal(echo, payload) {
		err = fmt.Errorf("the echo of stream %d differs", number)
	}
	return err
}

// giveUp begins a stream, and gives it up when a part of its echo has come.
func giveUp(conn *quic.Conn, number uint32) error {
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return err
	}
	if _, err := stream.Write(echoPayload(number, echoStreamLength)); err != nil {
		return err
	}
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		return err
	}
	stream.CancelWrite(resetCode)
	stream.CancelRead(stopCode)
	return nil
}

// echoDatagram has one datagram echoed and returns how often it had to be sent again.
func echoDatagram(conn *quic.Conn, number uint32) (uint, error) {
	payload := echoPayload(number, echoDatagramLength)
	for attempt := range uint(datagramAttempts) {
		if err := conn.SendDatagram(payload); err != nil {
			return attempt, err
		}
		echoed, err := awaitDatagram(conn, payload)
		if echoed || err != nil {
			return attempt, err
		}
	}
	return datagramAttempts, fmt.Errorf("datagram %d was not echoed", number)
}

// awaitDatagram waits for the echo of payload, past late echoes of earlier datagrams.
func awaitDatagram(conn *quic.Conn, payload []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), datagramPatience)
	defer cancel()
	for {
		datagram, err := conn.ReceiveDatagram(ctx)
		if ctx.Err() != nil {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if bytes.Equal(datagram, payload) {
			return true, nil
		}
	}
}
