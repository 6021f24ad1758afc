//go:build chaosha && linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// haMembers is the number of PostgreSQL servers.
const haMembers = 3

// haCluster is a highly available PostgreSQL as an operator runs it: etcd, three
// Patroni members with synchronous replication, and HAProxy.
type haCluster struct {
	dir     string
	bin     string              // of PostgreSQL
	owner   *syscall.Credential // PostgreSQL refuses to run as root
	members [haMembers]*haMember
	haproxy int // port
}

// haMember is one PostgreSQL server and its Patroni. All others reach them through
// links that can be cut, and so does Patroni reach etcd.
type haMember struct {
	name      string
	port, api int // without a link
	patroni   *osexec.Cmd

	etcd        *link
	replication *link // from the standbys
	clients     *link
	checks      *link // of HAProxy and the other members
}

func (m *haMember) links() []*link { return []*link{m.etcd, m.replication, m.clients, m.checks} }

// startHA starts the cluster and returns when all members replicate.
func startHA(t *testing.T) *haCluster {
	t.Helper()
	c := &haCluster{}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		t.Fatal("no PostgreSQL in /usr/lib/postgresql; run: scripts/setup.sh ha")
	}
	c.bin = filepath.Dir(found[len(found)-1])
	if c.dir, err = os.MkdirTemp("/tmp", "turnpike-ha-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of the cluster are in %s", c.dir)
			return
		}
		if err := os.RemoveAll(c.dir); err != nil {
			t.Error(err)
		}
	})
	if os.Geteuid() == 0 {
		c.owner = lookUpPostgres(t)
		if err := os.Chown(c.dir, int(c.owner.Uid), int(c.owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	client, peer := haPort(t), haPort(t)
	etcd := fmt.Sprintf("http://127.0.0.1:%d", client)
	c.start(t, "etcd", "etcd", "--name=etcd", "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", peer), fmt.Sprintf("--initial-advertise-peer-urls=http://127.0.0.1:%d", peer),
		fmt.Sprintf("--initial-cluster=etcd=http://127.0.0.1:%d", peer))
	eventually(t, time.Minute, "etcd has decided on its version", func() bool { return etcdReady(etcd) }) // Patroni exits otherwise
	proxy := c.startToxiproxy(t)
	for i := range c.members {
		m := &haMember{name: fmt.Sprintf("pg%d", i+1), port: haPort(t), api: haPort(t)}
		server := fmt.Sprintf("127.0.0.1:%d", m.port)
		m.etcd = proxy.link(t, m.name+"-etcd", strings.TrimPrefix(etcd, "http://"))
		m.replication, m.clients = proxy.link(t, m.name+"-replication", server), proxy.link(t, m.name+"-clients", server)
		m.checks = proxy.link(t, m.name+"-checks", fmt.Sprintf("127.0.0.1:%d", m.api))
		c.write(t, m.name+".yaml", c.patroniConfig(m))
		c.members[i] = m
		c.startPatroni(t, m)
	}
	// Runs before the processes' own cleanup, so that no Patroni restarts its server.
	t.Cleanup(func() {
		for _, m := range c.members {
			c.kill(m)
		}
	})
	c.haproxy = haPort(t)
	config := fmt.Sprintf("defaults\n mode tcp\n timeout connect 2s\n timeout client 30m\n timeout server 30m\n timeout check 2s\n"+
		"listen primary\n bind 127.0.0.1:%d\n option httpchk OPTIONS /primary\n http-check expect status 200\n"+
		" default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions\n", c.haproxy)
	for _, m := range c.members {
		config += fmt.Sprintf(" server %s %s check addr 127.0.0.1 port %s\n", m.name, m.clients.address, strings.TrimPrefix(m.checks.address, "127.0.0.1:"))
	}
	c.write(t, "haproxy.cfg", config)
	c.start(t, "haproxy", "haproxy", "-db", "-f", filepath.Join(c.dir, "haproxy.cfg"))
	c.waitUntilHealthy(t)
	return c
}

// haServer returns the path of a server from test/chaos/servers.
func haServer(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("TURNPIKE_TEST_SERVERS")
	if dir == "" {
		t.Fatal("TURNPIKE_TEST_SERVERS must be the directory of versitygw and toxiproxy; run: make chaos-ha")
	}
	return filepath.Join(dir, name)
}

func lookUpPostgres(t *testing.T) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, other := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err, other); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

var haPorts = func() *atomic.Int64 {
	var last atomic.Int64
	last.Store(10_000 + rand.Int64N(15_000))
	return &last
}()

// haPort returns another free port with each call, below the range of ephemeral ports.
func haPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := int(haPorts.Add(1))
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func (c *haCluster) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func etcdReady(url string) bool {
	resp, err := http.Get(url + "/version")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var version struct{ EtcdCluster string }
	return json.NewDecoder(resp.Body).Decode(&version) == nil && version.EtcdCluster != "" && version.EtcdCluster != "not_decided"
}

