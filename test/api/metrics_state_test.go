package api_test

import (
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/credits"
	"turnpike/test/harness"
)

// eventuallySeries waits until the series have these values.
func eventuallySeries(t *testing.T, s *harness.Server, want map[string]float64) {
	t.Helper()
	var got map[string]float64
	defer func() { wantSeries(t, got, want) }()
	s.Eventually(t, func() bool {
		got = scrape(t, s)
		for name, value := range want {
			if have, ok := got[name]; !ok || have != value {
				return false
			}
		}
		return true
	})
}

func TestJobMetricsFollowAJob(t *testing.T) {
	eachMedia(t, both, watched, func(t *testing.T, s *mediaClient) {
		unfinished := func(n float64) map[string]float64 {
			return map[string]float64{
				`turnpike_jobs_unfinished{kind="video",status="in_progress"}`:   n,
				`turnpike_jobs_finished_total{kind="video",status="completed"}`: 0,
			}
		}
		eventuallySeries(t, s.Server, unfinished(0))
		job := s.post(t, videos, videoBody("a sea"))
		eventuallySeries(t, s.Server, unfinished(1))
		path := videos + "/" + job.Text("id")
		s.Do(t, harness.Request{Method: "POST", Path: path + "/cancel", Key: s.key}).Want(t, 200, "")
		eventuallySeries(t, s.Server, map[string]float64{
			`turnpike_jobs_unfinished{kind="video",status="in_progress"}`: 0,
			`turnpike_jobs_finished_total{kind="video",status="failed"}`:  1,
		})
		got := scrape(t, s.Server)
		if got[`turnpike_lanes_started_total{queue="media"}`] < 1 || got[`turnpike_lanes_slots{queue="media"}`] < 1 {
			t.Errorf("got started %v, slots %v", got[`turnpike_lanes_started_total{queue="media"}`], got[`turnpike_lanes_slots{queue="media"}`])
		}
		if got[`turnpike_commit_items_total{group="jobs"}`] < 1 || got[`turnpike_commit_seconds_count{group="jobs"}`] < 1 {
			t.Error("no group commit of jobs")
		}
	})
}

func TestRunMetricsFollowARun(t *testing.T) {
	eachAgents(t, both, watched, func(t *testing.T, l *agentClient) {
		path := l.startRun(t, runBody(l.model.addScript("done", reply{text: "x"}), nil))
		l.waitForEnd(t, path, "completed")
		eventuallySeries(t, l.Server, map[string]float64{
			`turnpike_runs_finished_total{status="completed"}`: 1,
			`turnpike_runs_finished_total{status="failed"}`:    0,
			`turnpike_runs_unfinished{status="queued"}`:        0,
			`turnpike_runs_unfinished{status="in_progress"}`:   0,
			"turnpike_runs_oldest_due_seconds":                 0,
		})
	})
}

func TestBackgroundMetricsFollowAResponse(t *testing.T) {
	eachGateway(t, both, watched, func(t *testing.T, m *gatewayClient) {
		_, path := m.queue(t, inBackground("small", "Hi.", nil))
		m.waitForResponse(t, path, "completed")
		eventuallySeries(t, m.Server, map[string]float64{
			`turnpike_background_responses_finished_total{status="completed"}`: 1,
			`turnpike_background_responses_finished_total{status="failed"}`:    0,
			`turnpike_background_responses_unfinished{status="queued"}`:        0,
			`turnpike_background_responses_unfinished{status="in_progress"}`:   0,
			"turnpike_background_responses_oldest_seconds":                     0,
		})
	})
}

func TestRefusalMetricsCountBudgetsAndLimits(t *testing.T) {
	eachGateway(t, both, watched, func(t *testing.T, m *gatewayClient) {
		none, one := credits.Micro(0), int64(1)
		m.withKey(t, access.Key{MonthlyBudget: &none}).chat(t, oneCreditBody()).Want(t, 402, "budget_exceeded")
		slow := m.withKey(t, access.Key{RateLimit: &one})
		slow.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		slow.chat(t, body("small", "hi", nil)).Want(t, 429, "rate_limit_exceeded")
		eventuallySeries(t, m.Server, map[string]float64{
			`turnpike_budget_refusals_total{level="key"}`:       1,
			`turnpike_budget_refusals_total{level="workspace"}`: 0,
			`turnpike_limit_refusals_total{kind="requests"}`:    1,
			`turnpike_limit_refusals_total{kind="tokens"}`:      0,
			"turnpike_limit_store_down":                         0,
			"turnpike_budget_reserved_credits":                  0,
		})
		if n := scrape(t, m.Server)["turnpike_limit_subjects"]; n < 1 {
			t.Errorf("got %v subjects", n)
		}
	})
}

func TestDatabaseAndNodeMetrics(t *testing.T) {
	eachGateway(t, both, watched, func(t *testing.T, m *gatewayClient) {
		m.chat(t, body("small", "hi", nil)).Want(t, 200, "")
		eventuallySeries(t, m.Server, map[string]float64{
			"turnpike_database_degraded":                       0,
			"turnpike_node_members":                            1,
			"turnpike_node_evictions_total":                    0,
			`turnpike_build_info{version="test"}`:              1,
			`turnpike_commit_failures_total{group="requests"}`: 0,
			`turnpike_commit_pending{group="requests"}`:        0,
			"turnpike_mail_waiting":                            0,
			`turnpike_mail_attempts_total{result="failed"}`:    0,
		})
		got := scrape(t, m.Server)
		for _, name := range []string{"turnpike_database_max_connections", `turnpike_commit_items_total{group="requests"}`, `turnpike_commit_seconds_count{group="requests"}`} {
			if got[name] < 1 {
				t.Errorf("%s: got %v", name, got[name])
			}
		}
		if age := got["turnpike_node_heartbeat_age_seconds"]; age < 0 || age > 60 {
			t.Errorf("got a heartbeat of age %v", age)
		}
	})
}
