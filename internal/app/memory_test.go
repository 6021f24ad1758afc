package app

import "testing"

func TestMemoryLimitGrowsWithCallsInFlight(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for name, tt := range map[string]struct{ live, beside, calls, want int64 }{
		"idle":                {4 * mb, 10 * mb, 0, 48 * mb},
		"500 streams":         {25 * mb, 30 * mb, 500, 112 * mb},
		"5,000 streams":       {200 * mb, 100 * mb, 5000, 352 * mb},
		"calls without bound": {4 * mb, 10 * mb, 1 << 40, 112 * mb},
		"in steps":            {50*mb + 2, 10 * mb, 0, 76 * mb},
	} {
		if got := memoryLimit(tt.live, tt.beside, tt.calls); got != tt.want {
			t.Errorf("%s: %d MB, want %d MB", name, got/mb, tt.want/mb)
		}
	}
}
