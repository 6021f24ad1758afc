package api

import "testing"

func TestLargeBodiesOfTwoWorkspacesLeaveMemoryForAThird(t *testing.T) {
	t.Parallel()
	m := newBodyMemory(64)
	for _, workspace := range []string{"a", "b", "c"} {
		if reserveAll(m, workspace) == 0 {
			t.Errorf("workspace %s got nothing; usage is %v of %d", workspace, m.usage, m.limit)
		}
	}
	if m.usage["a"] != 32 {
		t.Errorf("the first workspace got %d, want 32", m.usage["a"])
	}
	for workspace, bytes := range m.usage {
		m.release(workspace, bytes)
	}
	if m.used != 0 || len(m.usage) != 0 {
		t.Errorf("after all releases %d bytes are used by %v, want none", m.used, m.usage)
	}
	if got := reserveAll(m, ""); got != 4 {
		t.Errorf("requests without a key got %d, want a sixteenth (4)", got)
	}
}

// reserveAll reserves byte by byte until it is refused.
func reserveAll(m *bodyMemory, workspace string) (bytes int) {
	for m.reserve(workspace, 1) {
		bytes++
	}
	return bytes
}
