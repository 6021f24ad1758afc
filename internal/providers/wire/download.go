package wire

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"turnpike/internal/providers"
)

// Download gets a file, with the results of Post. Providers keep files with
// others and redirect to them: unlike a call, a download follows, but the
// header, which has the key in it, stays with the server that it was meant for.
func (c *Client) Download(ctx context.Context, from string, header http.Header, explain Explain) (*http.Response, error) {
	at, err := url.Parse(from)
	if err != nil || !isWeb(at) {
		return nil, &providers.Failure{Kind: providers.KindProtocol, Err: errors.New("the file's address is no http or https URL")}
	}
	call := Call{Method: http.MethodGet, Header: header, Explain: explain}
	sent := header
	for hops := 0; ; hops++ {
		resp, err := c.send(ctx, Call{Method: http.MethodGet, URL: at.String(), Header: sent})
		if err != nil {
			return nil, err
		}
		to, err := resp.Location()
		if resp.StatusCode/100 != 3 || err != nil || hops == maxRedirects || !isWeb(to) || at.Scheme == "https" && to.Scheme != "https" {
			return call.succeeded(resp)
		}
		_ = resp.Body.Close()
		if to.Scheme != at.Scheme || to.Host != at.Host {
			sent = nil
		}
		at = to
	}
}

func isWeb(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
