package tools

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressWait limits how long a result waits for the notifications before it.
const progressWait = time.Second

// progress passes on progress notifications. The SDK handles them concurrently with the result, which
// must not overtake them.
type progress struct {
	pass   func(*mcp.ProgressNotificationParams) // nil passes on nothing
	passed chan struct{}
}

func newProgress(pass func(*mcp.ProgressNotificationParams)) *progress {
	return &progress{pass, make(chan struct{}, 1<<10)}
}

func (p *progress) notify(params *mcp.ProgressNotificationParams) {
	if p.pass == nil {
		return
	}
	p.pass(params)
	select {
	case p.passed <- struct{}{}:
	default: // the result doesn't wait for so many
	}
}

// wait returns when n notifications were passed on.
func (p *progress) wait(n int) {
	if p.pass == nil {
		return
	}
	limit := time.After(progressWait)
	for range min(n, cap(p.passed)) {
		select {
		case <-p.passed:
		case <-limit:
			return
		}
	}
}
