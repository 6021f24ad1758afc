package contract

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// recorder records failures instead of failing the test.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

const (
	requestID = "req_01h455vb4pex5vsknk084sn02q"

	project = `{"id":"p","object":"project","name":"p","environment":"test","monthly_budget":null,"spent_this_month":0.000001,` +
		`"limits":[],"temporary_raise":null,"alert_thresholds":null,"forecast":null,"allowed_models":null,"allowed_providers":null,"content_log_days":null,"content_log_opt_out":false,"status":"active","created_at":1786200000,"archived_at":null}`
	scopedToken = `{"id":"st_01h455vb4pex5vsknk084sn02q","object":"scoped_token","scopes":["images:*"],"expires_in":9,"expires_at":9,` +
		`"metadata":{},"project":null,"user":null,"allowed_models":null,"allowed_providers":null,"environment":"test","created_at":0,"revoked":true}`
	issuedToken = `{"access_token":"t","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":9,"scope":"models:read"}`
	chunk       = `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}`
)

const (
	content = "/v1/videos/video_01h455vb4pex5vsknk084sn02q/content"
	tag     = `"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`
)

// file returns the headers of a video with the given changes.
func file(changed map[string]string) map[string]string {
	h := map[string]string{"Content-Type": "video/mp4", "Content-Disposition": "inline", "ETag": tag, "Accept-Ranges": "bytes"}
	maps.Copy(h, changed)
	return h
}

func problem(code, kind string) string {
	return `{"error":{"code":"` + code + `","type":"` + kind + `","message":"m","param":null,"request_id":"` + requestID + `","doc_url":"http://127.0.0.1/docs/reference/errors#` + code + `"}}`
}

