package retention_test

import (
	"context"
	"errors"
	"testing"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/retention"
)

func TestWhatFailsKeepsNothingElse(t *testing.T) {
	t.Parallel()
	partitions, bucket := errors.New("no partitions"), errors.New("no bucket")
	done := false
	k := &retention.Keeper{DB: dbtest.Open(t, dbtest.Address(t, "sqlite")),
		Before: func(context.Context) error { return partitions },
		Purges: []retention.Purge{
			{Name: "files", Run: func(context.Context, *db.Tx, int64) (int64, error) { return 0, bucket }},
			{Name: "jobs", Run: func(context.Context, *db.Tx, int64) (int64, error) { done = true; return 0, nil }},
		}}
	if err := k.RunOnce(t.Context()); !errors.Is(err, partitions) || !errors.Is(err, bucket) {
		t.Errorf("got %v, expected both", err)
	}
	if !done {
		t.Error("jobs are kept because files are")
	}
}
