package webhook_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"turnpike/webhook"
)

// The signatures were computed with openssl:
//
//	printf '%s' '1760000000.{"type":"x"}' | openssl dgst -sha256 -hmac "$secret"
//	printf '%s' 'dlv_1.1760000000.{"type":"x"}' | openssl dgst -sha256 -mac hmac -macopt "hexkey:$key" -binary | base64
func TestSignSetsTheSixHeaders(t *testing.T) {
	t.Parallel()
	h := http.Header{"Content-Type": {"application/json"}}
	if err := webhook.Sign(h, "dlv_1", now, []byte(`{"type":"x"}`), secretA, secretB); err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Content-Type":      {"application/json"},
		"Service-Signature": {"5336396c04706212f42022e86c7a68d8de054cc07846d0146709661a906dc80e"},
		"Service-Timestamp": {"1760000000"},
		"Service-Event-Id":  {"dlv_1"},
		"Webhook-Id":        {"dlv_1"},
		"Webhook-Timestamp": {"1760000000"},
		"Webhook-Signature": {"v1,Mzd1HcPAiH0hEHOwiToEO2mIRRrtefPfiVeqx9d6yDU= v1,uuBd3/NObHIU5tfslMJDfkK6tE0lgGbEAnqHERi4FbE="},
	}
	if !maps.EqualFunc(h, want, func(a, b []string) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("got  %v\nwant %v", h, want)
	}
	for name := range h {
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is not how http.Header keeps it", name)
		}
		h.Add(name, "more")
	}
	for name, v := range h {
		if len(v) != 2 || v[0] != want[name][0] && v[0] != "application/json" {
			t.Errorf("adding to a header changed %s to %v", name, v)
		}
	}
}

func TestSignRefusesWhatNobodyCouldVerify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		secrets []string
		want    error
	}{
		{nil, webhook.ErrNoSecret},
		{[]string{""}, webhook.ErrBadSecret},
		{[]string{"whsec_"}, webhook.ErrBadSecret},
		{[]string{"whsec_%%%"}, webhook.ErrBadSecret},
		{[]string{strings.TrimPrefix(secretA, "whsec_")}, webhook.ErrBadSecret},
		{[]string{secretA, "whsec_%%%"}, webhook.ErrBadSecret},
	} {
		h := http.Header{}
		if err := webhook.Sign(h, "dlv_1", now, body, c.secrets...); !errors.Is(err, c.want) || len(h) != 0 {
			t.Errorf("%d secrets: %v with %d headers set, want %v", len(c.secrets), err, len(h), c.want)
		} else if len(c.secrets) > 0 && len(c.secrets[0]) > 10 && strings.Contains(err.Error(), c.secrets[0]) {
			t.Error("the error quotes the secret")
		}
	}
}

func TestNewSecretIs32RandomBytes(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewSecret(), webhook.NewSecret()
	text, ok := strings.CutPrefix(a, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != 32 || a == b {
		t.Errorf("prefix %v, %d bytes, %v, twice the same: %v", ok, len(key), err, a == b)
	}
	if err := verifier(a).Verify(body, signed(t, now, body, a)); err != nil {
		t.Error(err)
	}
}

func BenchmarkSign(b *testing.B) {
	payload := []byte(`{"type":"x","data":"` + strings.Repeat("a", 1000) + `"}`)
	h := make(http.Header, 8)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := webhook.Sign(h, "dlv_01h455vb4pex5vsknk084sn02q", now, payload, secretA); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	payload := []byte(`{"type":"x","data":"` + strings.Repeat("a", 1000) + `"}`)
	h, v := signed(b, now, payload, secretA), verifier(secretA)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Verify(payload, h); err != nil {
			b.Fatal(err)
		}
	}
}
