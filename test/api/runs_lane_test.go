package api_test

import "testing"

func TestSlowTurnDoesNotDelayOtherRuns(t *testing.T) {
	eachAgents(t, both, nil, func(t *testing.T, l *agentClient) {
		slow := l.startRun(t, runBody(l.model.addScript("slow", reply{text: "At last.", gate: "slow"}), nil))
		l.Eventually(t, func() bool { return len(l.model.requests("slow")) == 1 })
		stockTool := newTool(t, l, `{"stock":3}`)

		steps := l.model.addScript("steps", calls(toolCall{"stock", ok}), calls(toolCall{"stock", ok}), reply{text: "Three."})
		l.waitForEnd(t, l.startInLaneOf(t, slow, runBody(steps, []any{webTool("stock", stockTool.URL)})), "completed")

		asks := l.model.addScript("asks", calls(toolCall{"pay", ok}), reply{text: "Paid."})
		path := l.startInLaneOf(t, slow, runBody(asks, []any{approved("pay", stockTool.URL)}))
		approval := l.waitForAction(t, path, "awaiting_approval")[0]["id"].(string)
		l.decide(t, path, approval, "approve").Want(t, 200, "")
		l.waitForEnd(t, path, "completed")

		l.model.open("slow")
		l.waitForEnd(t, slow, "completed")
	})
}

// startInLaneOf creates runs until one has the same lane as another, and returns
// its path. There are 16 lanes.
func (l *agentClient) startInLaneOf(t *testing.T, other string, body any) string {
	t.Helper()
	for range 500 {
		path := l.startRun(t, body)
		if l.rows(t, "agent_runs WHERE id = '"+idOf(path)+"' AND lane = (SELECT lane FROM agent_runs WHERE id = '"+idOf(other)+"')") == 1 {
			return path
		}
	}
	t.Fatal("no run came into the lane")
	return ""
}
