package api_test

import "testing"

// TestASlowTurnHoldsUpNoOtherRun: not even one that shares its lane.
func TestASlowTurnHoldsUpNoOtherRun(t *testing.T) {
	t.Parallel()
	eachLab(t, nil, func(t *testing.T, l *lab) {
		slow := l.begin(t, task(l.brain.learn("slow", saying{text: "At last.", gate: "slow"}), nil))
		l.Eventually(t, func() bool { return len(l.brain.questions("slow")) == 1 })
		shop := tellAll(t, l, `{"stock":3}`)

		steps := l.brain.learn("steps", calls(toolCall{"stock", ok}), calls(toolCall{"stock", ok}), saying{text: "Three."})
		l.ended(t, l.beside(t, slow, task(steps, []any{webTool("stock", shop.URL)})), "completed")

		asks := l.brain.learn("asks", calls(toolCall{"pay", ok}), saying{text: "Paid."})
		path := l.beside(t, slow, task(asks, []any{approved("pay", shop.URL)}))
		approval := l.waits(t, path, "awaiting_approval")[0]["id"].(string)
		l.decide(t, path, approval, "approve").Want(t, 200, "")
		l.ended(t, path, "completed")

		l.brain.open("slow")
		l.ended(t, slow, "completed")
	})
}

// beside makes runs until one has the same lane as another, and returns its
// path. There are 16 lanes.
func (l *lab) beside(t *testing.T, other string, body any) string {
	t.Helper()
	for range 500 {
		path := l.begin(t, body)
		if l.rows(t, "agent_runs WHERE id = '"+idOf(path)+"' AND lane = (SELECT lane FROM agent_runs WHERE id = '"+idOf(other)+"')") == 1 {
			return path
		}
	}
	t.Fatal("no run came into the lane")
	return ""
}
