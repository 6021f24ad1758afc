package openai

import (
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

var (
	_ providers.ImageMaker  = (*Provider)(nil)
	_ providers.SpeechMaker = (*Provider)(nil)
	_ providers.VideoMaker  = (*Provider)(nil)
)

// address is where a model's calls go.
func (p *Provider) address(model, path string) string {
	if p.apiVersion != "" {
		return p.base + "/deployments/" + url.PathEscape(model) + path + "?api-version=" + url.QueryEscape(p.apiVersion)
	}
	return p.base + path
}

// do makes a call whose refusal may be a filter's. The header is added to the
// provider's own.
func (p *Provider) do(ctx context.Context, call wire.Call) (*http.Response, error) {
	header := p.header.Clone()
	maps.Copy(header, call.Header)
	var verdict providers.Kind
	call.Header, call.Explain = header, explainVerdict(&verdict)
	resp, err := p.client.Do(ctx, call)
	return resp, judged(err, verdict)
}

// explainVerdict is explain, and notes what a filter has decided.
func explainVerdict(verdict *providers.Kind) wire.Explain {
	return func(status int, body []byte) (param, message string) {
		var o object
		if o.parse(body) == nil {
			*verdict = filterVerdict(o.get("error"))
		}
		return explain(status, body)
	}
}

// judged gives a failure the kind of a filter's verdict, if there is one.
func judged(err error, verdict providers.Kind) error {
	var f *providers.Failure
	if verdict != "" && errors.As(err, &f) {
		f.Kind = verdict
	}
	return err
}

// complaintFailure is of an error object inside an answer. It is nil if there
// is no error.
func (p *Provider) complaintFailure(status int, value jsontext.Value) error {
	var o object
	if err := o.parse([]byte(`{"error":` + string(value) + `}`)); value == nil || err != nil {
		return nil
	}
	c, failed := complaintIn(&o)
	if !failed {
		return nil
	}
	return judged(c.failure(status, p.secrets), filterVerdict(value))
}

// filterCodes are the words for a filter's refusal: OpenAI's, and Azure's.
var filterCodes = []string{"moderation_blocked", "content_policy_violation", "content_filter", "contentfilter", "responsibleaipolicyviolation"}

// filterVerdict is what a filter has decided, by an error object: that the
// caller's input or the model's output is blocked, or nothing.
func filterVerdict(value jsontext.Value) providers.Kind {
	var e object
	if value.Kind() != '{' || e.parse(value) != nil {
		return ""
	}
	if !isFilterCode(e.get("code")) && !isFilterCode(inside(&e, "inner_error", "code")) && !isFilterCode(inside(&e, "innererror", "code")) {
		return ""
	}
	message := strings.ToLower(text(e.get("message")))
	switch stage := text(inside(&e, "moderation_details", "moderation_stage")); {
	case stage == "output":
		return providers.KindBlockedOutput
	case stage != "": // input
	case strings.Contains(message, "generated image"), strings.Contains(message, "generated video"), strings.Contains(message, "output"):
		return providers.KindBlockedOutput
	}
	return providers.KindBlockedInput
}

func isFilterCode(value jsontext.Value) bool {
	code := strings.ToLower(text(value))
	for _, known := range filterCodes {
		if code == known {
			return true
		}
	}
	return false
}

// inside is a member of a member.
func inside(o *object, outer, inner string) jsontext.Value {
	var in object
	if value := o.get(outer); value.Kind() != '{' || in.parse(value) != nil {
		return nil
	}
	return in.get(inner)
}

// maxComplaint bounds what is read of an answer that should have been a file.
const maxComplaint = 64 << 10

// content is a file as an answer. Words in its place are a failure, whatever
// the status says. fallback is the type where the server has none worth the
// name, and opaque is for files that may begin with any byte.
func (p *Provider) content(resp *http.Response, fallback string, opaque bool) (*providers.Content, error) {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	if isWords(kind) {
		return nil, p.wordsFailure(resp, resp.Body)
	}
	media := strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "video/") || strings.HasPrefix(kind, "image/")
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(resp.Body, first, 1)
	first = first[:n]
	switch {
	case err == io.EOF:
		_ = resp.Body.Close()
		return nil, protocol("an answer (%s) without a byte", resp.Header.Get("Content-Type"))
	case err != nil:
		_ = resp.Body.Close()
		return nil, err
	case !media && !opaque && (first[0] == '{' || first[0] == '<'):
		return nil, p.wordsFailure(resp, io.MultiReader(strings.NewReader(string(first)), resp.Body))
	case media:
		fallback = resp.Header.Get("Content-Type")
	}
	return &providers.Content{ContentType: fallback, Size: resp.ContentLength, Body: &begun{first, resp.Body}}, nil
}

// isWords reports whether a type is for people or programs to read.
func isWords(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml")
}

// wordsFailure closes an answer that has words where a file should be.
func (p *Provider) wordsFailure(resp *http.Response, body io.Reader) error {
	defer resp.Body.Close()
	words, err := io.ReadAll(io.LimitReader(body, maxComplaint))
	if err != nil {
		return err
	}
	var o object
	if o.parse(words) == nil {
		if err := p.complaintFailure(resp.StatusCode, o.get("error")); err != nil {
			return err
		}
	}
	return protocol("words (%s) in place of a file", wire.Loggable(resp.Header.Get("Content-Type"), p.secrets...))
}

// begun is a body of which the first bytes were read.
type begun struct {
	first []byte
	io.ReadCloser
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 {
		return b.ReadCloser.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}
