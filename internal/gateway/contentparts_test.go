package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/gateway/responses"
	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

const (
	window   = 1_000_000 // stands for the tokens of a part that may fill the context window
	rejected = -1        // stands for an error
)

// second is a WAV file of a second in base64, whatever its size.
func second(rate int) string {
	samples := make([]byte, rate)
	head := slices.Concat([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(36+len(samples))), []byte("WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"),
		binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(rate)), uint32(rate)), []byte("\x01\x00\x08\x00data"), binary.LittleEndian.AppendUint32(nil, uint32(len(samples))))
	return base64.StdEncoding.EncodeToString(append(head, samples...))
}

// The bound is never below what a provider can count (N1): a part that isn't known to be text, an
// image or measured audio may fill the context window. Data of images and audio doesn't count as text.
func TestEveryContentPartIsBounded(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("A", 200_000)
	small := "data:image/png;base64,AAAA"
	audio := second(8000)
	ofAudio := int64(maxAudioTokensPerSecond+1) - int64(len(audio))
	deep := strings.Repeat(`{"type":"tool_result","content":[`, 20) + `{"type":"text","text":"x"}` + strings.Repeat(`]}`, 20)
	chat := func(part string) string {
		return `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"},` + part + `]}]}`
	}
	message := func(m string) string { return `{"model":"m","messages":[` + m + `],"stop":[]}` }
	response := func(part string) string {
		return `{"model":"m","input":[{"role":"user","content":[` + part + `]}]}`
	}
	item := func(i string) string { return `{"model":"m","input":[` + i + `]}` }
	blocks := func(block string) string {
		return `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[` + block + `]}]}`
	}
	for _, tt := range []struct {
		dialect, name, body string
		extra               int64 // in addition to the bytes and the frame
		needs               string
	}{
		{"chat", "text", chat(`{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}`), 0, ""},
		{"chat", "refusal", chat(`{"type":"refusal","refusal":"no"}`), 0, ""},
		{"chat", "text like an image", chat(`{"type":"text","text":"` + small + `"}`), 0, ""},
		{"chat", "string like an image", message(`{"role":"user","content":"` + small + `"}`), 0, ""},
		{"chat", "image by URL", chat(`{"type":"image_url","image_url":{"url":"https://x/y.png"}}`), maxInputImageTokens, "vision"},
		{"chat", "two images", chat(`{"type":"image_url","image_url":{"url":"https://x"}},{"type":"image_url","image_url":"https://x"}`), 2 * maxInputImageTokens, "vision"},
		{"chat", "image as data", chat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`), maxInputImageTokens - 200_022, "vision"},
		{"chat", "image as escaped data", chat(`{"type":"image_url","image_url":{"url":"data:image\/png;base64,AAAA"}}`), maxInputImageTokens - int64(len(small)), "vision"},
		{"chat", "escaped name", chat(`{"type":"image_url","image\u005furl":{"url":"https://x/y.png"}}`), maxInputImageTokens, "vision"},
		{"chat", "PDF as an image", chat(`{"type":"image_url","image_url":{"url":"data:application/pdf;base64,AAAA"}}`), window, "vision"},
		{"chat", "image in a bucket", chat(`{"type":"image_url","image_url":{"url":"gs://x"}}`), window, "vision"},
		{"chat", "image of another kind", chat(`{"type":"image_embeds","image_embeds":"AAAA"}`), window, "vision"},
		{"chat", "audio", chat(`{"type":"input_audio","input_audio":{"data":"` + audio + `","format":"wav"}}`), ofAudio, "audio"},
		{"chat", "slow audio", chat(`{"type":"input_audio","input_audio":{"data":"` + second(10) + `","format":"wav"}}`), maxAudioTokensPerSecond + 1 - int64(len(second(10))), "audio"},
		{"chat", "audio that isn't", chat(`{"type":"input_audio","input_audio":{"data":"` + data + `","format":"wav"}}`), window, "audio"},
		{"chat", "audio by URL in data", chat(`{"type":"input_audio","input_audio":{"data":"https://x/y.wav","format":"wav"}}`), window, "audio"},
		{"chat", "audio as a string", chat(`{"type":"input_audio","input_audio":"https://x/y.wav"}`), window, "audio"},
		{"chat", "audio_url", chat(`{"type":"audio_url","audio_url":{"url":"https://x/y.wav"}}`), window, ""},
		{"chat", "video_url", chat(`{"type":"video_url","video_url":{"url":"https://x/y.mp4"}}`), window, ""},
		{"chat", "file by ID", chat(`{"type":"file","file":{"file_id":"file-1"}}`), window, ""},
		{"chat", "file as data", chat(`{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AAAA"}}`), window, ""},
		{"chat", "file that is no PDF", chat(`{"type":"file","file":{"file_data":"AAAA"}}`), window, ""},
		{"chat", "document_url", chat(`{"type":"document_url","document_url":"https://x"}`), window, ""},
		{"chat", "unknown type", chat(`{"type":"x","x":"y"}`), window, ""},
		{"chat", "no type", chat(`{"image_url":{"url":"https://x"}}`), window, "vision"},
		{"chat", "respelled type", chat(`{"type":"x","T\u0079pe":"text"}`), rejected, ""},
		{"chat", "media in text", chat(`{"type":"text","text":"a","image_url":{"url":"https://x"}}`), window, "vision"},
		{"chat", "tool message", message(`{"role":"tool","content":[{"type":"file","file":{"file_id":"f"}}]}`), window, ""},
		{"chat", "content that is an object", message(`{"role":"user","content":{"type":"file","file":{"file_id":"f"}}}`), window, ""},
		{"chat", "audio of an earlier response", message(`{"role":"assistant","audio":{"id":"audio_1"}}`), window, ""},
		{"chat", "images of an earlier response", message(`{"role":"assistant","content":"","images":[{"type":"image_url"}]}`), window, ""},
		{"chat", "tool calls", message(`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"reasoning_details":[]}`), 0, ""},
		{"chat", "nested", chat(deep), window, ""},
		{"chat", "tool like an image", `{"model":"m","tools":[{"function":{"name":"f","parameters":{"image_url":{"url":"` + small + `"}}}}],"messages":[]}`, toolTokens, ""},
		{"chat", "no tools", `{"model":"m","tools":[ ],"functions":null,"messages":[]}`, 0, ""},
		{"chat", "odd messages", `{"model":"m","messages":"image","stop":[],"models":[]}`, 0, ""},

		{"responses", "string", `{"model":"m","input":"a file"}`, 0, ""},
		{"responses", "input_text", response(`{"type":"input_text","text":"a file"}`), 0, ""},
		{"responses", "output_text", item(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]},{"type":"refusal","refusal":"x"}]}`), 0, ""},
		{"responses", "input_image", response(`{"type":"input_image","image_url":"https://x/y.png"}`), maxInputImageTokens, "vision"},
		{"responses", "input_image by ID", response(`{"type":"input_image","file_id":"file-1"}`), maxInputImageTokens, "vision"},
		{"responses", "input_file.file_url", response(`{"type":"input_file","file_url":"https://x/y.pdf"}`), window, ""},
		{"responses", "input_file.file_id", response(`{"type":"input_file","file_id":"file-1"}`), window, ""},
		{"responses", "input_file.file_data", response(`{"type":"input_file","filename":"a","file_data":"AAAA"}`), window, ""},
		{"responses", "input_audio", response(`{"type":"input_audio","input_audio":{"data":"` + audio + `","format":"wav"}}`), ofAudio, "audio"},
		{"responses", "input_video", response(`{"type":"input_video","video_url":"https://x"}`), window, ""},
		{"responses", "output with an image", item(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://x/y.png"}]}`), maxInputImageTokens, "vision"},
		{"responses", "output with a file", item(`{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"f"}]}`), window, ""},
		{"responses", "custom output with a file", item(`{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_file","file_id":"f"}]}`), window, ""},
		{"responses", "screenshot", item(`{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"https://x/y.png"}}`), maxInputImageTokens, "vision"},
		{"responses", "calls and reasoning", item(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"},{"type":"reasoning","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"AAAA"}`), 0, ""},
		{"responses", "reference", item(`{"type":"item_reference","id":"msg_1"}`), window, ""},
		{"responses", "generated image", item(`{"type":"image_generation_call","id":"ig_1","status":"completed"}`), window, "vision"},
		{"responses", "unknown item", item(`{"type":"x"}`), window, ""},

		{"messages", "text", blocks(`{"type":"text","text":"an image of a document"}`), 0, ""},
		{"messages", "image", blocks(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"abcd"}}`), maxInputImageTokens - 4, "vision"},
		{"messages", "image by URL", blocks(`{"type":"image","source":{"type":"url","url":"https://x"}}`), maxInputImageTokens, "vision"},
		{"messages", "image of an unknown source", blocks(`{"type":"image","source":{"type":"x"}}`), window, "vision"},
		{"messages", "image in a result", blocks(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://x"}},{"type":"text","text":"x"}]}`), maxInputImageTokens, "vision"},
		{"messages", "document that is no PDF", blocks(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"}}`), window, ""},
		{"messages", "PDF of two pages", blocks(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjQgL1R5cGUgL1BhZ2UgL1R5cGUvUGFnZXMgL1R5cGUvUGFnZQo="}}`), window, ""},
		{"messages", "document by URL", blocks(`{"type":"document","source":{"type":"url","url":"https://x"}}`), window, ""},
		{"messages", "document by ID", blocks(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`), window, ""},
		{"messages", "document without a source", blocks(`{"type":"document","title":"x"}`), window, ""},
		{"messages", "document of text", blocks(`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"}}`), 0, ""},
		{"messages", "document of blocks", blocks(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url"}}]}}`), maxInputImageTokens, "vision"},
		{"messages", "document of a string", blocks(`{"type":"document","source":{"type":"content","content":"x"}}`), 0, ""},
		{"messages", "document in a result", blocks(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"document","source":{"type":"url","url":"https://x"}}]}`), window, ""},
		{"messages", "search result", blocks(`{"type":"search_result","source":"https://x","title":"t","content":[{"type":"text","text":"x"}]}`), 0, ""},
		{"messages", "container_upload", blocks(`{"type":"container_upload","file_id":"file_1"}`), window, ""},
		{"messages", "web_fetch_tool_result", blocks(`{"type":"web_fetch_tool_result","tool_use_id":"t","content":{"type":"web_fetch_result","url":"https://x"}}`), window, ""},
		{"messages", "tool_reference", blocks(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"tool_reference","tool_name":"f"}]}`), window, ""},
		{"messages", "thinking and calls", blocks(`{"type":"thinking","thinking":"x","signature":"y"},{"type":"redacted_thinking","data":"AAAA"},{"type":"tool_use","id":"t","name":"f","input":{"type":"file"}}`), 0, ""},
		{"messages", "document in system", `{"model":"m","max_tokens":9,"system":[{"type":"document","source":{"type":"url"}}],"messages":[]}`, window, ""},
	} {
		t.Run(tt.dialect+"/"+tt.name, func(t *testing.T) {
			t.Parallel()
			var r *request
			var err error
			switch tt.dialect {
			case "chat":
				r, err = readChat([]byte(tt.body))
			case "messages":
				r, err = readMessages([]byte(tt.body))
			case "responses":
				var in *responses.Request
				if in, err = responses.Read([]byte(tt.body)); err == nil {
					r, err = readResponses(in)
				}
			}
			if tt.extra == rejected {
				if err == nil {
					t.Error("the body is accepted")
				}
				return
			}
			if err == nil {
				err = r.measureAudio(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			want := int64(len(tt.body)) + frameTokens + tt.extra
			if tt.extra == window {
				want = window
				if unknown := r.maxInputAt(target{offer: &catalog.Offer{}}); unknown < maxUnknownInput {
					t.Errorf("with an unknown window: got %d tokens", unknown)
				}
			}
			needs := ""
			if r.needs.vision {
				needs += "vision"
			}
			if r.needs.audio {
				needs += "audio"
			}
			at := target{offer: &catalog.Offer{Model: catalog.Model{ContextWindow: window}}}
			if got := r.maxInputAt(at); got != want || needs != tt.needs {
				t.Errorf("got %d tokens, want %d; needs %q, want %q", got, want, needs, tt.needs)
			}
		})
	}
}

// Audio that no one has measured may fill the window, so no path can forget to measure it.
func TestUnmeasuredAudioFillsTheWindow(t *testing.T) {
	t.Parallel()
	r, err := readChat([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"` + second(8000) + `","format":"wav"}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.maxInputAt(target{offer: &catalog.Offer{Model: catalog.Model{ContextWindow: window}}}); got != window {
		t.Errorf("got %d, want %d", got, window)
	}
}

// N1: a provider reports 120,000 tokens for a file that the request only names.
func TestFilesInPromptsCostTheClient(t *testing.T) {
	t.Parallel()
	supplier := catalog.Supplier{Models: []catalog.ListedModel{{ID: "small", Price: dollars(1, 2), ContextWindow: 128_000, MaxOutputTokens: 100}}}
	r := newFixture(t, []providers.Provider{newFake("one", respond(120_000, 5))}, supplier)
	body := `{"model":"small","max_tokens":16,"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]}`
	if out := r.chat(body); out.err != nil || out.Unbilled != 0 || out.Charged != 120_000*1000+5*2000 || out.Reserved != 128_000*1000+16*2000 {
		t.Errorf("got %+v", out.entry)
	}
	*r.budget = 240_000_000 // half of it is charged
	if out := r.chat(body); out.code != string(fault.InsufficientCredits) {
		t.Errorf("with too little left: got %+v", out)
	}
}

func FuzzContentWalk(f *testing.F) {
	for _, seed := range []string{`{"type":"text"}`, `[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]`, `[[[[`, `{"source":`, `[1,2,"x\"",null]`, `{"type":"input_audio","input_audio":{"data":"\u0041"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r := &request{}
		r.addParts(jsonbody.NewIndex(content).Root())
		if r.maxInput < -int64(len(content)) {
			t.Errorf("%q counts %d tokens", content, r.maxInput)
		}
	})
}

func BenchmarkContentWalk(b *testing.B) {
	body := fmt.Appendf(nil, `{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"system","content":"%s"},{"role":"user","content":[{"type":"text","text":"%s"}]}]}`, strings.Repeat("a", 500), strings.Repeat("b", 500))
	b.ReportAllocs()
	for b.Loop() {
		r := &request{body: body}
		r.addContent("messages")
	}
}