// start runs a program as the cluster's user until the test ends. Its log is in
// the cluster's directory.
func (c *haCluster) start(t *testing.T, name, path string, args ...string) *osexec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := osexec.LookPath(path); err != nil {
		path = filepath.Join("/usr/sbin", path)
	}
	cmd := osexec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin", "HOME=" + c.dir, "LC_ALL=C.UTF-8"}
	program.EndWithParent(cmd)
	cmd.SysProcAttr.Credential = c.owner
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v; run: scripts/setup.sh ha", name, err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if it has ended
		_ = cmd.Wait()
	})
	return cmd
}

func (c *haCluster) startPatroni(t *testing.T, m *haMember) {
	t.Helper()
	m.patroni = c.start(t, m.name, "patroni", filepath.Join(c.dir, m.name+".yaml"))
}

// patroniConfig has shorter intervals than the defaults of Patroni (ttl 30, loop_wait
// 10) and PostgreSQL (wal_sender_timeout 60s). Without fsync, killed processes lose nothing.
func (c *haCluster) patroniConfig(m *haMember) string {
	return fmt.Sprintf(`
scope: turnpike
name: %[1]s
restapi: {listen: "127.0.0.1:%[3]d", connect_address: "%[8]s"}
etcd3: {hosts: "%[4]s", use_proxies: true} # no discovery, which would bypass the link
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 5
    retry_timeout: 5
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 200, shared_buffers: 32MB, wal_keep_size: 1GB, fsync: "off", wal_log_hints: "on",
        wal_sender_timeout: 10s, wal_receiver_timeout: 10s}
  initdb: [{encoding: UTF8}, {locale: C}]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
postgresql:
  listen: "127.0.0.1:%[2]d"
  connect_address: "%[7]s"
  data_dir: %[5]s/%[1]s
  bin_dir: %[6]s
  pgpass: %[5]s/%[1]s.pgpass
  parameters: {unix_socket_directories: "%[5]s"}
  authentication:
    superuser: {username: postgres, password: test}
    replication: {username: replicator, password: test}
    rewind: {username: rewinder, password: test}
`, m.name, m.port, m.api, m.etcd.address, c.dir, c.bin, m.replication.address, m.checks.address)
}

// url returns the address of the primary through HAProxy.
func (c *haCluster) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", c.haproxy)
}

// multiHost returns the addresses of all members, of which a client chooses the primary.
func (c *haCluster) multiHost() string {
	var hosts []string
	for _, m := range c.members {
		hosts = append(hosts, m.clients.address)
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write"
}

// startPgBouncer starts a pooler in session mode in front of HAProxy and returns its
// address.
func (c *haCluster) startPgBouncer(t *testing.T) string {
	t.Helper()
	port := haPort(t)
	c.write(t, "pgbouncer.ini", fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = session\nmax_client_conn = 500\ndefault_pool_size = 100\nserver_login_retry = 1\n", c.haproxy, port))
	c.start(t, "pgbouncer", "pgbouncer", filepath.Join(c.dir, "pgbouncer.ini"))
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// haState is a member as Patroni reports it.
type haState struct {
	Name, Role, State string
}

// states asks the members for the state of the cluster, and skips those that don't
// respond.
func (c *haCluster) states() []haState {
	client := &http.Client{Timeout: 2 * time.Second}
	for _, m := range c.members {
		res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/cluster", m.api))
		if err != nil {
			continue
		}
		var view struct{ Members []haState }
		err = json.NewDecoder(res.Body).Decode(&view)
		_ = res.Body.Close()
		if err == nil && len(view.Members) > 0 {
			return view.Members
		}
	}
	return nil
}

// primary returns the member that accepts writes, or nil.
func (c *haCluster) primary() *haMember {
	client := &http.Client{Timeout: 2 * time.Second}
	for _, m := range c.members {
		res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/primary", m.api))
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return m
		}
	}
	return nil
}

// waitUntilHealthy waits for a primary, a synchronous standby and another standby.
func (c *haCluster) waitUntilHealthy(t *testing.T) {
	t.Helper()
	eventually(t, 3*time.Minute, "the PostgreSQL cluster is complete", func() bool {
		running, roles := 0, map[string]int{}
		for _, s := range c.states() {
			if s.State == "running" || s.State == "streaming" {
				running++
				roles[s.Role]++
			}
		}
		return running == haMembers && roles["leader"] == 1 && roles["sync_standby"] == 1
	})
}

// kill ends Patroni and its server with SIGKILL, as if the machine were gone.
func (c *haCluster) kill(m *haMember) {
	_ = m.patroni.Process.Kill() // fails only if it has ended
	_ = m.patroni.Wait()
	content, err := os.ReadFile(filepath.Join(c.dir, m.name, "postmaster.pid"))
	if err != nil {
		return
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if pid, err := strconv.Atoi(string(line)); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// switchOver moves the primary to a standby that Patroni chooses.
func (c *haCluster) switchOver(t *testing.T, from *haMember) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"leader": from.name})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/switchover", from.api), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if !slices.Contains([]int{http.StatusOK, http.StatusAccepted}, res.StatusCode) {
		t.Fatalf("switchover: status %d", res.StatusCode)
	}
}
