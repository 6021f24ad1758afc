package certificates_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"turnpike/test/chaos/program"
	"turnpike/test/freeport"
	"turnpike/test/smoke"
)

// directory is Pebble, the ACME test server of Let's Encrypt, behind a proxy that
// counts and delays orders. It finds every domain on this machine.
type directory struct {
	URL    string
	CAFile string         // signs the directory's own certificate
	pool   *x509.CertPool // the same, in memory
	roots  *x509.CertPool // sign what it issues

	// Pebble checks challenges at these two ports, and they lead to a node.
	tls, http *forwarder

	orders atomic.Int64
	gate   atomic.Pointer[gate]             // delays orders
	answer atomic.Pointer[http.HandlerFunc] // replaces the response to orders
}

// gate delays orders until it is opened.
type gate struct{ reached, open chan struct{} }

// hold delays the next orders. The caller waits for reached and closes open.
func (d *directory) hold() *gate {
	g := &gate{make(chan struct{}, 100), make(chan struct{})}
	d.gate.Store(g)
	return g
}

// pebble builds Pebble once. Its module is separate, so that the product doesn't
// depend on it.
var pebble = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("pebble-%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", path, "github.com/letsencrypt/pebble/v2/cmd/pebble")
	cmd.Dir = "pebble"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build Pebble: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	smoke.Only(TestServersShareACertificate)
	code := m.Run()
	if path, err := pebble(); err == nil {
		_ = os.Remove(path)
	}
	os.Exit(code)
}

// binding requires external account binding with this key.
const (
	bindingID  = "kid-1"
	bindingKey = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
)

func newDirectory(t *testing.T, requireBinding bool) *directory {
	t.Helper()
	d := &directory{tls: forward(t), http: forward(t)}
	settings := map[string]any{"httpPort": d.http.port(), "tlsPort": d.tls.port(), "keyAlgorithm": "ecdsa",
		"externalAccountBindingRequired": requireBinding, "externalAccountMACKeys": map[string]string{bindingID: bindingKey},
		"retryAfter": map[string]int{"authz": 1, "order": 1}, "profiles": map[string]any{"default": map[string]any{"description": "90 days", "validityPeriod": 90 * 24 * 3600}}}
	backend, management := startPebble(t, settings)
	d.roots = readRoot(t, management)
	front := httptest.NewTLSServer(d.proxy(backend))
	t.Cleanup(front.Close)
	d.URL = front.URL + "/dir"
	d.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if err := os.WriteFile(d.CAFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	d.pool = x509.NewCertPool()
	d.pool.AddCert(front.Certificate())
	return d
}

// startPebble runs Pebble on free ports until the test ends.
func startPebble(t *testing.T, settings map[string]any) (backend, management string) {
	t.Helper()
	path, err := pebble()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own := httptest.NewTLSServer(nil)
	own.Close()
	key, err := x509.MarshalPKCS8PrivateKey(own.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	settings["certificate"] = write("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate().Raw}))
	settings["privateKey"] = write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	for range 10 { // another program may take a port first
		backend, management = freeport.Address(t), freeport.Address(t)
		settings["listenAddress"], settings["managementListenAddress"] = backend, management
		text, err := json.Marshal(map[string]any{"pebble": settings})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(path, "-config", write("config.json", text), "-dnsserver", serveDNS(t))
		cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0")
		program.EndWithParent(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-ended
		})
		if awaitListeners(ended, backend, management) {
			return backend, management
		}
	}
	t.Fatal("Pebble didn't start")
	return "", ""
}

// awaitListeners reports whether a process listens before it ends.
func awaitListeners(ended chan struct{}, addresses ...string) bool {
	for _, address := range addresses {
		for {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				conn.Close()
				break
			}
			select {
			case <-ended:
				return false
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return true
}

// orderPath is where Pebble accepts orders.
const orderPath = "/order-plz"

func (d *directory) proxy(backend string) http.Handler {
	target := &url.URL{Scheme: "https", Host: backend}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // Pebble's links lead here
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		ModifyResponse: func(r *http.Response) error {
			// Pebble rejects some nonces, so that clients repeat the request.
			if r.Request.URL.Path == orderPath && r.StatusCode == http.StatusCreated {
				d.orders.Add(1)
			}
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == orderPath {
			if g := d.gate.Load(); g != nil {
				g.reached <- struct{}{}
				<-g.open
			}
			if answer := d.answer.Load(); answer != nil {
				d.orders.Add(1)
				(*answer)(w, r)
				return
			}
		}
		pass.ServeHTTP(w, r)
	})
}

func readRoot(t *testing.T, management string) *x509.CertPool {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + management + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("Pebble's root: %s", text)
	}
	return pool
}

// serveDNS finds every name at 127.0.0.1. Pebble asks by TCP.
func serveDNS(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for answerDNS(conn) == nil {
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// answerDNS handles one query, which its length precedes.
func answerDNS(conn net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
	}
	response, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...))
	return err
}

// forwarder passes connections on to a node, or closes them if it has none.
type forwarder struct {
	ln net.Listener
	to atomic.Pointer[string]
}

func forward(t *testing.T) *forwarder {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{ln: ln}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go f.pass(conn)
		}
	}()
	return f
}

func (f *forwarder) set(address string) { f.to.Store(&address) }

func (f *forwarder) port() int { return f.ln.Addr().(*net.TCPAddr).Port }

func (f *forwarder) pass(from net.Conn) {
	defer from.Close()
	to := f.to.Load()
	if to == nil || *to == "" {
		return
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(*to, "https://"))
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, from)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(from, conn)
}
