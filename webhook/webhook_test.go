package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/webhook"
)

var now = time.Unix(1_760_000_000, 0)

const (
	secretA = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	secretB = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
)

var body = []byte(`{"id":"evt_1","object":"event","type":"image.batch.completed","created_at":1760000000,"environment":"test","workspace":"ws_1","project":null,"data":{"id":"imgbatch_1","note":"é 😀"}}`)

// signed returns the headers of a delivery signed at the given time.
func signed(t testing.TB, at time.Time, body []byte, secrets ...string) http.Header {
	t.Helper()
	h := http.Header{}
	if err := webhook.Sign(h, "dlv_1", at, body, secrets...); err != nil {
		t.Fatal(err)
	}
	return h
}

func verifier(secrets ...string) webhook.Verifier {
	return webhook.Verifier{Secrets: secrets, Now: func() time.Time { return now }}
}

func TestVerifyAcceptsWhatTheSpecificationSigns(t *testing.T) {
	t.Parallel()
	// Computed without this package: hex HMAC-SHA256 of "{timestamp}.{body}", keyed
	// with the secret's string.
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secretA))
	mac.Write([]byte(timestamp + "." + string(body)))
	h := http.Header{}
	h.Set("Service-Timestamp", timestamp)
	h.Set("Service-Signature", hex.EncodeToString(mac.Sum(nil)))
	h.Set("Service-Event-Id", "dlv_1")
	if err := webhook.Verify(body, h, secretA); err != nil {
		t.Error(err)
	}
}

