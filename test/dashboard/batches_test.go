package dashboard_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/batches"
	"turnpike/test/harness"
)

// upload uploads the input of a batch.
func (m *jobClient) upload(t *testing.T, lines ...string) (id string) {
	t.Helper()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	_ = parts.WriteField("purpose", "batch")
	file, err := parts.CreateFormFile("file", "requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte(strings.Join(lines, "\n")))
	_ = parts.Close()
	return m.s.Do(t, harness.Request{Method: "POST", Path: "/v1/files", Key: m.key, Body: form.String(), Header: http.Header{"Content-Type": {parts.FormDataContentType()}}}).Want(t, 200, "").Text("id")
}

func (m *jobClient) createBatch(t *testing.T, lines ...string) (id string) {
	t.Helper()
	return m.create(t, "/v1/batches", map[string]any{"input_file_id": m.upload(t, lines...), "endpoint": "/v1/chat/completions", "completion_window": "24h",
		"metadata": map[string]string{"for" + script: "shop" + script}}).Text("id")
}

func TestBatchPagesShowProgressErrorsAndFiles(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		list := m.in(accounts.Test, "jobs/batches")
		m.get(t, list).shows(t, "No test batches yet", "POST /v1/batches", "Message batches")
		const good = `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hi."}]}}`
		bad := strings.NewReplacer(`"a"`, `"b"`, "gpt-4o-mini", "nothing").Replace(good)
		id := m.createBatch(t, good, bad)
		m.waitFor(t, "/v1/batches/"+id, "completed")
		m.get(t, list).shows(t, id, "completed", "1 completed, 1 failed, of 2")
		m.get(t, list+query("status:expired")).shows(t, "No batches match this search").hides(t, id)
		m.get(t, m.in(accounts.Live, "jobs/batches")).hides(t, id)
		page := m.get(t, list+"/"+id).shows(t, "completed", "1 completed, 1 failed, of 2", "/v1/chat/completions", "Input", "Output", "Errors").harmless(t).small(t)
		for label, want := range map[string]string{"Input": good + "\n" + bad, "Output": `"custom_id":"a"`, "Errors": `"custom_id":"b"`} {
			before, _, _ := strings.Cut(page.body, `">`+label+`</a>`)
			file := m.get(t, before[strings.LastIndex(before, `href="`)+len(`href="`):]).is(t, 200)
			if !strings.Contains(file.body, want) || !strings.HasPrefix(file.header.Get("Content-Disposition"), "attachment") {
				t.Errorf("the file %s is %q with %v, want %s", label, file.body, file.header, want)
			}
		}

		broken := m.createBatch(t, good, "nothing"+script)
		m.waitFor(t, "/v1/batches/"+broken, "failed")
		m.get(t, list+"/"+broken+"/output").is(t, 404)
		m.get(t, list+"/"+broken).shows(t, "failed", "Errors in the input", "invalid_json", "Line 2").harmless(t)

		messages := m.in(accounts.Test, "jobs/message-batches")
		other := m.create(t, "/v1/messages/batches", map[string]any{"requests": []any{map[string]any{"custom_id": "a", "params": map[string]any{
			"model": "gpt-4o-mini", "max_tokens": 5, "messages": []any{map[string]any{"role": "user", "content": "Hi."}}}}}}).Text("id")
		s.Eventually(t, func() bool { return strings.Contains(m.get(t, messages+"/"+other).body, ">Results</a>") })
		m.get(t, messages).shows(t, other).hides(t, id)
		m.post(t, messages+"/"+other+"/delete", url.Values{}).redirectsTo(t, messages)
		m.get(t, messages+"/"+other).is(t, 404)
		if logged := m.loggedActions(t, other); !slices.Equal(logged, []string{"batch.deleted " + m.person.ID}) {
			t.Errorf("the admin log has %q", logged)
		}
	})
}

func TestBatchIsCanceledInTheDashboard(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		m := newJobClient(t, s)
		m.holdLanes(t, batches.Queue, "")
		id := m.createBatch(t, "{}")
		path := m.in(accounts.Test, "jobs/batches/"+id)
		m.get(t, path).shows(t, "validating", ">Cancel</button>").hides(t, ">Delete</button>")
		if a := m.post(t, path+"/delete", url.Values{}).is(t, 409); !strings.Contains(a.body, "has not ended") {
			t.Errorf("deleting a batch in progress shows:\n%s", a.main())
		}
		m.post(t, path+"/cancel", url.Values{}).redirectsTo(t, path)
		m.get(t, path).shows(t, "cancelling", "Canceling the batch").hides(t, ">Cancel</button>")
		if logged := m.loggedActions(t, id); !slices.Equal(logged, []string{"batch.cancelled " + m.person.ID}) {
			t.Errorf("the admin log has %q", logged)
		}
		viewer := member(t, s, m.workspace, accounts.Viewer)
		viewer.get(t, path).shows(t, id).hides(t, ">Cancel</button>")
		viewer.post(t, path+"/cancel", url.Values{}).is(t, 403)
	})
}
