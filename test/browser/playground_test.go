//go:build browser

package browser_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// write types into the field that a selector finds, after what it has.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.run(chromedp.SendKeys(selector, text, chromedp.NodeVisible))
}

// clickOn clicks the element that a selector finds.
func (b *tab) clickOn(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(selector, chromedp.NodeVisible))
}

// value returns a property of the first element that a selector finds.
func (b *tab) value(selector, property string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`String(document.querySelector(%q)?.%s ?? "")`, selector, property))
}

const (
	firstMessage = "#pg-messages textarea"
	answers      = "#pg-answers"
)

func TestPlaygroundRunsRequests(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.press("Playground")
	b.until("a model is chosen", func() bool { return b.value("#pg-model", "value") != "" })

	// A streamed answer, with tokens, cost and a link to the log.
	b.write(firstMessage, "What is the capital of Norway? [[sim:text=Oslo is the capital.]]")
	b.clickOn("#pg-run")
	b.sees("Oslo is the capital.", "complete", "tokens", "free (", "Open in the request log")
	if raw := b.value(answers, "textContent"); !strings.Contains(raw, `"stream": true`) || !strings.Contains(raw, "data: [DONE]") {
		t.Errorf("the raw request or response is missing in:\n%s", raw)
	}
	b.sees("ms") // of the latency
	if said := b.value("#pg-status", "textContent"); !strings.Contains(said, "Oslo is the capital.") {
		t.Errorf("screen readers hear %q, want the answer", said)
	}

	// The code has the same request.
	b.tap("View code")
	for language, want := range map[string]string{"curl": "/v1/chat/completions", "Python": "client.chat.completions.create(", "TypeScript": "await client.chat.completions.create({", "Go": "client.Chat.Completions.NewStreaming"} {
		b.clickOn("#pg-language-" + strings.ToLower(language))
		if code := b.value("#pg-snippet", "textContent"); !strings.Contains(code, want) || !strings.Contains(code, "capital of Norway") || strings.Contains(code, "tp_scoped_") {
			t.Errorf("the code in %s is\n%s", language, code)
		}
	}
	b.tap("Close")

	// What was typed survives a reload, and no token is stored.
	b.open(b.path())
	b.until("the message is restored", func() bool { return strings.Contains(b.value(firstMessage, "value"), "capital of Norway") })
	if kept := eval[string](b, `JSON.stringify({...sessionStorage, ...localStorage})`); strings.Contains(kept, "tp_") {
		t.Errorf("the browser stores a token: %s", kept)
	}

	// Two models at once, by the keyboard.
	b.tap("Compare")
	b.until("a second model is chosen", func() bool { return b.value("#pg-second_model", "value") != "" })
	b.clickOn("#pg-second_model")
	b.write("#pg-second_model", "claude haiku")
	b.until("models are found", func() bool { return strings.Contains(b.value("#pg-second_model-list", "textContent"), "claude") })
	b.write("#pg-second_model", kb.ArrowDown+kb.Enter)
	b.until("a Claude is chosen", func() bool { return strings.HasPrefix(b.value("#pg-second_model", "value"), "claude-") })
	b.write(firstMessage, " ")
	eval[bool](b, `document.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", ctrlKey: true, bubbles: true}))`)
	b.until("both models have answered", func() bool {
		return eval[int](b, `[...document.querySelectorAll(".pg-answer")].filter((a) => a.querySelector(".pg-text").textContent === "Oslo is the capital." && a.textContent.includes("free (")).length`) == 2
	})
	b.tap("Compare")

	// An attached image.
	b.tap("Clear")
	b.write(firstMessage, "What is this?")
	b.run(chromedp.SetUploadFiles("#pg-messages input[type=file]", []string{smallImage(t)}))
	b.until("the image is attached", func() bool { return b.value(".pg-images img", "src") != "" })
	b.clickOn("#pg-run")
	b.sees("simulated answer to: What is this?", "free (")
	if raw := b.value(answers, "textContent"); !strings.Contains(raw, `"type": "image_url"`) {
		t.Errorf("the request has no image:\n%s", raw)
	}

	// A simulated error by a chip.
	b.allow(429)
	b.tap("Error 429")
	b.clickOn("#pg-run")
	b.sees("rate_limit_exceeded", "Run again in 1 s.")
	b.until("Run is enabled again", func() bool { return b.value("#pg-run", "disabled") == "false" })
}

func TestPlaygroundAnswersToolCallsAndStops(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.open(in(w, accounts.Test, "playground"))
	b.until("a model is chosen", func() bool { return b.value("#pg-model", "value") != "" })
	b.write(firstMessage, "How is the weather in Oslo?")
	b.tap("Tool call")
	b.clickOn("#pg-run")
	b.sees("calls tools", "Result of get_weather")
	b.write(".pg-call textarea", `{"temperature": -3}`)
	b.tap("Send results")
	b.sees("complete")
	if n := eval[int](b, `document.querySelectorAll("#pg-messages > li").length`); n != 3 {
		t.Errorf("the conversation has %d messages, want the question, the call and its result", n)
	}
	b.tap("Continue the conversation")
	if n := eval[int](b, `document.querySelectorAll("#pg-messages > li").length`); n != 5 {
		t.Errorf("the conversation has %d messages, want the answer and a new one as well", n)
	}

	// A wrong schema is reported beside its field, and nothing is sent.
	b.tap("Clear")
	b.write(firstMessage, "Hello [[sim:delay=50s]]")
	eval[bool](b, `(() => { const f = document.querySelector("[data-field=format]"); f.value = "json_schema"; return f.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	b.write("[data-field=schema]", "x")
	b.clickOn("#pg-run")
	b.sees("This is not valid JSON", "Correct the marked field.")

	// Stop ends a slow request.
	eval[bool](b, `(() => { const f = document.querySelector("[data-field=format]"); f.value = "text"; return f.dispatchEvent(new Event("input", {bubbles: true})); })()`)
	b.clickOn("#pg-run")
	b.sees("running")
	b.clickOn("#pg-stop")
	b.sees("stopped")
}

func TestPlaygroundMakesImagesAndSpeech(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	w := s.Workspace(t, "acme")
	b := owner(t, s, w)
	b.open(in(w, accounts.Test, "playground"))
	b.until("a model is chosen", func() bool { return b.value("#pg-model", "value") != "" })
	b.clickOn("#pg-tab-images")
	b.write("[data-field=prompt]", "A lighthouse")
	b.clickOn("#pg-run")
	b.until("the image is shown", func() bool {
		return eval[bool](b, `(document.querySelector(".pg-answer figure img")?.naturalWidth ?? 0) > 0`)
	})
	b.sees("Download", "free (")
	b.clickOn("#pg-tab-speech")
	b.write("[data-field=speech_input]", "Good morning")
	b.clickOn("#pg-run")
	b.until("the audio is loaded", func() bool { return eval[bool](b, `(document.querySelector(".pg-answer audio")?.duration ?? 0) > 0`) })
	b.tap("View code")
	b.clickOn("#pg-language-python")
	b.sees("client.audio.speech")
}

// smallImage writes an image to attach.
func smallImage(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.png")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