// Each case is a response that is valid or has exactly one error.
func TestAnswersAreHeldAgainstTheDocument(t *testing.T) {
	t.Parallel()
	v := New(t)
	for name, c := range map[string]struct {
		method, path string // GET by default
		request      string
		status       int               // 200 by default
		header       map[string]string // "-" removes one
		body         string
		want         string // part of the failure; empty: none
	}{
		"a project":              {path: "/v1/projects/p", body: project},
		"unknown field":          {path: "/v1/projects/p", body: strings.Replace(project, `{`, `{"workspace_id":"ws",`, 1), want: "workspace_id"},
		"wrong type":             {path: "/v1/projects/p", body: strings.Replace(project, `1786200000`, `"1786200000"`, 1), want: "/created_at"},
		"missing field":          {path: "/v1/projects/p", body: strings.Replace(project, `"archived_at":null`, `"x":1`, 1), want: "archived_at"},
		"null where none can be": {path: "/v1/projects/p", body: strings.Replace(project, `"name":"p"`, `"name":null`, 1), want: "/name"},
		"value out of the enum":  {path: "/v1/projects/p", body: strings.Replace(project, `"active"`, `"gone"`, 1), want: "/status"},
		"seven decimal places":   {path: "/v1/projects/p", body: strings.Replace(project, `0.000001`, `0.0000001`, 1), want: "/spent_this_month"},
		"not JSON":               {path: "/v1/projects/p", body: project + "x", want: "not JSON"},
		"undocumented status":    {path: "/v1/projects/p", status: 418, body: project, want: "status is not documented"},
		"created with 201":       {method: "POST", path: "/v1/projects", status: 201, body: project, want: "status is not documented"},
		"wrong content type":     {path: "/v1/projects/p", header: map[string]string{"Content-Type": "text/html"}, body: project, want: "text/html"},
		"no content type":        {path: "/v1/projects/p", header: map[string]string{"Content-Type": "-"}, body: project, want: "content type"},
		"no request id":          {path: "/v1/projects/p", header: map[string]string{"X-Request-Id": "-"}, body: project, want: "X-Request-Id is missing"},
		"odd request id":         {path: "/v1/projects/p", header: map[string]string{"X-Request-Id": "7"}, body: project, want: "X-Request-Id"},
		"undocumented header":    {path: "/v1/projects/p", header: map[string]string{"X-Debug": "1"}, body: project, want: "X-Debug is not documented"},
		"header of a browser":    {path: "/v1/projects/p", header: map[string]string{"Access-Control-Allow-Origin": "*"}, body: project},
		"HEAD has no body":       {method: "HEAD", path: "/v1/projects/p"},
		"replay of a creation":   {method: "POST", path: "/v1/projects", header: map[string]string{"Idempotent-Replayed": "true"}, body: project},
		"replay of a reading":    {path: "/v1/projects/p", header: map[string]string{"Idempotent-Replayed": "true"}, body: project, want: "Idempotent-Replayed"},
		"list with a wrong entry": {path: "/v1/projects", want: "/data/0",
			body: `{"object":"list","data":[{}],"first_id":null,"last_id":null,"has_more":false}`},

		"revoked token":         {method: "DELETE", path: "/v1/scoped_tokens/st_1", body: scopedToken},
		"a secret that leaks":   {method: "DELETE", path: "/v1/scoped_tokens/st_1", body: strings.Replace(scopedToken, `{`, `{"value":"tp_scoped_x",`, 1), want: "value"},
		"minted without secret": {method: "POST", path: "/v1/scoped_tokens", body: scopedToken, want: "value"},
		"documented request":    {method: "POST", path: "/v1/projects", request: `{"id":"p"}`, body: project},
		"undocumented request":  {method: "POST", path: "/v1/projects", request: `{"id":"p","color":"red"}`, body: project, want: "color"},
		"provider's request": {method: "POST", path: "/v1/chat/completions", request: `{"model":"m","messages":[],"seed":"x"}`,
			header: map[string]string{"Service-Model": "m", "Service-Provider": "p", "Service-Credits": "0.000001"},
			body:   `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"more":1}`},
		"refused request":       {method: "POST", path: "/v1/projects", request: `{"color":"red"}`, status: 400, body: problem("unknown_parameter", "invalid_request_error")},
		"documented fields":     {method: "POST", path: "/oauth/token", request: "grant_type=g&client_id=c&subject_token=t&subject_token_type=y", body: issuedToken},
		"missing form field":    {method: "POST", path: "/oauth/token", request: "grant_type=g&client_id=c&subject_token=t", body: issuedToken, want: "subject_token_type"},
		"error of OAuth":        {method: "POST", path: "/oauth/token", request: "a=b", status: 400, body: `{"error":"invalid_request","error_description":"d","request_id":"` + requestID + `"}`},
		"another request's":     {method: "POST", path: "/oauth/token", request: "a=b", status: 400, body: `{"error":"invalid_request","error_description":"d","request_id":"req_1"}`, want: "request id"},
		"body on a DELETE":      {method: "DELETE", path: "/v1/projects/p", request: `{"force":true}`, body: project, want: "not documented"},
		"model id with slashes": {path: "/v1/models/a/b/c", status: 404, body: problem("model_not_found", "not_found_error")},

		"an error":                    {path: "/v1/keys/k", status: 404, body: problem("not_found", "not_found_error")},
		"code of another status":      {path: "/v1/keys/k", status: 404, body: problem("invalid_state", "conflict_error"), want: "/error/code"},
		"type of another code":        {path: "/v1/keys/k", status: 404, body: problem("not_found", "api_error"), want: "/error/type"},
		"unknown code":                {path: "/v1/keys/k", status: 404, body: problem("gone", "not_found_error"), want: "/error/code"},
		"another request's id":        {path: "/v1/keys/k", status: 404, header: map[string]string{"X-Request-Id": "req_01h455vb4pex5vsknk084sn000"}, body: problem("not_found", "not_found_error"), want: "request id"},
		"401 without a challenge":     {path: "/v1/keys", status: 401, body: problem("authentication_error", "authentication_error"), want: "Www-Authenticate is missing"},
		"401":                         {path: "/v1/keys", status: 401, header: map[string]string{"WWW-Authenticate": "Bearer"}, body: problem("authentication_error", "authentication_error")},
		"429":                         {path: "/v1/keys", status: 429, header: map[string]string{"Retry-After": "2", "Retry-After-Ms": "1500"}, body: problem("rate_limit_exceeded", "rate_limit_error")},
		"429 with a date":             {path: "/v1/keys", status: 429, header: map[string]string{"Retry-After": "soon", "Retry-After-Ms": "1500"}, body: problem("rate_limit_exceeded", "rate_limit_error"), want: "Retry-After"},
		"final without saying so":     {path: "/v1/keys", status: 409, body: problem("limit_reached", "conflict_error"), want: "x-should-retry"},
		"final":                       {path: "/v1/keys", status: 409, header: map[string]string{"X-Should-Retry": "false"}, body: problem("limit_reached", "conflict_error")},
		"not final but says so":       {path: "/v1/keys", status: 409, header: map[string]string{"X-Should-Retry": "false"}, body: problem("conflict", "conflict_error"), want: "x-should-retry"},
		"no such path":                {path: "/v1/nothing", status: 404, body: problem("not_found", "not_found_error")},
		"no such path, in plain text": {path: "/v1/nothing", status: 404, header: map[string]string{"Content-Type": "text/plain"}, body: "404", want: "text/plain"},
		"an answer from nowhere":      {path: "/v1/nothing", body: project, want: "status is not documented"},
		"no such method":              {method: "PUT", path: "/v1/keys", status: 405, header: map[string]string{"Allow": "GET, HEAD, POST"}, body: problem("method_not_allowed", "invalid_request_error")},
		"no such method, no Allow":    {method: "PUT", path: "/v1/keys", status: 405, body: problem("method_not_allowed", "invalid_request_error"), want: "Allow is missing"},

		"a file":                    {path: content, header: file(nil), body: "…"},
		"a thumbnail":               {path: content, header: file(map[string]string{"Content-Type": "image/webp"}), body: "…"},
		"a file of another kind":    {path: content, header: file(map[string]string{"Content-Type": "text/html"}), body: "…", want: "text/html"},
		"a file without a tag":      {path: content, header: file(map[string]string{"ETag": "-"}), body: "…", want: "Etag is missing"},
		"a part of a file":          {path: content, status: 206, header: file(map[string]string{"Content-Range": "bytes 0-2/9"}), body: "…"},
		"a file that is unchanged":  {path: content, status: 304, header: map[string]string{"Content-Type": "-", "Content-Disposition": "inline", "ETag": tag}},
		"unchanged, and yet a body": {path: content, status: 304, header: map[string]string{"Content-Type": "-", "Content-Disposition": "inline", "ETag": tag}, body: "…", want: "there is a body"},
		"unchanged without a tag":   {path: content, status: 304, header: map[string]string{"Content-Type": "-", "Content-Disposition": "inline"}, want: "Etag is missing"},
		"a part of an object":       {path: "/v1/projects/p", status: 206, body: project, want: "status is not documented"},
		"a refused link":            {path: "/files/ws/live/" + strings.Trim(tag, `"`) + "/a.png", status: 403, body: problem("invalid_signature", "permission_error")},
		"a picture behind a link":   {path: "/files/ws/live/" + strings.Trim(tag, `"`) + "/a.png", header: file(map[string]string{"Content-Type": "image/png"}), body: "…"},

		"alive":                   {path: "/healthz", body: `{"status":"ok"}`},
		"half alive":              {path: "/healthz", body: `{"status":"so-so"}`, want: "/status"},
		"somebody else's path":    {path: "/dashboard", status: 418, body: "teapot"},
		"streamed where it isn't": {path: "/v1/keys", header: map[string]string{"Content-Type": "text/event-stream"}, body: "data: [DONE]\n\n", want: "text/event-stream"},
		"CSV with other columns":  {path: "/v1/audit", header: map[string]string{"Content-Type": "text/csv"}, body: "a,b\n", want: "columns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			method, status := c.method, c.status
			if method == "" {
				method = http.MethodGet
			}
			if status == 0 {
				status = http.StatusOK
			}
			req, err := http.NewRequestWithContext(t.Context(), method, "http://turnpike.invalid"+c.path, strings.NewReader(c.request))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(c.request, "=") {
				req.Header.Set("Content-Type", urlencodedType)
			}
			res := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {requestID}}}
			if status/100 == 4 && status != http.StatusConflict && status != http.StatusTooManyRequests && !strings.HasPrefix(c.path, "/oauth/") {
				res.Header.Set("X-Should-Retry", "false")
			}
			for name, value := range c.header {
				if res.Header.Set(name, value); value == "-" {
					res.Header.Del(name)
				}
			}
			res.Request = req
			expect(t, v, res, c.body, c.want)
		})
	}
}

