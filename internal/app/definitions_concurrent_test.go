package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/operators"
)

// TestConcurrentChangesOfAProviderSurvive changes a provider while a change of another field is between its read and
// its write.
func TestConcurrentChangesOfAProviderSurvive(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg := config.Config{Data: t.TempDir(), MasterKey: oneMasterKey}
			if engine == "postgres" {
				cfg.DatabaseURL = config.SecretURL(dbtest.Address(t, engine))
			}
			s, err := OpenStore(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			ref := operators.Ref{Kind: operators.Provider, Name: "mine"}
			change := func(ctx context.Context, m *Definitions, document string) {
				t.Helper()
				if _, err := m.Update(ctx, audit.Operator, ref, []byte(document)); err != nil {
					t.Error(err)
				}
			}
			theirs := NewDefinitions(s, config.Config{})
			if _, err := theirs.Create(t.Context(), audit.Operator, ref.Kind, []byte(`{"name": "mine", "type": "openai", "base_url": "http://127.0.0.1:1/v1", "local": true}`)); err != nil {
				t.Fatal(err)
			}
			var once sync.Once
			ours := &Definitions{db: s.DB, records: operators.Definitions{Ring: s.Ring, Now: time.Now}, file: func() config.Config {
				// Update has read the provider.
				once.Do(func() { change(t.Context(), theirs, `{"weight": 7}`) })
				return config.Config{}
			}}
			change(t.Context(), ours, `{"old_limit_field": true}`)
			d, err := theirs.records.Get(t.Context(), s.DB, ref.Kind, ref.Name)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{`"weight":7`, `"old_limit_field":true`} {
				if !strings.Contains(string(d.Document), field) {
					t.Errorf("got %s, want %s in it", d.Document, field)
				}
			}
		})
	}
}
