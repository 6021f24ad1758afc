//go:build chaosha && linux

package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// toxiproxy is a proxy for network connections that can lose their data.
type toxiproxy struct {
	api string
}

// link is a network connection of a member.
type link struct {
	proxy   *toxiproxy
	name    string
	address string // host and port
}

// startToxiproxy starts the proxy without links.
func (c *haCluster) startToxiproxy(t *testing.T) *toxiproxy {
	t.Helper()
	port := haPort(t)
	p := &toxiproxy{api: fmt.Sprintf("http://127.0.0.1:%d", port)}
	c.start(t, "toxiproxy", haServer(t, "toxiproxy"), "-host=127.0.0.1", fmt.Sprintf("-port=%d", port))
	eventually(t, time.Minute, "toxiproxy runs", func() bool { return p.call(http.MethodGet, "/version", nil, nil) == nil })
	return p
}

// call sends a request to the proxy's API.
func (p *toxiproxy) call(method, path string, body, result any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, p.api+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode >= 300:
		return fmt.Errorf("%s %s: status %d: %s", method, path, res.StatusCode, got)
	case result == nil:
		return nil
	}
	return json.Unmarshal(got, result)
}

// link creates a link to an address.
func (p *toxiproxy) link(t *testing.T, name, to string) *link {
	t.Helper()
	var made struct{ Listen string }
	if err := p.call(http.MethodPost, "/proxies", map[string]any{"name": name, "listen": "127.0.0.1:0", "upstream": to, "enabled": true}, &made); err != nil {
		t.Fatal(err)
	}
	return &link{proxy: p, name: name, address: made.Listen}
}

// directions are the toxics of a link that is cut, by the stream that they affect.
var directions = []string{"upstream", "downstream"}

// cut loses all data from now on. Connections stay open, and new ones are accepted.
func (l *link) cut(t *testing.T) {
	t.Helper()
	var all []error
	for _, stream := range directions {
		toxic := map[string]any{"name": stream, "type": "timeout", "stream": stream, "attributes": map[string]int{"timeout": 0}}
		all = append(all, l.proxy.call(http.MethodPost, "/proxies/"+l.name+"/toxics", toxic, nil))
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

// restore makes the link work again for new connections, and closes the others.
func (l *link) restore(t *testing.T) {
	t.Helper()
	var all []error
	for _, stream := range directions {
		all = append(all, l.proxy.call(http.MethodDelete, "/proxies/"+l.name+"/toxics/"+stream, nil, nil))
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}
