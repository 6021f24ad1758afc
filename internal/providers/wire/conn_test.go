package wire

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What has arrived is read without a wait, even if it doesn't fit into the buffers.
func TestStreamAnnouncesOnlyReadsThatWait(t *testing.T) {
	t.Parallel()
	const bursts, perBurst = 3, 100
	for name, protocol := range map[string]func(*httptest.Server){
		"HTTP": (*httptest.Server).Start,
		"TLS":  (*httptest.Server).StartTLS,
		"HTTP/2": func(s *httptest.Server) {
			s.EnableHTTP2 = true
			s.StartTLS()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waits, sent := make(chan bool), make(chan bool)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				for range bursts {
					<-waits
					for n := range perBurst {
						_, _ = fmt.Fprintf(w, "data: %s %d\n\n", strings.Repeat("x", 200), n)
						_ = http.NewResponseController(w).Flush()
					}
					sent <- true
				}
				<-waits
			}))
			protocol(server)
			defer server.Close()
			client := NewClient(Timeouts{})
			client.http.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
			if name == "TLS" {
				client.http.Transport.(*http.Transport).TLSClientConfig = withoutHTTP2(server)
			}
			for range 2 { // the second one reuses the connection
				resp, err := post(t.Context(), client, server.URL)
				if err != nil {
					t.Fatal(err)
				}
				announced, events := 0, 0
				e := NewEvents(resp, func() error {
					if announced*perBurst == events { // HTTP/2 announces every read
						announced++
						waits <- true
						if announced <= bursts {
							<-sent
						}
					} else if resp.ProtoMajor == 1 {
						t.Errorf("announced a wait after %d events", events)
					}
					return nil
				})
				for ; ; events++ {
					if _, _, err = e.Next(); err != nil {
						break
					}
				}
				if err != io.EOF || events != bursts*perBurst || announced != bursts+1 {
					t.Errorf("got %d events, %d waits and %v; want %d events and %d waits", events, announced, err, bursts*perBurst, bursts+1)
				}
				_ = e.Close()
			}
		})
	}
}

func withoutHTTP2(s *httptest.Server) *tls.Config {
	c := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	c.NextProtos = []string{"http/1.1"}
	return c
}
