// quic-go as an interoperability peer, by the command line that all peers share, and as a row of the benchmark.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

const (
	alpnH3   = "h3"
	alpnEcho = "echo"
)

// list collects an option that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

type serverArguments struct {
	listen, cert, key, www string
	clientCA, resetKey     string
	alpn                   list
	retry                  bool
}

type clientArguments struct {
	connect, ca, serverName, alpn, out string
	cert, key                          string
	resume, earlyData, keyUpdate       bool
	migrate                            string
	oneByOne, parallel                 bool
	streams, resets, datagrams         uint
	download                           list
}

func parseServer(arguments []string) serverArguments {
	var parsed serverArguments
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	flags.StringVar(&parsed.listen, "listen", "", "address to listen on")
	flags.StringVar(&parsed.cert, "cert", "", "certificate chain, PEM")
	flags.StringVar(&parsed.key, "key", "", "private key, PEM")
	flags.StringVar(&parsed.www, "www", "", "folder served by hq-interop and h3")
	flags.Var(&parsed.alpn, "alpn", "application protocol to offer; may be repeated")
	flags.BoolVar(&parsed.retry, "retry", false, "demand address validation of every client")
	flags.StringVar(&parsed.clientCA, "client-ca", "", "demand certificates of clients that lead to these, PEM")
	flags.StringVar(&parsed.resetKey, "reset-key", "", "what stateless reset tokens are made with")
	flags.Parse(arguments) // exits on an error
	return parsed
}

func parseClient(arguments []string) clientArguments {
	var parsed clientArguments
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	flags.StringVar(&parsed.connect, "connect", "", "address of the server")
	flags.StringVar(&parsed.ca, "ca", "", "certificates to trust, PEM")
	flags.StringVar(&parsed.serverName, "server-name", "", "name to ask for and to verify")
	flags.StringVar(&parsed.alpn, "alpn", "", "application protocol to speak")
	flags.StringVar(&parsed.out, "out", "", "folder for what was downloaded")
	flags.BoolVar(&parsed.resume, "resume", false, "connect twice, resume the session")
	flags.BoolVar(&parsed.earlyData, "0rtt", false, "as --resume, with early data")
	flags.BoolVar(&parsed.keyUpdate, "key-update", false, "expect a key update")
	flags.StringVar(&parsed.migrate, "migrate", "", "local address to move to, half a second into the download")
	flags.BoolVar(&parsed.oneByOne, "one-by-one", false, "download each file over a connection of its own")
	flags.BoolVar(&parsed.parallel, "parallel", false, "download each file over a connection of its own, all at once")
	flags.StringVar(&parsed.cert, "cert", "", "certificate to present, PEM")
	flags.StringVar(&parsed.key, "key", "", "its private key, PEM")
	flags.UintVar(&parsed.resets, "resets", 0, "streams to give up when a part of the echo has come")
	flags.UintVar(&parsed.streams, "streams", 0, "streams to echo")
	flags.UintVar(&parsed.datagrams, "datagrams", 0, "datagrams to echo")
	flags.Var(&parsed.download, "download", "path to download; may be repeated")
	flags.Parse(arguments) // exits on an error
	return parsed
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("expected the role: server or client")
	}
	switch role := os.Args[1]; role {
	case "bench":
		if len(os.Args) < 3 {
			return errors.New("expected an assignment")
		}
		return runBench(os.Args[2])
	case "server":
		return runServer(parseServer(os.Args[2:]))
	case "client":
		return runClient(parseClient(os.Args[2:]))
	default:
		return fmt.Errorf("unknown role %q: expected server or client", role)
	}
}

func main() {
	if err := run(); err != nil {
		emitError(err.Error())
		os.Exit(1)
	}
}
