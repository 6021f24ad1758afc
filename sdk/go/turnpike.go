// Package turnpike is a client of the parts of Turnpike's API that OpenAI's SDKs don't cover: scoped tokens, keys,
// projects, webhooks, deliveries, events, agent runs, jobs, billing and usage.
//
// Client has every operation of the API, generated from its OpenAPI document, with a JSON200 field in each response.
// It returns an *Error for every response that isn't a success. Functions written by hand iterate over lists, wait for
// jobs and runs, stream the events of a run, and verify webhooks.
package turnpike

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"turnpike/sdk/go/api"
)

// Client is a client of a server. It is safe for concurrent use.
type Client struct {
	*api.ClientWithResponses
	transport *transport
}

// Option changes a client.
type Option func(*settings)

type settings struct {
	client  *http.Client
	retries int
	project string
}

// WithHTTPClient replaces http.DefaultClient.
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.client = c } }

// WithMaxRetries sets how often to retry a request that failed temporarily. The default is 2.
func WithMaxRetries(n int) Option { return func(s *settings) { s.retries = n } }

// WithProject sets the project of all requests.
func WithProject(id string) Option { return func(s *settings) { s.project = id } }

// New returns a client of the server at a URL, such as https://turnpike.example.com, with a key or a scoped token.
func New(baseURL, key string, options ...Option) (*Client, error) {
	if baseURL == "" || key == "" {
		return nil, errors.New("turnpike: the base URL or the key is empty")
	}
	s := settings{client: http.DefaultClient, retries: 2}
	for _, o := range options {
		o(&s)
	}
	// Base URLs of OpenAI's SDKs end in /v1, which the paths have here.
	baseURL = strings.TrimSuffix(strings.TrimRight(baseURL, "/"), "/v1")
	c := &Client{transport: &transport{client: s.client, retries: s.retries}}
	var err error
	c.ClientWithResponses, err = api.NewClientWithResponses(baseURL, api.WithHTTPClient(c.transport), api.WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+key)
		if s.project != "" && req.Header.Get("Service-Project") == "" {
			req.Header.Set("Service-Project", s.project)
		}
		return nil
	}))
	return c, err
}
