package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/providers/wire"
)

func TestChatBodyChangesOnlyItsFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body    string
		stream  bool
		most    int64
		model   string // "m" if empty
		id      string
		dialect dialect
		want    string
	}{
		"model alone":         {body: `{"model":"x"}`, want: `{"model":"m"}`},
		"no model":            {body: ` { } `, want: `{"model":"m"}`},
		"model with quotes":   {body: `{"model":"x"}`, model: `a"b\`, want: `{"model":"a\"b\\"}`},
		"all else stays":      {body: "{ \"b\" : 1e400 ,\n\t\"model\":\"x\", \"a\":\"\\u00e9\\/é\", \"c\":[1 , {}]\r\n}\n", want: "{\"b\":1e400,\"model\":\"m\",\"a\":\"\\u00e9\\/é\",\"c\":[1 , {}]}"},
		"inner names stay":    {body: `{"model":"x","metadata":{"model":"x","models":[],"max_tokens":9}}`, most: 5, want: `{"model":"m","metadata":{"model":"x","models":[],"max_tokens":9},"max_tokens":5}`},
		"models first":        {body: `{ "models":["a"], "model":"x"}`, want: `{"model":"m"}`},
		"models last":         {body: `{"model":"x" , "models":["a"] }`, want: `{"model":"m"}`},
		"models between":      {body: `{"model":"x", "models":["a"], "n":1}`, want: `{"model":"m","n":1}`},
		"models alone":        {body: `{ "models":["a"] }`, want: `{"model":"m"}`},
		"names with escapes":  {body: `{"mod\u0065l":"x","model\u0073":[],"max_tok\u0065ns":9}`, most: 5, want: `{"model":"m","max_tokens":5}`},
		"plain call":          {body: `{"model":"x","stream_options":null}`, want: `{"model":"m","stream_options":null}`},
		"stream":              {body: `{"model":"x","stream":true}`, stream: true, want: `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		"stream options":      {body: `{"model":"x","stream_options":{ "a":1 }}`, stream: true, want: `{"model":"m","stream_options":{"a":1,"include_usage":true}}`},
		"no options":          {body: `{"model":"x","stream_options":{}}`, stream: true, want: `{"model":"m","stream_options":{"include_usage":true}}`},
		"null options":        {body: `{"model":"x","stream_options":null}`, stream: true, want: `{"model":"m","stream_options":{"include_usage":true}}`},
		"usage not wanted":    {body: `{"model":"x","stream_options":{"include_usage":false,"b":2}}`, stream: true, want: `{"model":"m","stream_options":{"include_usage":true,"b":2}}`},
		"usage wanted":        {body: `{"model":"x","stream_options":{"include_usage":true}}`, stream: true, want: `{"model":"m","stream_options":{"include_usage":true}}`},
		"wrong options":       {body: `{"model":"x","stream_options":7}`, stream: true, want: `{"model":"m","stream_options":7}`},
		"options refused":     {body: `{"model":"x","stream_options":{"a":1}}`, stream: true, dialect: dialect{noStreamOptions: true}, want: `{"model":"m"}`},
		"no limit":            {body: `{"model":"x"}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"no limit, reasoning": {body: `{"model":"x"}`, most: 100, model: "o3-mini", want: `{"model":"o3-mini","max_completion_tokens":100}`},
		"lower limit":         {body: `{"model":"x","max_tokens":99}`, most: 100, want: `{"model":"m","max_tokens":99}`},
		"higher limit":        {body: `{"model":"x","max_tokens":101}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"huge limit":          {body: `{"model":"x","max_tokens":99999999999999999999999}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"limit with exponent": {body: `{"model":"x","max_completion_tokens":1e3}`, most: 100, want: `{"model":"m","max_completion_tokens":100}`},
		"both limits":         {body: `{"model":"x","max_tokens":101,"max_completion_tokens":102}`, most: 100, want: `{"model":"m","max_tokens":100,"max_completion_tokens":100}`},
		"null limit":          {body: `{"model":"x","max_tokens":null}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"null and a limit":    {body: `{"model":"x","max_tokens":null,"max_completion_tokens":7}`, most: 100, want: `{"model":"m","max_tokens":null,"max_completion_tokens":7}`},
		"minus one":           {body: `{"model":"x","max_tokens":-1}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"text as limit":       {body: `{"model":"x","max_tokens":"100000"}`, most: 100, want: `{"model":"m","max_tokens":100}`},
		"llama.cpp's limit":   {body: `{"model":"x","n_predict":-1}`, most: 100, want: `{"model":"m","n_predict":100,"max_tokens":100}`},
		"unbounded":           {body: `{"model":"x","max_tokens":-1}`, want: `{"model":"m","max_tokens":-1}`},
		"old limit only":      {body: `{"model":"x","max_completion_tokens":7,"n":1}`, most: 100, dialect: dialect{maxTokensOnly: true}, want: `{"model":"m","n":1,"max_tokens":7}`},
		"old, higher":         {body: `{"max_completion_tokens":700,"model":"x"}`, most: 100, dialect: dialect{maxTokensOnly: true}, want: `{"model":"m","max_tokens":100}`},
		"old, null":           {body: `{"model":"x","max_tokens":null,"max_completion_tokens":7}`, most: 100, dialect: dialect{maxTokensOnly: true}, want: `{"model":"m","max_tokens":7}`},
		"old, unbounded":      {body: `{"model":"x","max_completion_tokens":7}`, dialect: dialect{maxTokensOnly: true}, want: `{"model":"m","max_tokens":7}`},
		"old, both":           {body: `{"model":"x","max_completion_tokens":7,"max_tokens":900}`, most: 100, dialect: dialect{maxTokensOnly: true}, want: `{"model":"m","max_tokens":100}`},
		"new limit only":      {body: `{"model":"x","max_tokens":7,"n":1}`, most: 100, model: "gpt-5-mini", want: `{"model":"gpt-5-mini","n":1,"max_completion_tokens":7}`},
		"new, unbounded":      {body: `{"max_tokens":7,"model":"x"}`, model: "o3", want: `{"model":"o3","max_completion_tokens":7}`},
		"new, both":           {body: `{"model":"x","max_tokens":7,"max_completion_tokens":900}`, most: 100, model: "o3", want: `{"model":"o3","max_completion_tokens":100}`},
		"a deployment's name": {body: `{"model":"gpt-5"}`, most: 100, model: "team-gpt-5", id: "gpt-5", want: `{"model":"team-gpt-5","max_completion_tokens":100}`},
		"a customer's name":   {body: `{"model":"best"}`, most: 100, model: "gpt-5", id: "best", want: `{"model":"gpt-5","max_completion_tokens":100}`},
		"old, none":           {body: `{"model":"x"}`, most: 100, model: "o3", dialect: dialect{maxTokensOnly: true}, want: `{"model":"o3","max_tokens":100}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.model == "" {
				c.model = "m"
			}
			given := []byte(c.body)
			got, err := c.dialect.chatBody(&providers.ChatRequest{Model: c.model, ID: c.id, Body: given, Stream: c.stream, MaxOutput: c.most})
			if string(got) != c.want || err != nil {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
			if string(given) != c.body {
				t.Errorf("the request body was changed to %s", given)
			}
		})
	}
}

func TestBodyMustBeAnObject(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "null", "[]", "1", `"{}"`, "\uFEFF{}"} {
		if _, err := (dialect{}).chatBody(&providers.ChatRequest{Body: []byte(body), Stream: true}); !fault.Is(err, fault.InvalidJSON) {
			t.Errorf("%q: got %v, want invalid_json", body, err)
		}
		if _, err := (&Provider{}).forward(t.Context(), "m", "/embeddings", []byte(body)); !fault.Is(err, fault.InvalidJSON) {
			t.Errorf("%q for embeddings: got %v, want invalid_json", body, err)
		}
	}
}

func TestLimitFieldDependsOnTheModel(t *testing.T) {
	t.Parallel()
	for model, want := range map[string]string{
		"o1": maxCompletionTokens, "o3-mini": maxCompletionTokens, "o4-mini-2025-04-16": maxCompletionTokens, "gpt-5": maxCompletionTokens, "gpt-5.1-mini": maxCompletionTokens, "gpt-10": maxCompletionTokens, "openai/gpt-5-nano": maxCompletionTokens,
		"ft:o4-mini-2025-04-16:acme::abc": maxCompletionTokens, "ft:gpt-5-mini:acme/x::abc": maxCompletionTokens, "ft:gpt-4o-mini:acme::abc": maxTokens,
		"gpt-4o": maxTokens, "gpt-4.1": maxTokens, "gpt-3.5-turbo": maxTokens, "gpt-oss-120b": maxTokens, "olmo-2": maxTokens, "o": maxTokens, "": maxTokens,
		"llama3.1:8b": maxTokens, "openai/gpt-4o": maxTokens, "o1/llama": maxTokens, "gpt-99999999999999999999": maxTokens,
	} {
		if got := limitName(&providers.ChatRequest{Model: model}); got != want {
			t.Errorf("%s: got %s, want %s", model, got, want)
		}
	}
}

// Only the members that must change do, and every other byte stays the same.
func TestRandomBodyChangesOnlyItsFields(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := drawObject(t, 3)
		req := &providers.ChatRequest{
			Model:     rapid.StringMatching(`[a-z0-9/"\\é-]{1,12}`).Draw(t, "model"),
			Body:      []byte(body),
			Stream:    rapid.Bool().Draw(t, "stream"),
			MaxOutput: rapid.Int64Range(0, 200).Draw(t, "most"),
		}
		d := dialect{maxTokensOnly: rapid.Bool().Draw(t, "old"), noStreamOptions: rapid.Bool().Draw(t, "no options")}
		got, err := d.chatBody(req)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if !jsontext.Value(got).IsValid(wire.Lenient) {
			t.Fatalf("%s became %s", body, got)
		}
		before, after := rawMembers(t, req.Body), rawMembers(t, got)
		ours := func(m rawMember) bool {
			return slices.Contains([]string{"model", "models", "stream_options", maxTokens, maxCompletionTokens, nPredict}, m.name)
		}
		if was, is := slices.DeleteFunc(slices.Clone(before), ours), slices.DeleteFunc(slices.Clone(after), ours); !slices.Equal(was, is) {
			t.Fatalf("%s became %s", body, got)
		}
		for _, m := range after {
			checkMember(t, req, d, m)
		}
		has := func(name string) bool {
			return slices.ContainsFunc(after, func(m rawMember) bool { return m.name == name && m.value != "null" })
		}
		if !has("model") || req.MaxOutput > 0 && !has(maxTokens) && !has(maxCompletionTokens) || req.Stream && !d.noStreamOptions && !has("stream_options") {
			t.Fatalf("%s became %s", body, got)
		}
		// A body that needs no change stays the same, with all its white space.
		again, err := d.chatBody(&providers.ChatRequest{Model: req.Model, Body: got, Stream: req.Stream, MaxOutput: req.MaxOutput})
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s became %s, %v", got, again, err)
		}
	})
}

