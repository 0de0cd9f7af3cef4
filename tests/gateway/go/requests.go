package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go/http3"
)

const (
	large = 10_000_000
	small = 1000
	many  = 60
)

// The versions that an origin tells of what the gateway asks it by.
var spoken = map[string]string{"http1": "HTTP/1.1", "http2": "HTTP/2.0", "http3": "HTTP/3.0"}

type asking struct {
	*http.Client
	version, origin, at string
}

// ask asks each of some origins behind a gateway, over a version of HTTP.
func ask(address, version, certificate string, origins []string) error {
	client, err := newClient(version, certificate)
	if err != nil {
		return err
	}
	for _, origin := range origins {
		asks := asking{client, version, origin, fmt.Sprintf("https://%s/%s", address, origin)}
		for _, part := range []struct {
			what string
			run  func(*asking) error
		}{
			{"a large body and its trailers", (*asking).download},
			{"a large body of a request", (*asking).upload},
			{"both ways at once", (*asking).converse},
			{"many at once", (*asking).many},
			{"early hints", (*asking).hints},
			{"one that is given up", (*asking).giveUp},
			{"one that the origin does not know", (*asking).unknown},
		} {
			if err := part.run(&asks); err != nil {
				return fmt.Errorf("HTTP/%s to %s, %s: %w", version, origin, part.what, err)
			}
		}
	}
	return nil
}

func newClient(version, certificate string) (*http.Client, error) {
	if version == "3" {
		trusts, err := trusting(certificate)
		return &http.Client{Transport: &http3.Transport{TLSClientConfig: trusts}}, err
	}
	trusts, err := trusting(certificate)
	transport := &http.Transport{TLSClientConfig: trusts, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(version == "1")
	transport.Protocols.SetHTTP2(version == "2")
	return &http.Client{Transport: transport}, err
}

// do asks for something, and compares status and versions.
func (a *asking) do(ctx context.Context, method, path string, body io.Reader, status int) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.at+path, body)
	if err != nil {
		return nil, err
	}
	answer, err := a.Do(request)
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprint(answer.ProtoMajor); answer.StatusCode != status || got != a.version || answer.Header.Get("X-Version") != spoken[a.origin] {
		answer.Body.Close()
		return nil, fmt.Errorf("%s over HTTP/%s, and %q at the origin", answer.Status, got, answer.Header.Get("X-Version"))
	}
	return answer, nil
}

func (a *asking) download() error {
	return a.get(large)
}

func (a *asking) get(bytes int64) error {
	answer, err := a.do(context.Background(), "GET", fmt.Sprintf("/content/%d", bytes), nil, http.StatusOK)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	read, hash, err := sum(answer.Body)
	if err != nil {
		return err
	}
	_, wanted, _ := sum(content(bytes))
	if read != bytes || hash != wanted {
		return fmt.Errorf("%d bytes of %d came, or others", read, bytes)
	}
	// Trailers pass where both sides have them in a section of their own (docs/gateway.md).
	if told := answer.Trailer.Get(sumTrailer); a.version != "1" && a.origin != "http1" && told != wanted {
		return fmt.Errorf("the trailer has %q and not %q", told, wanted)
	}
	return nil
}

func (a *asking) upload() error {
	// A reader of no known length: nothing tells how much will come.
	answer, err := a.do(context.Background(), "POST", "/sum", io.MultiReader(content(large)), http.StatusOK)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	_, hash, _ := sum(content(large))
	if wanted := fmt.Sprint(large, " ", hash); strings.TrimSpace(string(got)) != wanted {
		return fmt.Errorf("the origin got %q and not %q", got, wanted)
	}
	return nil
}

// converse sends a piece when the one before has come back. Go's client of HTTP/1.1 does not.
func (a *asking) converse() error {
	if a.version == "1" {
		return nil
	}
	from, to := io.Pipe()
	defer to.Close()
	answer, err := a.do(context.Background(), "POST", "/echo", from, http.StatusOK)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for turn := range 20 {
		said := fmt.Sprintf("piece %d of a conversation", turn)
		if _, err := io.WriteString(to, said); err != nil {
			return err
		}
		heard := make([]byte, len(said))
		if _, err := io.ReadFull(answer.Body, heard); err != nil || string(heard) != said {
			return fmt.Errorf("%q came back as %q (%v)", said, heard, err)
		}
	}
	to.Close()
	if rest, err := io.ReadAll(answer.Body); err != nil || len(rest) > 0 {
		return fmt.Errorf("%d bytes more, %v", len(rest), err)
	}
	return nil
}

func (a *asking) many() error {
	var all sync.WaitGroup
	var failure atomic.Pointer[error]
	for number := range int64(many) {
		all.Go(func() {
			if err := a.get(small + number*100); err != nil {
				failure.Store(&err)
			}
		})
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// hints come by HTTP/3 from servers whose library tells the gateway of them (docs/gateway.md), and break nothing elsewhere.
func (a *asking) hints() error {
	var links []string
	told := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			links = append(links, header.Values("Link")...)
			return nil
		},
	})
	answer, err := a.do(told, "GET", "/hints", nil, http.StatusOK)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "hinted" {
		return fmt.Errorf("%q, %v", body, err)
	}
	if a.version == "3" && a.origin != "http2" && len(links) != 1 {
		return fmt.Errorf("%d hints came", len(links))
	}
	return nil
}

func (a *asking) giveUp() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answer, err := a.do(ctx, "GET", "/endless", nil, http.StatusOK)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, answer.Body, large); err != nil {
		return err
	}
	cancel()
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		return fmt.Errorf("it ended well")
	}
	answer.Body.Close()
	return a.get(small)
}

func (a *asking) unknown() error {
	answer, err := a.do(context.Background(), "GET", "/nothing", nil, http.StatusNotFound)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
