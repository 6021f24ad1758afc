package logsinks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

const testTopic = "requests"

func startKafka(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(options, kfake.NumBrokers(1), kfake.SeedTopics(3, testTopic))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openKafka(t *testing.T, k Kafka) Sender {
	t.Helper()
	s, err := OpenKafka(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func testEntry(workspace string) *audit.Entry {
	return &audit.Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: workspace, Environment: "test"}, KeyID: "key_1", KeyHint: "tp_test_…abcd", Model: "gpt", Status: 200,
		Credits: 1500 * credits.Credit / 1000, CreatedAt: time.Now(), Settled: true, Attempts: json.RawMessage(`[{"provider":"openai","status":200}]`)}
}

// consume reads a number of records from the topic.
func consume(t *testing.T, n int, options ...kgo.Opt) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.ConsumeTopics(testTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out []*kgo.Record
	for len(out) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("got %d of %d records: %v", len(out), n, err)
		}
		out = append(out, fetches.Records()...)
	}
	return out
}

func TestKafkaGetsTheEntriesOfTheAPI(t *testing.T) {
	t.Parallel()
	c := startKafka(t)
	s := openKafka(t, Kafka{Brokers: c.ListenAddrs(), Topic: testTopic})
	sent := map[string]*audit.Entry{}
	var list []*audit.Entry
	for _, workspace := range []string{"ws_a", "ws_b", "ws_a"} {
		e := testEntry(workspace)
		list, sent[e.RequestID] = append(list, e), e
	}
	if err := s.Send(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	partitions := map[string]int32{}
	for _, r := range consume(t, len(list), kgo.SeedBrokers(c.ListenAddrs()...)) {
		var got, want map[string]any
		if err := json.Unmarshal(r.Value, &got); err != nil {
			t.Fatal(err)
		}
		e := sent[got["request_id"].(string)]
		shown, err := json.Marshal(audit.NewObject(e))
		if err != nil || json.Unmarshal(shown, &want) != nil {
			t.Fatal(err)
		}
		want["workspace_id"] = e.WorkspaceID
		if !reflect.DeepEqual(got, want) || string(r.Key) != e.WorkspaceID || got["environment"] != "test" {
			t.Errorf("got %v with key %s, want %v", got, r.Key, want)
		}
		if p, known := partitions[e.WorkspaceID]; known && p != r.Partition {
			t.Errorf("the entries of %s are in several partitions", e.WorkspaceID)
		}
		partitions[e.WorkspaceID] = r.Partition
	}
}

func TestKafkaSignsIn(t *testing.T) {
	t.Parallel()
	c := startKafka(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", "secret"), kfake.Superuser("SCRAM-SHA-256", "bob", "secret"), kfake.Superuser("SCRAM-SHA-512", "eve", "secret"))
	for mechanism, user := range map[string]string{"plain": "ann", "scram-sha-256": "bob", "scram-sha-512": "eve"} {
		k := Kafka{Brokers: c.ListenAddrs(), Topic: testTopic, SASL: mechanism, Username: user, Password: "secret"}
		if err := openKafka(t, k).Send(t.Context(), []*audit.Entry{testEntry("ws")}); err != nil {
			t.Errorf("%s: %v", mechanism, err)
		}
		k.Password = "wrong-password"
		if _, err := OpenKafka(t.Context(), k); err == nil || strings.Contains(err.Error(), k.Password) {
			t.Errorf("%s with another password: got %v, want an error without it", mechanism, err)
		}
	}
}

func TestKafkaConnectsWithTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	defer web.Close()
	c := startKafka(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates}))
	k := Kafka{Brokers: c.ListenAddrs(), Topic: testTopic, TLS: true}
	if _, err := OpenKafka(t.Context(), k); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v, want that the certificate is unknown", err)
	}
	k.roots = x509.NewCertPool()
	k.roots.AddCert(web.Certificate())
	if err := openKafka(t, k).Send(t.Context(), []*audit.Entry{testEntry("ws")}); err != nil {
		t.Error(err)
	}
}

func TestKafkaAuthenticatesClient(t *testing.T) {
	t.Parallel()
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS()
	defer web.Close()
	c := startKafka(t, kfake.TLS(&tls.Config{Certificates: web.TLS.Certificates, ClientAuth: tls.RequireAnyClientCert}))
	k := Kafka{Brokers: c.ListenAddrs(), Topic: testTopic, TLS: true, roots: x509.NewCertPool()}
	k.roots.AddCert(web.Certificate())
	if _, err := OpenKafka(t.Context(), k); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("got %v, want that the broker requires a certificate", err)
	}
	k.Cert, k.Key = writePair(t, web.TLS.Certificates[0])
	if err := openKafka(t, k).Send(t.Context(), []*audit.Entry{testEntry("ws")}); err != nil {
		t.Error(err)
	}
	k.Cert += ".missing"
	if _, err := OpenKafka(t.Context(), k); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file is missing", err)
	}
}

func TestMissingTopicAndBrokerAreReported(t *testing.T) {
	t.Parallel()
	c := startKafka(t)
	brokers := c.ListenAddrs()
	if _, err := OpenKafka(t.Context(), Kafka{Brokers: brokers, Topic: "other"}); err == nil || !strings.Contains(err.Error(), "topic other") {
		t.Errorf("got %v, want that the topic doesn't exist", err)
	}
	s := openKafka(t, Kafka{Brokers: brokers, Topic: testTopic})
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Send(ctx, []*audit.Entry{testEntry("ws")}); err == nil {
		t.Error("sent to a broker that is down")
	}
	if _, err := OpenKafka(t.Context(), Kafka{Brokers: brokers, Topic: testTopic}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refused connection", err)
	}
}