func expect(t *testing.T, v *Validator, res *http.Response, body, want string) {
	t.Helper()
	r := &recorder{TB: t}
	v.Check(r, res.Request, res, []byte(body))
	got := strings.Join(r.failures, "\n")
	switch {
	case want == "" && got != "":
		t.Errorf("a right answer was refused: %s", got)
	case want != "" && !strings.Contains(got, want):
		t.Errorf("a wrong answer gave %q, want something about %s", got, want)
	}
}

func TestFormsAreHeldAgainstTheDocument(t *testing.T) {
	t.Parallel()
	v := New(t)
	const video = `{"id":"video_01h455vb4pex5vsknk084sn02q","object":"video","status":"queued","model":"m","progress":0,"prompt":"p","seconds":"4","size":"720x1280",` +
		`"remixed_from_video_id":null,"url":null,"url_expires_at":null,"failure_reason":null,"error":null,"cost":0,"metadata":{},"created_at":1,"completed_at":null,"expires_at":null}`
	for name, c := range map[string]struct {
		path   string
		fields []string
		body   string
		want   string
	}{
		"a video":                 {"/v1/videos", []string{"prompt", "seconds", "input_reference"}, video, ""},
		"an unknown field":        {"/v1/files", []string{"purpose", "file", "colour"}, "{}", "colour"},
		"a field is missing":      {"/v1/videos", []string{"seconds"}, video, "prompt"},
		"a form for the provider": {"/v1/images/edits", []string{"prompt", "image[]", "image[]", "quality"}, `{"created":1,"data":[]}`, ""},
		"no form is taken":        {"/v1/projects", []string{"id"}, project, "the document has none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var form bytes.Buffer
			w := multipart.NewWriter(&form)
			for _, field := range c.fields {
				if err := w.WriteField(field, "x"); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://turnpike.invalid"+c.path, bytes.NewReader(form.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", w.FormDataContentType())
			res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {requestID}}}
			if c.path == "/v1/images/edits" {
				res.Header.Set("Service-Model", "m")
				res.Header.Set("Service-Provider", "p")
			}
			res.Request = req
			expect(t, v, res, c.body, c.want)
		})
	}
}

