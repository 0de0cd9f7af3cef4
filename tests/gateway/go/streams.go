package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	atOnce     = 20
	eachStream = 500_000
	// The service behind the gateway and the network may lose datagrams; so many are sent until one comes back.
	attempts = 50
	patience = 200 * time.Millisecond
)

// carry sends bytes and datagrams to a service behind a private protocol, which sends them back.
func carry(address, certificate string) error {
	trusts, err := trusting(certificate, "echo")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := quic.DialAddr(ctx, address, trusts, &quic.Config{EnableDatagrams: true})
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	failures := make(chan error, atOnce)
	var all sync.WaitGroup
	for number := range int64(atOnce) {
		all.Go(func() { failures <- carryStream(ctx, connection, eachStream+number) })
	}
	all.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return errors.Join(err, carryDatagram(ctx, connection))
}

func carryStream(ctx context.Context, connection *quic.Conn, bytes int64) error {
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, content(bytes))
		// The service ends when it has read to the end: half-close.
		sent <- errors.Join(err, stream.Close())
	}()
	read, hash, err := sum(stream)
	if err := errors.Join(err, <-sent); err != nil {
		return err
	}
	if _, wanted, _ := sum(content(bytes)); read != bytes || hash != wanted {
		return fmt.Errorf("%d bytes of %d came back, or others", read, bytes)
	}
	return nil
}

func carryDatagram(ctx context.Context, connection *quic.Conn) error {
	for attempt := range attempts {
		said := fmt.Appendf(nil, "datagram %d", attempt)
		if err := connection.SendDatagram(said); err != nil {
			return err
		}
		waits, cancel := context.WithTimeout(ctx, patience)
		heard, err := connection.ReceiveDatagram(waits)
		cancel()
		if err == nil && bytes.HasPrefix(heard, []byte("datagram ")) {
			return nil
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return fmt.Errorf("none of %d datagrams came back", attempts)
}
