package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	maxRequest           = 4096
	errorNotFound        = 1
	h3NoError     uint64 = 0x100
)

func runServer(arguments serverArguments) error {
	certificate, err := tls.LoadX509KeyPair(arguments.cert, arguments.key)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", arguments.listen)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return arguments.retry },
	}
	if arguments.resetKey != "" {
		key := quic.StatelessResetKey(sha256.Sum256([]byte(arguments.resetKey)))
		transport.StatelessResetKey = &key
	}
	secrets, err := keyLog()
	if err != nil {
		return err
	}
	tlsConfig := &tls.Config{
		Certificates: []tls.Certificate{certificate},
		NextProtos:   arguments.alpn,
		KeyLogWriter: secrets,
	}
	if arguments.clientCA != "" {
		if tlsConfig.ClientCAs, err = readPool(arguments.clientCA); err != nil {
			return err
		}
		tlsConfig.ClientAuth = tls.RequireAndVerifyClientCert
	}
	config := &quic.Config{Allow0RTT: true, EnableDatagrams: true, HandshakeIdleTimeout: handshakePatience, Tracer: newCounts}
	listener, err := transport.ListenEarly(tlsConfig, config)
	if err != nil {
		return err
	}
	emit(map[string]string{"event": "listening", "address": socket.LocalAddr().String()})
	go accept(listener, arguments)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	listener.Close()
	transport.Close()
	return nil
}

func accept(listener *quic.EarlyListener, arguments serverArguments) {
	for number := 1; ; number++ {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		served := &served{conn: conn, number: number, folder: arguments.www, retry: arguments.retry}
		go func() {
			if err := served.run(); err != nil {
				emitError(fmt.Sprintf("connection %d: %v", number, err))
			}
		}()
	}
}

// served is one connection as seen by the server.
type served struct {
	conn    *quic.Conn
	number  int
	folder  string
	retry   bool
	streams atomic.Int64
}

func (s *served) run() error {
	go func() {
		select {
		case <-s.conn.HandshakeComplete():
			emit(connectionEvent{"connection", s.number, factsOf(s.conn, s.retry)})
		case <-s.conn.Context().Done():
		}
	}()
	alpn := s.conn.ConnectionState().TLS.NegotiatedProtocol
	err := s.serve(alpn)
	facts := factsOf(s.conn, s.retry)
	facts.KeyUpdates = countsOf(s.conn).keyUpdates()
	emit(closedEvent{"closed", s.number, s.streams.Load(), facts})
	return err
}

func (s *served) serve(alpn string) error {
	if alpn == alpnH3 {
		server := &http3.Server{Handler: http.HandlerFunc(s.answerHTTP3)}
		return regularEnd(server.ServeQUICConn(s.conn))
	}
	if alpn == alpnEcho {
		go s.echoDatagrams()
	}
	for {
		stream, err := s.conn.AcceptStream(context.Background())
		if err != nil {
			return regularEnd(err)
		}
		s.streams.Add(1)
		go func() {
			if err := s.serveStream(alpn, stream); err != nil {
				emitError(fmt.Sprintf("stream %d: %v", stream.StreamID(), err))
			}
		}()
	}
}

// regularEnd tells a close by the client from a failure.
func regularEnd(err error) error {
	var closed *quic.ApplicationError
	if errors.As(err, &closed) {
		if code := uint64(closed.ErrorCode); code == 0 || code == h3NoError {
			return nil
		}
	}
	return err
}

func (s *served) serveStream(alpn string, stream *quic.Stream) error {
	if alpn == alpnEcho {
		_, err := io.Copy(stream, stream)
		var reset *quic.StreamError
		if errors.As(err, &reset) && reset.Remote {
			// The client has given the stream up. If it has not said so of this direction, it hears it.
			stream.CancelWrite(reset.ErrorCode)
			return nil
		}
		if err != nil {
			return err
		}
		return stream.Close()
	}
	request, err := io.ReadAll(io.LimitReader(stream, maxRequest))
	if err != nil {
		return err
	}
	path, isGet := strings.CutPrefix(strings.TrimRight(string(request), "\r\n"), "GET ")
	content, err := s.read(path)
	if !isGet || err != nil {
		stream.CancelWrite(errorNotFound)
		return err
	}
	if _, err := stream.Write(content); err != nil {
		return err
	}
	return stream.Close()
}

func (s *served) read(path string) ([]byte, error) {
	file, err := locate(s.folder, path)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func (s *served) answerHTTP3(response http.ResponseWriter, request *http.Request) {
	s.streams.Add(1)
	content, err := s.read(request.URL.Path)
	if err != nil {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	// Browsers use no style sheet and no SVG without it.
	if kind := mime.TypeByExtension(path.Ext(request.URL.Path)); kind != "" {
		response.Header().Set("Content-Type", kind)
	}
	if _, err := response.Write(content); err != nil {
		emitError(err.Error())
	}
}

func (s *served) echoDatagrams() {
	for {
		datagram, err := s.conn.ReceiveDatagram(context.Background())
		if err != nil {
			return
		}
		if err := s.conn.SendDatagram(datagram); err != nil {
			return
		}
	}
}
