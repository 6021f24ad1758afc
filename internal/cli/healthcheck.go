package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/config"
)

// healthTimeout is longer than the server takes to report that its database doesn't respond.
const healthTimeout = 10 * time.Second

func newHealthcheck(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether the server is ready",
		Long: `Asks the running server whether it is ready (GET /readyz). The exit code is 0 if it
is, and 1 if not. Use it as the health check of a container.

By default, the address comes from the listen setting. In that case it skips
certificate verification, because the certificate is for another host name.`,
	}
	target := cmd.Flags().String("url", "", "address of the server, such as https://turnpike.example.com")
	return e.withConfig(cmd, func(cmd *cobra.Command, _ []string) error {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		base := *target
		if base == "" {
			var err error
			if base, err = localURL(e.loaded.Config); err != nil {
				return err
			}
			transport.Proxy = nil
			transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the server itself, on this machine
		}
		if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return wrongUsage(cmd, fmt.Errorf("--url %q is not an http:// or https:// address", base))
		}
		if err := checkReadiness(cmd.Context(), &http.Client{Transport: transport, Timeout: healthTimeout}, base); err != nil {
			return err
		}
		return e.report(map[string]string{"status": "ready", "url": base}, "%s is ready.\n", base)
	})
}

// localURL returns the address at which this machine reaches the server.
func localURL(c config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" {
		return "", errors.New("listen has port 0, so the server's port is unknown; pass --url http://127.0.0.1:PORT")
	}
	// By number, because a minimal container may not resolve localhost.
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return c.ListenURL(net.JoinHostPort(host, port)), nil
}

func checkReadiness(ctx context.Context, client *http.Client, base string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("the server doesn't respond: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz returned %s", strings.TrimSuffix(base, "/"), resp.Status)
	}
	return nil
}
