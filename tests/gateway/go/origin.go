package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/quic-go/quic-go/http3"
)

const sumTrailer = "X-Sum"

// serve serves HTTP/1.1 and HTTP/2 in plain text and HTTP/3, each at a port of its own. The first line of its output
// has the ports.
func serve(certificate, key string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{origin}/content/{bytes}", answerContent)
	mux.HandleFunc("POST /{origin}/sum", answerSum)
	mux.HandleFunc("POST /{origin}/echo", echo)
	mux.HandleFunc("GET /{origin}/hints", hint)
	mux.HandleFunc("GET /{origin}/endless", endless)
	handler := http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("X-Version", request.Proto)
		mux.ServeHTTP(answer, request)
	})
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ends := make(chan error)
	three := http3.Server{Handler: handler}
	go func() { ends <- serveHTTP3(&three, udp, certificate, key) }()
	ports := map[string]int{"http3": udp.LocalAddr().(*net.UDPAddr).Port}
	for name, set := range map[string]func(*http.Protocols){
		"http1": func(taken *http.Protocols) { taken.SetHTTP1(true) },
		"http2": func(taken *http.Protocols) { taken.SetUnencryptedHTTP2(true) },
	} {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := http.Server{Handler: handler, Protocols: new(http.Protocols)}
		set(server.Protocols)
		go func() { ends <- server.Serve(tcp) }()
		ports[name] = tcp.Addr().(*net.TCPAddr).Port
	}
	if err := json.NewEncoder(os.Stdout).Encode(ports); err != nil {
		return err
	}
	return <-ends
}

func answerContent(answer http.ResponseWriter, request *http.Request) {
	bytes, err := strconv.ParseInt(request.PathValue("bytes"), 10, 64)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	answer.Header().Set("Trailer", sumTrailer)
	answer.WriteHeader(http.StatusOK)
	_, sent, err := sum(io.TeeReader(content(bytes), answer))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer.Header().Set(sumTrailer, sent)
}

func answerSum(answer http.ResponseWriter, request *http.Request) {
	bytes, hash, err := sum(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	// Trailers of a request, where the client has sent some.
	fmt.Fprintln(answer, bytes, hash, request.Trailer.Get(sumTrailer))
}

// echo sends each piece back before it reads the next one.
func echo(answer http.ResponseWriter, request *http.Request) {
	control := http.NewResponseController(answer)
	// Over the other versions both ways are open anyway.
	if request.ProtoMajor == 1 {
		if err := control.EnableFullDuplex(); err != nil {
			panic(err)
		}
	}
	answer.WriteHeader(http.StatusOK)
	control.Flush()
	piece := make([]byte, 4096)
	for {
		read, err := request.Body.Read(piece)
		answer.Write(piece[:read])
		control.Flush()
		if err != nil {
			return
		}
	}
}

func hint(answer http.ResponseWriter, _ *http.Request) {
	answer.Header().Set("Link", "</style.css>; rel=preload; as=style")
	answer.WriteHeader(http.StatusEarlyHints)
	answer.Header().Del("Link")
	io.WriteString(answer, "hinted")
}

// endless sends until the client has gone.
func endless(answer http.ResponseWriter, request *http.Request) {
	for piece := make([]byte, 1<<14); request.Context().Err() == nil; {
		if _, err := answer.Write(piece); err != nil {
			return
		}
	}
}