func checkMember(t *rapid.T, req *providers.ChatRequest, d dialect, m rawMember) {
	switch m.name {
	case "model":
		if s, _ := jsontext.AppendUnquote(nil, m.value); string(s) != req.Model {
			t.Fatalf("the model is %s", m.value)
		}
	case "models":
		t.Fatalf("models is still there")
	case "stream_options":
		if req.Stream && m.value[0] == '{' && !slices.Contains(rawMembers(t, []byte(m.value)), rawMember{"include_usage", "true"}) || d.noStreamOptions {
			t.Fatalf("the stream options are %s", m.value)
		}
	case maxTokens, maxCompletionTokens, nPredict:
		n, err := strconv.ParseFloat(m.value, 64)
		if m.value != "null" && req.MaxOutput > 0 && (err != nil || n < 1 || n > float64(req.MaxOutput)) || d.maxTokensOnly && m.name == maxCompletionTokens {
			t.Fatalf("%s is %s", m.name, m.value)
		}
	}
}

type rawMember struct{ name, value string }

// rawMembers reads an object with another decoder than the package.
func rawMembers(t *rapid.T, text []byte) (list []rawMember) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, rawMember{fmt.Sprint(name), string(value)})
	}
	return list
}

// drawObject draws the text of an object, with odd white space and numbers.
func drawObject(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r\n  "})
	name := rapid.OneOf(
		rapid.SampledFrom([]string{`"model"`, `"models"`, `"stream"`, `"stream_options"`, `"max_tokens"`, `"max_completion_tokens"`, `"n_predict"`, `"mod\u0065ls"`, `"max\u005ftokens"`, `"messages"`, `"include_usage"`}),
		rapid.StringMatching(`"[a-zé ]{0,4}(\\u00e9|\\/|\\n)?"`),
	)
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"null", "true", "false", `""`, `"x\u2028\"}"`, "{}", "[]", "[ 1,{} ]", "-1", "0", "1e3"}),
		rapid.StringMatching(`-?[1-9][0-9]{0,30}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?`),
		rapid.StringMatching(`"[a-zé日🦩 :,{}\[\]]{0,8}"`),
	)
	var out strings.Builder
	out.WriteString(space.Draw(t, "space") + "{" + space.Draw(t, "space"))
	n := rapid.IntRange(0, 6).Draw(t, "members")
	for i := range n {
		if i > 0 {
			out.WriteString("," + space.Draw(t, "space"))
		}
		out.WriteString(name.Draw(t, "name") + space.Draw(t, "space") + ":" + space.Draw(t, "space"))
		if depth > 0 && rapid.IntRange(0, 3).Draw(t, "nest") == 0 {
			out.WriteString(drawObject(t, depth-1))
		} else {
			out.WriteString(value.Draw(t, "value"))
		}
		out.WriteString(space.Draw(t, "space"))
	}
	out.WriteString("}" + space.Draw(t, "space"))
	return out.String()
}
