package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/events"
	"turnpike/test/harness"
)

// large is about the maximum size of an event. A page of rows with such a text
// has five: the fifth exceeds its budget.
var large = strings.Repeat("x", 900<<10)

// largest is the maximum size of a page. For runs, required actions count
// separately.
const largest = 10 << 20

// pages reads a list to its end, and returns the field of its rows by page. It
// skips the OpenAPI check, which takes long for so much text.
func (c *client) pages(t *testing.T, list, cursor, field string) (out [][]string) {
	t.Helper()
	for path := list; len(out) < 50; {
		body := c.raw(t, path)
		if len(body) > largest {
			t.Errorf("%s is %d bytes", path, len(body))
		}
		var in struct {
			Data    []map[string]json.RawMessage
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatal(err)
		}
		var page []string
		for _, row := range in.Data {
			page = append(page, strings.Trim(string(row[field]), `"`))
		}
		out = append(out, page)
		if !in.HasMore {
			break
		}
		path = list + "&" + cursor + "=" + in.LastID
	}
	return out
}

// raw returns the body of a response.
func (c *client) raw(t *testing.T, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%s answers %d (%v)", path, res.StatusCode, err)
	}
	return body
}

// wantPages checks the sizes of pages and the order of their rows.
func wantPages(t *testing.T, what string, got [][]string, sizes []int, rows []string) {
	t.Helper()
	var lengths []int
	for _, page := range got {
		lengths = append(lengths, len(page))
	}
	if all := slices.Concat(got...); !slices.Equal(lengths, sizes) || !slices.Equal(all, rows) {
		t.Errorf("%s: pages of %v rows, want %v, with %v, want %v", what, lengths, sizes, all, rows)
	}
}

func TestPageOfLargeEventsIsLimitedInBytes(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		c := newClient(t, s, accounts.Live)
		var ids []string
		for range 7 {
			run := events.Sample(events.AgentRunCompleted, s.Clock.Now()).(events.AgentRun)
			run.Result.OutputText = large
			ids = append(ids, c.publish(t, run)[0].ID)
		}
		runs := slices.Clone(ids)
		for range 3 {
			ids = append(ids, c.publish(t, creditsLow)[0].ID)
		}
		wantPages(t, "asc", c.pages(t, "/v1/events?limit=100&order=asc", "after", "id"), []int{5, 5}, ids)
		wantPages(t, "by four", c.pages(t, "/v1/events?limit=4&order=asc&type=agent.run.completed", "after", "id"), []int{4, 3}, runs)
		slices.Reverse(ids)
		slices.Reverse(runs)
		wantPages(t, "desc", c.pages(t, "/v1/events?limit=100", "after", "id"), []int{8, 2}, ids)
		wantPages(t, "desc of one type", c.pages(t, "/v1/events?limit=100&type=agent.run.completed", "after", "id"), []int{5, 2}, runs)
	})
}

func TestPagesOfLargeRunsAreLimitedInBytes(t *testing.T) {
	eachAgents(t, sqlite, nil, func(t *testing.T, l *agentClient) {
		shop := newTool(t, l, "3")
		var ended, waiting []string
		for range 7 {
			ended = append(ended, idOf(l.startRun(t, runBody(l.model.addScript("plain", reply{text: "x"}), nil))))
			l.waitForEnd(t, runs+"/"+ended[len(ended)-1], "completed")
		}
		for range 7 {
			waiting = append(waiting, idOf(l.startRun(t, runBody(l.model.addScript("held", calls(toolCall{"mine", ok})), []any{function("mine")}))))
			l.waitForAction(t, runs+"/"+waiting[len(waiting)-1], "requires_action")
		}
		l.exec(t, "UPDATE agent_runs SET result = $1 WHERE status = 'completed'", `{"output_text":"`+large+`"}`)
		l.exec(t, "UPDATE agent_calls SET arguments = $1", large)
		wantPages(t, "those that ended", l.pages(t, runs+"?limit=100&order=asc&status=completed", "after", "id"), []int{5, 2}, ended)
		wantPages(t, "those that wait", l.pages(t, runs+"?limit=100&order=asc&status=requires_action", "after", "id"), []int{5, 2}, waiting)
		all := append(ended, waiting...)
		slices.Reverse(all)
		wantPages(t, "all", l.pages(t, runs+"?limit=100", "after", "id"), []int{5, 7, 2}, all)

		path := l.startRun(t, runBody(l.model.addScript("long", append(again(6), reply{text: "x"})...), []any{webTool("stock", shop.URL)}))
		l.waitForEnd(t, path, "completed")
		log := len(l.history(t, path))
		l.exec(t, "UPDATE agent_calls SET output = $1 WHERE run_id = $2", large, idOf(path))
		l.exec(t, "UPDATE agent_steps SET text = $1 WHERE run_id = $2", large, idOf(path))
		wantPages(t, "large steps of large calls", l.pages(t, path+"/steps?limit=100", "after", "number"), []int{3, 3, 1}, numbersTo(7))
		l.exec(t, "UPDATE agent_calls SET output = '' WHERE run_id = $1", idOf(path))
		wantPages(t, "large steps", l.pages(t, path+"/steps?limit=100", "after", "number"), []int{5, 2}, numbersTo(7))

		l.exec(t, "UPDATE agent_events SET type = 'tool_call.completed', data = $1 WHERE run_id = $2 AND seq <= 7",
			`{"call_id":"call_1_0","tool":"stock","is_error":false,"output":"`+large+`"}`, idOf(path))
		wantPages(t, "a log", l.pages(t, path+"/events?limit=100", "starting_after", "seq"), []int{5, log - 5}, numbersTo(log))
		watched := l.openStream(t, path+"/events?stream=true", nil)
		watched.Buffer(nil, 1<<20)
		if n := len(watched.rest(t, 1)); n != log {
			t.Errorf("who watches sees %d of %d lines", n, log)
		}
	})
}

func TestPageOfLargeJobsIsLimitedInBytes(t *testing.T) {
	eachMedia(t, sqlite, nil, func(t *testing.T, s *mediaClient) {
		var made []string
		for range 7 {
			made = append(made, s.post(t, videos, videoBody("a cat")).Text("id"))
		}
		s.exec(t, "UPDATE media_jobs SET input = replace(input, 'a cat', $1)", large)
		wantPages(t, "videos", s.pages(t, videos+"?limit=100&order=asc", "after", "id"), []int{5, 2}, made)
	})
}

// numbersTo returns the numbers from one to n.
func numbersTo(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i+1))
	}
	return out
}
