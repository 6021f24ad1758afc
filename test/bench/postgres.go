package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"turnpike/test/chaos/program"
)

// postgres is a server with the settings it has when it is installed. The
// tests' own (internal/db/dbtest) runs without fsync, which would flatter us.
type postgres struct {
	url string
	cmd *exec.Cmd
}

func startPostgres(folder string) (*postgres, error) {
	bin, err := postgresFolder()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(folder, "postgres")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	attr, err := unprivileged(folder, dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata="+data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
	initdb.Dir, initdb.SysProcAttr = dir, attr
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	p := &postgres{url: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)}
	p.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	p.cmd.Dir, p.cmd.SysProcAttr = dir, attr
	program.EndWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.wait(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// wait returns when connections are accepted.
func (p *postgres) wait() error {
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(context.Background(), p.url); err == nil {
			return conn.Close(context.Background())
		}
	}
	return fmt.Errorf("PostgreSQL did not start: %w", err)
}

// version is such as "15.14".
func (p *postgres) version() (v string, err error) {
	conn, err := pgx.Connect(context.Background(), p.url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(context.Background(), "SHOW server_version").Scan(&v)
	v, _, _ = strings.Cut(v, " ")
	return v, err
}

// create makes an empty database beside the one that url names.
func (p *postgres) create(ctx context.Context, name string) (url string, err error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return strings.Replace(p.url, "/postgres?", "/"+name+"?", 1), err
}

// drop removes it. What stays behind goes with the server.
func (p *postgres) drop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	_, _ = conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
}

func (p *postgres) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // at once: nobody needs the data
	_ = p.cmd.Wait()
}

// postgresFolder finds where initdb and postgres are.
func postgresFolder() (string, error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	for i := len(folders) - 1; i >= 0; i-- {
		if _, err := os.Stat(filepath.Join(folders[i], "initdb")); err == nil {
			return folders[i], nil
		}
	}
	return "", errors.New("no PostgreSQL server binaries; make setup installs them")
}

// unprivileged gives the folder to another user when we are root, which
// PostgreSQL does not run as.
func unprivileged(parent, dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
		}
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(parent, 0o711), os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