func TestVerifyRefusesWithTheReason(t *testing.T) {
	t.Parallel()
	set := func(name, value string) func(http.Header) {
		return func(h http.Header) { h.Set(name, value) }
	}
	both := func(a, b, value string) func(http.Header) {
		return func(h http.Header) { h.Set(a, value); h.Set(b, value) }
	}
	good := signed(t, now, body, secretA).Get("Service-Signature")
	for name, c := range map[string]struct {
		change func(http.Header)
		body   []byte
		secret string
		want   error
	}{
		"as sent":                    {want: nil},
		"another body":               {body: append(slices.Clone(body), ' '), want: webhook.ErrSignature},
		"another secret":             {secret: secretB, want: webhook.ErrSignature},
		"the secret without whsec_":  {secret: strings.TrimPrefix(secretA, "whsec_"), want: webhook.ErrSignature},
		"another timestamp":          {change: set("Service-Timestamp", "1760000001"), want: webhook.ErrSignature},
		"no signature":               {change: func(h http.Header) { h.Del("Service-Signature") }, want: webhook.ErrNoSignature},
		"an empty signature":         {change: set("Service-Signature", ""), want: webhook.ErrNoSignature},
		"a short signature":          {change: set("Service-Signature", good[:63]), want: webhook.ErrSignature},
		"a long signature":           {change: set("Service-Signature", good+"0"), want: webhook.ErrSignature},
		"a signature in capitals":    {change: set("Service-Signature", strings.ToUpper(good)), want: webhook.ErrSignature},
		"no timestamp":               {change: func(h http.Header) { h.Del("Service-Timestamp") }, want: webhook.ErrBadTimestamp},
		"a timestamp in words":       {change: set("Service-Timestamp", "yesterday"), want: webhook.ErrBadTimestamp},
		"a negative timestamp":       {change: set("Service-Timestamp", "-1760000000"), want: webhook.ErrBadTimestamp},
		"a timestamp with a sign":    {change: set("Service-Timestamp", "+1760000000"), want: webhook.ErrBadTimestamp},
		"a fractional timestamp":     {change: set("Service-Timestamp", "1760000000.5"), want: webhook.ErrBadTimestamp},
		"a timestamp past 64 bits":   {change: set("Service-Timestamp", "99999999999999999999"), want: webhook.ErrBadTimestamp},
		"the last timestamp of all":  {change: set("Service-Timestamp", "9223372036854775807"), want: webhook.ErrStale},
		"a timestamp in the 1970s":   {change: set("Service-Timestamp", "0"), want: webhook.ErrStale},
		"milliseconds for a second":  {change: set("Service-Timestamp", "1760000000000"), want: webhook.ErrStale},
		"another delivery ID":        {change: set("Service-Event-Id", "dlv_2"), want: webhook.ErrUnsignedID},
		"both IDs changed":           {change: both("Service-Event-Id", "Webhook-Id", "dlv_2"), want: webhook.ErrUnsignedID},
		"another standard signature": {change: set("Webhook-Signature", "v1,x"), want: webhook.ErrUnsignedID},
		"no standard signature":      {change: func(h http.Header) { h.Del("Webhook-Signature") }, want: webhook.ErrUnsignedID},
		"another standard timestamp": {change: set("Webhook-Timestamp", "1760000001"), want: webhook.ErrUnsignedID},
		"no standard headers":        {change: dropStandard, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, b, secret := signed(t, now, body, secretA), body, secretA
			if c.change != nil {
				c.change(h)
			}
			if c.body != nil {
				b = c.body
			}
			if c.secret != "" {
				secret = c.secret
			}
			if err := verifier(secret).Verify(b, h); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// dropStandard removes the Standard Webhooks headers, as a proxy may do.
func dropStandard(h http.Header) {
	for _, name := range []string{webhook.HeaderStandardID, webhook.HeaderStandardTimestamp, webhook.HeaderStandardSignature} {
		h.Del(name)
	}
}

func TestRequireSignedIDRejectsDeliveriesWithoutStandardHeaders(t *testing.T) {
	t.Parallel()
	strict := verifier(secretA)
	strict.RequireSignedID = true
	h := signed(t, now, body, secretA)
	if err := strict.Verify(body, h); err != nil {
		t.Errorf("got %v for a whole delivery, want nil", err)
	}
	dropStandard(h)
	h.Set(webhook.HeaderEventID, "dlv_2")
	if err := strict.Verify(body, h); !errors.Is(err, webhook.ErrUnsignedID) {
		t.Errorf("got %v without the standard headers, want %v", err, webhook.ErrUnsignedID)
	}
}

func TestToleranceIsFiveMinutesBothWays(t *testing.T) {
	t.Parallel()
	for offset, want := range map[int]error{-301: webhook.ErrStale, -300: nil, 0: nil, 300: nil, 301: webhook.ErrStale} {
		h := signed(t, now.Add(time.Duration(offset)*time.Second), body, secretA)
		if err := verifier(secretA).Verify(body, h); !errors.Is(err, want) {
			t.Errorf("signed %+d s from now: got %v, want %v", offset, err, want)
		}
	}
	v := verifier(secretA)
	v.Tolerance = 10 * time.Second
	if err := v.Verify(body, signed(t, now.Add(-11*time.Second), body, secretA)); !errors.Is(err, webhook.ErrStale) {
		t.Errorf("a tolerance of one's own: %v", err)
	}
	if err := webhook.Verify(body, signed(t, time.Now().Add(-time.Hour), body, secretA), secretA); !errors.Is(err, webhook.ErrStale) {
		t.Errorf("by the real clock: %v", err)
	}
}

// If the secret is missing in a receiver's settings, anyone could sign with an empty
// key.
func TestEmptySecretVerifiesNothing(t *testing.T) {
	t.Parallel()
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte("1760000000." + string(body)))
	h := http.Header{"Service-Timestamp": {"1760000000"}, "Service-Signature": {hex.EncodeToString(mac.Sum(nil))}}
	for _, v := range []webhook.Verifier{verifier(), verifier(""), verifier("", "")} {
		if err := v.Verify(body, h); !errors.Is(err, webhook.ErrNoSecret) {
			t.Errorf("%d secrets: %v", len(v.Secrets), err)
		}
	}
	if err := verifier("", secretA).Verify(body, h); !errors.Is(err, webhook.ErrSignature) {
		t.Error(err)
	}
}

func TestRotationIsAcceptedWithBothSecrets(t *testing.T) {
	t.Parallel()
	both := verifier(secretA, secretB)
	for _, secrets := range [][]string{{secretA}, {secretA, secretB}, {secretB}} { // before, in and after the grace period
		if err := both.Verify(body, signed(t, now, body, secrets...)); err != nil {
			t.Error(err)
		}
	}
}

func TestParseReadsTheEvent(t *testing.T) {
	t.Parallel()
	e, err := webhook.Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != "evt_1" || e.Type != "image.batch.completed" || e.CreatedAt != 1760000000 || e.Environment != "test" ||
		e.Workspace != "ws_1" || e.Project != nil || e.Sample || string(e.Data) != `{"id":"imgbatch_1","note":"é 😀"}` {
		t.Errorf("got %+v", e)
	}
	e, err = webhook.Parse([]byte(`{"type":"agent.run.failed","project":"web","sample":true,"data":{},"new_field":1}`))
	if err != nil || e.Project == nil || *e.Project != "web" || !e.Sample {
		t.Errorf("got %+v, %v", e, err)
	}
	for _, bad := range []string{"", "null", "[]", "{", `{"data":{}}`, `{"type":7}`} {
		if e, err := webhook.Parse([]byte(bad)); err == nil {
			t.Errorf("%q gives %+v", bad, e)
		}
	}
}

func TestHandlerFollowsTheReceiverRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		body   string
		change func(http.Header)
		at     time.Time
		fails  bool
		want   int
	}{
		"good":                {want: 204},
		"fn fails":            {fails: true, want: 500},
		"stale":               {at: now.Add(-301 * time.Second), want: 400},
		"from the future":     {at: now.Add(301 * time.Second), want: 400},
		"no timestamp":        {change: func(h http.Header) { h.Del("Service-Timestamp") }, want: 400},
		"no signature":        {change: func(h http.Header) { h.Del("Service-Signature") }, want: 401},
		"wrong signature":     {change: func(h http.Header) { h.Set("Service-Signature", strings.Repeat("0", 64)) }, want: 401},
		"no delivery id":      {change: func(h http.Header) { h.Del("Service-Event-Id") }, want: 400},
		"not an event":        {body: "[]", want: 400},
		"as large as allowed": {body: `{"type":"x","data":"` + strings.Repeat("a", 1<<20) + `"}`, want: 204},
		"too large":           {body: strings.Repeat(" ", 2<<20), want: 413},
		"GET":                 {method: "GET", want: 405},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			handler := verifier(secretA).Handler(func(_ context.Context, e *webhook.Event, deliveryID string) error {
				calls++
				if e.Type == "" || deliveryID != "dlv_1" {
					t.Errorf("got %+v as %q", e, deliveryID)
				}
				if c.fails {
					return errors.New("the password is hunter2")
				}
				return nil
			})
			text, at, method := string(body), now, "POST"
			if c.body != "" {
				text = c.body
			}
			if !c.at.IsZero() {
				at = c.at
			}
			if c.method != "" {
				method = c.method
			}
			r := httptest.NewRequest(method, "/hooks", strings.NewReader(text))
			r.Header = signed(t, at, []byte(text), secretA)
			if c.change != nil {
				c.change(r.Header)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.want)
			}
			if called := c.want == 204 || c.fails; called != (calls == 1) {
				t.Errorf("the event was handed over %d times", calls)
			}
			if strings.Contains(w.Body.String(), "hunter2") {
				t.Error("the sender sees the receiver's own error")
			}
		})
	}
}

func TestHandlerWithoutASecretAsksItsOwnerForOne(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("POST", "/hooks", strings.NewReader(string(body)))
	r.Header = signed(t, time.Now(), body, secretA)
	w := httptest.NewRecorder()
	webhook.Handler("", func(context.Context, *webhook.Event, string) error { return nil }).ServeHTTP(w, r)
	if w.Code != 500 || !strings.Contains(w.Body.String(), "no secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
