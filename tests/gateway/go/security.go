package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/quic-go/quic-go/http3"
)

func serveHTTP3(server *http3.Server, at net.PacketConn, certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	server.TLSConfig = http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	return server.Serve(at)
}

// trusting is what a client says that trusts a certificate for localhost.
func trusting(certificate string, protocols ...string) (*tls.Config, error) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate", certificate)
	}
	return &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: protocols}, nil
}
