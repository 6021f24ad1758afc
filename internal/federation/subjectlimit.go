package federation

import (
	"sync"
	"time"
)

// subjectLimiter counts verified tokens per minute. Only issuers of rules can add subjects, so the map stays small.
type subjectLimiter struct {
	mu     sync.Mutex
	minute int64
	counts map[string]int
}

// allow counts a token of a subject, or returns how long the subject must wait.
func (l *subjectLimiter) allow(subject string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if minute := now.Unix() / 60; minute != l.minute || l.counts == nil {
		l.minute, l.counts = minute, map[string]int{}
	}
	if l.counts[subject] >= tokensPerMinute {
		return time.Unix((l.minute+1)*60, 0).Sub(now)
	}
	l.counts[subject]++
	return 0
}
