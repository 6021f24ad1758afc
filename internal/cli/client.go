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

	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
)

const (
	// defaultBaseURL is where a server with default settings listens.
	defaultBaseURL = "http://127.0.0.1:8080"
	requestTimeout = 60 * time.Second
	maxResponse    = 64 << 20 // larger than any response of the API
)

type apiClient struct {
	base string // without a trailing slash
	key  string
	http *http.Client
}

type apiError struct {
	Status     int
	Code       string
	Message    string
	RequestID  string
	RetryAfter time.Duration // 0 if the response has no such header
}

func (e *apiError) Error() string {
	if e.Status >= http.StatusInternalServerError && e.RequestID != "" {
		return fmt.Sprintf("%s (request %s)", e.Message, e.RequestID)
	}
	return e.Message
}

// withClient makes run the action of cmd, which calls the API.
func (e *env) withClient(cmd *cobra.Command, run func(ctx context.Context, c *apiClient, args []string) error) *cobra.Command {
	cmd.Flags().SortFlags = false // the command's own flags first
	base := cmd.Flags().String("base-url", "", "the server's URL (default: TURNPIKE_BASE_URL, or "+defaultBaseURL+")")
	key := cmd.Flags().String("api-key", "", "the API key (default: TURNPIKE_API_KEY)")
	e.jsonFlag(cmd)
	checkArgs(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmp.Or(*base, os.Getenv("TURNPIKE_BASE_URL"), defaultBaseURL))
		if err != nil {
			return wrongUsage(cmd, err)
		}
		if c.key = strings.TrimSpace(cmp.Or(*key, os.Getenv("TURNPIKE_API_KEY"))); c.key == "" {
			return wrongUsage(cmd, errors.New("missing API key: set TURNPIKE_API_KEY or --api-key (create one with: turnpike keys create)"))
		}
		return run(cmd.Context(), c, args)
	}
	return cmd
}

// newClient returns a client without a key.
func newClient(base string) (*apiClient, error) {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the server's URL must look like https://turnpike.example.com; set it with TURNPIKE_BASE_URL or --base-url")
	}
	// A base URL that was copied from an OpenAI client ends with /v1.
	base = strings.TrimSuffix(strings.TrimRight(u.Scheme+"://"+u.Host+u.Path, "/"), "/v1")
	return &apiClient{base: base, http: &http.Client{Timeout: requestTimeout, Transport: safehttp.WithoutUpgrades(nil)}}, nil
}

func (c *apiClient) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("User-Agent", "turnpike-cli/"+version)
	return req, nil
}

// do calls the API with the JSON body in, unless it is nil, and decodes the
// response into out, unless that is nil. Error responses become an *apiError.
func (c *apiClient) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return connectionError(c.base, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err != nil {
		return connectionError(c.base, err)
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return errorResponse(c.base, res, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the response of %s is not JSON; is it a Turnpike server?", c.base)
	}
	return nil
}

// fetch is do with the response as JSON and decoded.
func (c *apiClient) fetch(ctx context.Context, method, path string, in any) (raw json.RawMessage, o object, err error) {
	if err = c.do(ctx, method, path, in, &raw); err == nil {
		o, err = decode(raw)
	}
	return raw, o, err
}

// list reads up to limit objects of a collection, page by page.
func (c *apiClient) list(ctx context.Context, path string, q url.Values, limit int) (all []json.RawMessage, more bool, err error) {
	all = []json.RawMessage{}
	for {
		q.Set("limit", strconv.Itoa(min(limit-len(all), 100)))
		var page struct {
			Data    []json.RawMessage `json:"data"`
			LastID  *string           `json:"last_id"`
			HasMore bool              `json:"has_more"`
		}
		if err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		// A page can be empty without being the last: the server limits how many
		// objects it filters for one.
		all = append(all, page.Data...)
		if len(all) >= limit || !page.HasMore || page.LastID == nil {
			return all, page.HasMore, nil
		}
		q.Set("after", *page.LastID)
	}
}

// errorResponse decodes an error response. One of a proxy isn't JSON.
func errorResponse(base string, res *http.Response, body []byte) error {
	var decoded struct {
		Error struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			RequestID string `json:"request_id"`
		} `json:"error"`
	}
	out := &apiError{Status: res.StatusCode, RetryAfter: retryAfter(res.Header)}
	if json.Unmarshal(body, &decoded) != nil || decoded.Error.Message == "" {
		out.Message = fmt.Sprintf("%s returned %d %s; is it a Turnpike server?", base, out.Status, http.StatusText(out.Status))
		return out
	}
	out.Code, out.Message, out.RequestID = decoded.Error.Code, decoded.Error.Message, decoded.Error.RequestID
	return out
}

// retryAfter reads the two headers. Turnpike never sends a date.
func retryAfter(h http.Header) time.Duration {
	if n, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	if n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 32); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 0
}

// connectionError explains why there is no response, without the URL that
// net/http includes.
func connectionError(base string, err error) error {
	var op *net.OpError
	var wrapped *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("cannot connect to %s (%w); check that the server runs and that TURNPIKE_BASE_URL is correct", base, op.Err)
	case errors.As(err, &wrapped):
		err = wrapped.Err
	}
	return fmt.Errorf("no response from %s: %w", base, err)
}

func lacksScope(err error) bool {
	refused, ok := errors.AsType[*apiError](err)
	return ok && refused.Code == string(fault.InsufficientScope)
}

// maxOutage is how long a command that waits tolerates an unreachable server.
const maxOutage = time.Minute

// backoff paces the requests of a command that waits for something.
type backoff struct {
	interval time.Duration // before the next request
	lastOK   time.Time     // zero before the first response
}

func newBackoff() backoff { return backoff{interval: 100 * time.Millisecond} }

// retryable reports whether to retry after err. Before the first response, only
// a server that asks for it is retried.
func (b *backoff) retryable(err error) bool {
	refused, ok := errors.AsType[*apiError](err)
	switch {
	case ok && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests:
		return false
	case b.lastOK.IsZero():
		return ok && refused.RetryAfter > 0
	}
	return time.Since(b.lastOK) < maxOutage
}

// wait pauses before the next request, for at least as long as the server asks for.
func (b *backoff) wait(ctx context.Context, err error) {
	pause := b.interval
	if refused, ok := errors.AsType[*apiError](err); ok {
		pause = max(pause, refused.RetryAfter)
	}
	b.interval = min(b.interval*3/2, 3*time.Second)
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
