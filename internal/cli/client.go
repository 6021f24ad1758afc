package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/safehttp"
)

const (
	// defaultBaseURL is where a server without settings listens.
	defaultBaseURL = "http://127.0.0.1:8080"
	callTimeout    = 60 * time.Second
	maxAnswer      = 64 << 20 // no answer of ours is larger
)

// apiClient calls the server's API, as anybody else would.
type apiClient struct {
	base string // without a slash at its end
	key  string
	http *http.Client
}

// apiError is a refusal by the server.
type apiError struct {
	Status    int
	Code      string
	Message   string
	RequestID string
	// RetryAfter is how long the server wants to be left alone; 0 if it does
	// not say.
	RetryAfter time.Duration
}

// Error is for people: the message says what to do, and for a fault of the
// server the request id helps whoever runs it.
func (e *apiError) Error() string {
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		return fmt.Sprintf("%s (request %s)", e.Message, e.RequestID)
	}
	return e.Message
}

// client makes a command that calls the API.
func (e *env) client(cmd *cobra.Command, run func(ctx context.Context, c *apiClient, args []string) error) *cobra.Command {
	var base, key string
	cmd.Flags().SortFlags = false // the command's own first
	cmd.Flags().StringVar(&base, "base-url", "", "the server's address (default: TURNPIKE_BASE_URL, or "+defaultBaseURL+")")
	cmd.Flags().StringVar(&key, "api-key", "", "the API key (default: TURNPIKE_API_KEY)")
	e.jsonFlag(cmd)
	checkArgs(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newAPIClient(cmp.Or(base, os.Getenv("TURNPIKE_BASE_URL"), defaultBaseURL), cmp.Or(key, os.Getenv("TURNPIKE_API_KEY")))
		if err != nil {
			return usageError{cmd.CommandPath(), err}
		}
		return run(cmd.Context(), c, args)
	}
	return cmd
}

func newAPIClient(base, key string) (*apiClient, error) {
	c, err := newPublicClient(base)
	if err != nil {
		return nil, err
	}
	if c.key = strings.TrimSpace(key); c.key == "" {
		return nil, errors.New("this needs an API key: set TURNPIKE_API_KEY or --api-key (turnpike keys create makes one)")
	}
	return c, nil
}

// newPublicClient calls what needs no key.
func newPublicClient(base string) (*apiClient, error) {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the server's address must look like https://turnpike.example.com; set it with TURNPIKE_BASE_URL or --base-url")
	}
	// A copied OpenAI base address ends with /v1, which our paths have already.
	base = strings.TrimSuffix(strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/"), "/v1")
	return &apiClient{base: base, http: &http.Client{Timeout: callTimeout, Transport: safehttp.WithoutUpgrades(nil)}}, nil
}

// do calls the API. in is the JSON body, or nil; the answer goes into out,
// unless that is nil. A refusal becomes an *apiError.
func (c *apiClient) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("User-Agent", "turnpike-cli/"+version)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return unreachable(c.base, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return unreachable(c.base, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return refusal(c.base, res, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s answered with something that is not JSON; is it a Turnpike server?", c.base)
	}
	return nil
}

// refusal reads an error's body. What a proxy in between says is no JSON.
func refusal(base string, res *http.Response, body []byte) error {
	status := res.StatusCode
	var refused struct {
		Error struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			RequestID string `json:"request_id"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &refused) != nil || refused.Error.Message == "" {
		return &apiError{Status: status, RetryAfter: retryAfter(res.Header), Message: fmt.Sprintf("%s answered with %d %s; is it a Turnpike server?", base, status, http.StatusText(status))}
	}
	return &apiError{status, refused.Error.Code, refused.Error.Message, refused.Error.RequestID, retryAfter(res.Header)}
}

// retryAfter is what the server asks for, in milliseconds or else in seconds.
func retryAfter(h http.Header) time.Duration {
	// A date, which it may be elsewhere, is not ours.
	if n, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	if n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 0
}

// unreachable says why there was no answer, without the request's address
// twice, as net/http has it.
func unreachable(base string, err error) error {
	var op *net.OpError
	var wrapped *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("no server can be reached at %s (%w); is it running, and is TURNPIKE_BASE_URL right?", base, op.Err)
	case errors.As(err, &wrapped):
		err = wrapped.Err
	}
	return fmt.Errorf("no answer from %s: %w", base, err)
}
