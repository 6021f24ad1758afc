package app

import (
	"testing"

	"turnpike/internal/config"
	"turnpike/internal/db"
)

func TestRequestLogHasFewPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		archive string
		days    int
		want    db.Span
	}{
		{"", 7, db.Month},
		{"/archive", 7, db.Day},
		{"/archive", 35, db.Day},
		{"/archive", 36, db.Month},
		{"/archive", 400, db.Month},
	} {
		got := requestPartitions(config.Audit{RetentionDays: c.days, Archive: config.LogArchive{To: config.SecretURL(c.archive)}})
		if got.Span != c.want || got.Table != "requests" {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
}