func TestStreamsAreHeldAgainstTheDocument(t *testing.T) {
	t.Parallel()
	v := New(t)
	for name, c := range map[string]struct{ body, want string }{
		"whole":                {"data: " + chunk + "\n\ndata: [DONE]\n\n", ""},
		"ends with an error":   {"data: " + chunk + "\n\ndata: " + problem("upstream_error", "upstream_error") + "\n\n", ""},
		"goes on after that":   {"data: " + problem("upstream_error", "upstream_error") + "\n\ndata: [DONE]\n\n", "after the last"},
		"wrong type":           {"data: " + strings.Replace(chunk, `"created":1`, `"created":"1"`, 1) + "\n\ndata: [DONE]\n\n", "/created"},
		"another object":       {"data: " + strings.Replace(chunk, ".chunk", "", 1) + "\n\ndata: [DONE]\n\n", "/object"},
		"not JSON":             {"data: {\n\ndata: [DONE]\n\n", "event 0"},
		"not a data line":      {"event: x\ndata: " + chunk + "\n\ndata: [DONE]\n\n", "data line"},
		"ends too early":       {"data: " + chunk + "\n\n", "without [DONE]"},
		"ends within an event": {"data: " + chunk + "\n\ndata: [DO", "whole event"},
		"empty":                {"", "whole event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"},
				"X-Request-Id": {requestID}, "Service-Model": {"m"}, "Service-Provider": {"simulator"}, "Cache-Control": {"no-cache"}}}
			res.Request = httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", nil)
			expect(t, v, res, c.body, c.want)
		})
	}
}

