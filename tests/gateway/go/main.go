// Program peer is what stands behind a gateway, and asks before it, in Go: servers and clients by net/http and quic-go.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func run() error {
	if len(os.Args) < 2 {
		return errors.New("peer origin | requests | streams: --help tells their flags")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	certificate := flags.String("certificate", "", "a certificate in PEM, which clients trust")
	switch key, address, version := flags.String("key", "", "its key"), flags.String("address", "", "the gateway's"), flags.String("version", "", "of HTTP: 1, 2 or 3"); os.Args[1] {
	case "origin":
		flags.Parse(os.Args[2:])
		return serve(*certificate, *key)
	case "requests":
		flags.Parse(os.Args[2:])
		return ask(*address, *version, *certificate, flags.Args())
	case "streams":
		flags.Parse(os.Args[2:])
		return carry(*address, *certificate)
	}
	return fmt.Errorf("%s: no such part", os.Args[1])
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
