package dbtest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// quickSettings make the server start fast and use few resources.
// synchronous_commit keeps its default: group commit and crash tests need a
// production server's ordering. Killing the server, unlike the machine, loses
// nothing without fsync.
var quickSettings = []string{
	"fsync=off",
	"full_page_writes=off",
	"max_connections=300",
	"shared_buffers=32MB",
	"wal_level=minimal",
	"max_wal_senders=0",
	"max_wal_size=256MB",
	"dynamic_shared_memory_type=mmap", // inside the data directory, so that it is deleted with it
}

var commonSettings = []string{
	"listen_addresses=127.0.0.1",
	"timezone=UTC",
	"log_timezone=UTC",
	"lc_messages=C", // errPortTaken is recognized by its message
}

const (
	startTimeout = 2 * time.Minute  // including crash recovery on a loaded machine
	fastTimeout  = 1 * time.Minute  // shutdown with a checkpoint
	quitTimeout  = 10 * time.Second // shutdown without a checkpoint; then SIGKILL
)

var (
	errPortTaken  = errors.New("the port is taken")
	errDataInUse  = errors.New("processes of the killed server still hold its memory")
	errNoBinaries = errors.New("no PostgreSQL server binaries (initdb, postgres) on PATH or in /usr/lib/postgresql/*/bin: " +
		"run `make setup`, or set " + URLVariable + " to a server the tests may use")
)

// server is the supervisor's side of a Cluster. Only the supervisor's main
// goroutine may call methods that start processes.
type server struct {
	bin   string              // directory of initdb and postgres
	dir   string              // everything it writes: data, log, socket
	owner *syscall.Credential // the user it runs as; nil means the current user
	port  int

	settings []string

	process *os.Process   // nil if the server is down
	exited  chan struct{} // closed when process has exited
}

// createServer creates a data directory, and deletes it on failure.
func createServer(mode string) (*server, error) {
	bin, err := findBinaries(os.Getenv("PATH"), "/usr/lib/postgresql/*/bin")
	if err != nil {
		return nil, err
	}
	srv := &server{bin: bin, settings: commonSettings}
	if mode != durable {
		srv.settings = slices.Concat(quickSettings, commonSettings)
	}
	primary, isStandby := strings.CutPrefix(mode, standbyOf)
	if isStandby || mode == replicated {
		srv.settings = append(srv.settings, "wal_level=replica", "max_wal_senders=4")
	}
	parent := os.TempDir()
	if os.Geteuid() == 0 {
		if srv.owner, err = unprivileged(); err != nil {
			return nil, err
		}
		if !traversable(parent) {
			parent = "/tmp"
		}
	}
	if srv.dir, err = os.MkdirTemp(parent, "turnpike-postgres-"); err != nil {
		return nil, err
	}
	if err := srv.create(primary, isStandby); err != nil {
		return nil, errors.Join(err, os.RemoveAll(srv.dir))
	}
	return srv, nil
}

func (srv *server) create(primary string, isStandby bool) error {
	if srv.owner != nil {
		if err := os.Chown(srv.dir, int(srv.owner.Uid), int(srv.owner.Gid)); err != nil {
			return err
		}
	}
	if isStandby {
		return srv.copyPrimary(primary)
	}
	return srv.initdb()
}

func (srv *server) copyPrimary(url string) error {
	// A directory of links may have only those of the server.
	initdb, err := filepath.EvalSymlinks(filepath.Join(srv.bin, "initdb"))
	if err != nil {
		return err
	}
	cmd := srv.command("pg_basebackup", "--pgdata="+srv.data(), "--dbname="+url, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	cmd.Path = filepath.Join(filepath.Dir(initdb), "pg_basebackup")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	return nil
}

func (srv *server) initdb() error {
	// Locale C sorts strings by bytes, as SQLite does. Trust admits every user of
	// this machine, since the server only has test data.
	cmd := srv.command("initdb", "--pgdata="+srv.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (srv *server) url() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", srv.port)
}

func (srv *server) data() string { return filepath.Join(srv.dir, "data") }
func (srv *server) log() string  { return filepath.Join(srv.dir, "server.log") }

// startOnFreePort retries if another process takes the port before the server
// binds it.
func (srv *server) startOnFreePort() error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		srv.port = port
		err = srv.start()
		if !errors.Is(err, errPortTaken) || attempt == 10 {
			return err
		}
	}
}

