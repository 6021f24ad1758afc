package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// kafka is a broker that keeps its records when it stops, and what a consumer has read from it.
type kafka struct {
	t    *testing.T
	dir  string
	port int
	*kfake.Cluster

	mu   sync.Mutex
	read map[string]int // records by request ID
}

const kafkaTopic = "requests"

func startKafka(t *testing.T) *kafka {
	t.Helper()
	k := &kafka{t: t, dir: t.TempDir(), read: map[string]int{}}
	k.start()
	_, port, err := net.SplitHostPort(k.ListenAddrs()[0])
	if err == nil {
		k.port, err = strconv.Atoi(port)
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.address()), kgo.ConsumeTopics(kafkaTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(k.take)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
		k.Close()
	})
	return k
}

func (k *kafka) address() string { return fmt.Sprintf("127.0.0.1:%d", k.port) }

func (k *kafka) start() {
	k.t.Helper()
	var err error
	k.Cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(k.port), kfake.SeedTopics(2, kafkaTopic), kfake.DataDir(k.dir))
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kafka) take(r *kgo.Record) {
	var e struct {
		RequestID   string `json:"request_id"`
		WorkspaceID string `json:"workspace_id"`
		Environment string
	}
	if err := json.Unmarshal(r.Value, &e); err != nil || e.WorkspaceID == "" || e.WorkspaceID != string(r.Key) || e.Environment != "test" {
		k.t.Errorf("got %s with key %s (%v), want an entry with its workspace and environment", r.Value, r.Key, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read[e.RequestID]++
}

// missing returns the settled entries after a position that Kafka doesn't have, and how many there are.
func (k *kafka) missing(d *db.DB, position string) (missing []string, all int) {
	k.t.Helper()
	list, err := db.List(k.t.Context(), d, db.Value[string], "SELECT id FROM requests WHERE id > $1 AND settled", position)
	if err != nil {
		k.t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range list {
		if k.read[id] == 0 {
			missing = append(missing, id)
		}
	}
	return missing, len(list)
}

// TestEveryEntryReachesKafkaDespiteKill9 kills servers under load, and stops the broker meanwhile. At the end Kafka has
// every entry of the log, also those that were recovered.
func TestEveryEntryReachesKafkaDespiteKill9(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		k := startKafka(t)
		args := []string{"--audit-kafka-brokers", k.address(), "--audit-kafka-topic", kafkaTopic, "--audit-kafka-tls=false"}
		server := serve(t, at, args...)
		key, d := newKey(t, at), open(t, at)
		position := ""
		eventually(t, time.Minute, "the sink has started", func() bool {
			var err error
			position, err = db.Value[string](d.QueryRow(t.Context(), "SELECT position FROM log_sinks"))
			return db.IgnoreNotFound(err) == nil && position != ""
		})
		rounds := 3
		if full {
			rounds = 12
		}
		for round := range rounds {
			if round%3 == 1 {
				k.Close()
			}
			before := sentEntries(t, d)
			load, begun := startLoad(t, server.URL, key, fmt.Sprintf("round %d", round), 8), time.Now()
			// Kill it after it has sent a batch, unless it can't.
			eventually(t, time.Minute, "the server responds and sends entries", func() bool {
				return load.succeeded(begun) > 100 && (round%3 == 1 || sentEntries(t, d) > before)
			})
			server.Kill()
			load.stop()
			if at.DatabaseURL != "" {
				evictAll(t, d)
			}
			if round%3 == 1 {
				k.start()
			}
			server = serve(t, at, args...)
		}
		serves(t, server.URL, key)
		eventually(t, 2*time.Minute, "Kafka has every entry", func() bool {
			missing, _ := k.missing(d, position)
			return len(missing) == 0 && count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0
		})
		_, all := k.missing(d, position)
		repeated := 0
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, n := range k.read {
			repeated += n - 1
		}
		t.Logf("Kafka has %d entries, %d repeated", all, repeated)
	})
}

func sentEntries(t *testing.T, d *db.DB) int {
	t.Helper()
	return count(t, d, "SELECT sent FROM log_sinks")
}