func TestNumberedStreamsAreHeldAgainstTheDocument(t *testing.T) {
	t.Parallel()
	v := New(t)
	event := func(id, seq, name, data string) string {
		return fmt.Sprintf("id: %s\nevent: %s\ndata: {\"object\":\"agent.run.event\",\"seq\":%s,\"run_id\":\"run_01h455vb4pex5vsknk084sn02q\",\"type\":\"run.queued\",\"data\":%s,\"created_at\":1}\n\n", id, name, seq, data)
	}
	const queued, done, failed = `{"status":"queued"}`, "data: [DONE]\n\n", "event: error\ndata: "
	fault := problem("storage_unavailable", "unavailable_error") + "\n\n"
	good := event("7", "7", "run.queued", queued)
	for name, c := range map[string]struct{ body, want string }{
		"whole":                   {good + event("8", "8", "run.queued", queued) + done, ""},
		"with a comment":          {good + ": still there\n\n" + done, ""},
		"ends with an error":      {good + failed + fault, ""},
		"an error without a name": {good + "data: " + fault, "an error with the name"},
		"goes on after that":      {good + done + good, "after the last"},
		"a number is left out":    {good + event("9", "9", "run.queued", queued) + done, "after 7"},
		"another id":              {event("7", "8", "run.queued", queued) + done, `the id "7"`},
		"no id":                   {strings.TrimPrefix(good, "id: 7\n") + done, `the id ""`},
		"another name":            {event("7", "7", "run.failed", queued) + done, `the name "run.failed"`},
		"data of another type":    {event("7", "7", "run.queued", `{"step":1}`) + done, "event 0"},
		"no such state":           {event("7", "7", "run.queued", `{"status":"lost"}`) + done, "event 0"},
		"ends too early":          {good, "without [DONE]"},
		"an end with a name":      {good + "event: x\n" + done, "event 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}, "X-Request-Id": {requestID}}}
			res.Request = httptest.NewRequestWithContext(t.Context(), "GET", "/v1/agents/runs/run_1/events?stream=true", nil)
			expect(t, v, res, c.body, c.want)
		})
	}
}

func TestTransportHandsOnWhatItChecks(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", requestID)
		if r.URL.Path != "/v1/chat/completions" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Replace(project, `{`, `{"x":1,`, 1))
			return
		}
		w.Header().Set("Service-Model", "m")
		w.Header().Set("Service-Provider", "simulator")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+chunk+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-read // the rest is sent after the client has read the first event
		_, _ = io.WriteString(w, "data: {}\n\ndata: [DONE]\n\n")
	}))
	defer s.Close()
	r := &recorder{TB: t}
	client := &http.Client{Transport: New(t).Transport(r, nil)}

	res, err := client.Get(s.URL + "/v1/projects/p")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Contains(body, []byte(`"x":1`)) {
		t.Errorf("the body that was handed on is %q, %v", body, err)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "'x'") {
		t.Errorf("failures are %q, want one about x", r.failures)
	}

	r.failures = nil
	res, err = client.Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"a"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("data: "+chunk))
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "data: "+chunk {
		t.Errorf("the first event is %q, %v", first, err)
	}
	if len(r.failures) != 0 {
		t.Errorf("failures before the end: %q", r.failures)
	}
	close(read)
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(rest) != "\n\ndata: {}\n\ndata: [DONE]\n\n" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "event 1") {
		t.Errorf("failures are %q, want one about event 1", r.failures)
	}
}

func TestStreamThatIsLeftEarlyIsCheckedSoFar(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ seen, want string }{
		"within an event": {"data: " + chunk + "\n\ndata: {\"id", ""},
		"wrong before":    {"data: {}\n\ndata: {\"id", "event 0"},
		"nothing yet":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions", nil)
			res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"},
				"X-Request-Id": {requestID}, "Service-Model": {"m"}, "Service-Provider": {"simulator"}}}
			r := &recorder{TB: t}
			s := &stream{ReadCloser: io.NopCloser(strings.NewReader(c.seen)), end: func(seen []byte, whole bool) { New(t).report(r, req, res, seen, whole) }}
			if _, err := s.Read(make([]byte, 4096)); err != nil && err != io.EOF {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.failures, "\n"); c.seen != "" && (c.want == "" && got != "" || !strings.Contains(got, c.want)) {
				t.Errorf("failures are %q, want %q", got, c.want)
			}
		})
	}
}