func (srv *server) start() error {
	log, err := os.OpenFile(srv.log(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return err
	}

	args := []string{"-D", srv.data(), "-p", strconv.Itoa(srv.port), "-c", "unix_socket_directories=" + srv.socketDir()}
	for _, s := range srv.settings {
		args = append(args, "-c", s)
	}
	cmd := srv.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	srv.process, srv.exited = cmd.Process, make(chan struct{})
	go func(exited chan struct{}) {
		_ = cmd.Wait() // the log has the reason
		close(exited)
	}(srv.exited)

	if err := srv.waitUntilReady(); err != nil {
		srv.end(syscall.SIGQUIT, quitTimeout)
		said, _ := os.ReadFile(srv.log())
		said = said[min(int(before.Size()), len(said)):]
		switch {
		case bytes.Contains(said, []byte("Address already in use")):
			return fmt.Errorf("port %d: %w", srv.port, errPortTaken)
		case bytes.Contains(said, []byte("pre-existing shared memory block")):
			return errDataInUse
		}
		return fmt.Errorf("%w; its log:\n%s", err, said)
	}
	return nil
}

// waitUntilReady polls the last line of the server's pid file, as pg_ctl does.
func (srv *server) waitUntilReady() error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(startTimeout)
	for {
		select {
		case <-srv.exited:
			return errors.New("the server ended while starting")
		case <-deadline:
			return fmt.Errorf("the server was not ready within %v", startTimeout)
		case <-look.C:
			if srv.ready() {
				return nil
			}
		}
	}
}

func (srv *server) ready() bool {
	content, err := os.ReadFile(filepath.Join(srv.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	// A killed server leaves its file behind, so compare the process ID.
	return len(lines) >= 8 && lines[0] == strconv.Itoa(srv.process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

func (srv *server) restart() error {
	srv.end(syscall.SIGINT, fastTimeout)
	// After a kill, sessions exit one by one, and a new server can't start next to
	// them. On Linux, kill has already waited for them.
	deadline := time.Now().Add(fastTimeout)
	for {
		err := srv.start()
		if !errors.Is(err, errDataInUse) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (srv *server) kill() error {
	if srv.process == nil {
		return errors.New("the server is already down")
	}
	srv.end(syscall.SIGKILL, quitTimeout)
	reapOrphans(quitTimeout)
	return nil
}

// end sends the signal and waits. It kills a server that doesn't exit in time.
func (srv *server) end(sig syscall.Signal, patience time.Duration) {
	if srv.process == nil {
		return
	}
	_ = srv.process.Signal(sig) // fails only if the process has already exited
	select {
	case <-srv.exited:
	case <-time.After(patience):
		_ = srv.process.Kill()
		<-srv.exited
	}
	srv.process = nil
}

// remove stops the server without a checkpoint and deletes its data.
func (srv *server) remove() error {
	srv.end(syscall.SIGQUIT, quitTimeout)
	// Sessions of a killed server may still write meanwhile.
	var err error
	for range 20 {
		if err = os.RemoveAll(srv.dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// command prepares a server program: as its user, in its directory, and without
// the PG variables of the environment. The user may be unable to enter our
// directory.
func (srv *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(srv.bin, name), args...)
	cmd.Dir = srv.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, supervisorVariable) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "HOME="+srv.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: srv.owner}
	dieWithParent(cmd.SysProcAttr)
	return cmd
}

// socketDir returns "", which means no socket, if the path exceeds the shortest
// limit of socket addresses: 104 bytes.
func (srv *server) socketDir() string {
	if len(srv.dir)+len("/.s.PGSQL.00000") >= 104 {
		return ""
	}
	return srv.dir
}

// freePort returns a port below the range of ephemeral ports. During a restart
// no client can get the server's port, or connect to itself on it.
func freePort() (int, error) {
	const low, high = 15000, 30000
	var err error
	for range 100 {
		port := low + rand.IntN(high-low)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", low, high, err)
}

// findBinaries returns the directory with both programs: first from PATH, then
// Debian's directories by version, newest first.
func findBinaries(path, versions string) (string, error) {
	var candidates []string
	for _, dir := range filepath.SplitList(path) {
		candidates = append(candidates, dir)
		// A link in a general directory points to the one with all programs.
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			candidates = append(candidates, filepath.Dir(target))
		}
	}
	installed, err := filepath.Glob(versions)
	if err != nil {
		return "", err
	}
	version := func(dir string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(dir)), 64)
		return v
	}
	slices.SortFunc(installed, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
	for _, dir := range append(candidates, installed...) {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return filepath.EvalSymlinks(dir)
		}
	}
	return "", errNoBinaries
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// unprivileged returns the user to run the server as, since PostgreSQL refuses
// to run as root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as")
}

// traversable reports whether every user can access files in dir.
func traversable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
