package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// failure ends the run: nothing can be measured after an error.
type failure struct{ err error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// recoverFailure turns a failure into an error, for a deferred call.
func recoverFailure(err *error) {
	switch f := recover().(type) {
	case nil:
	case failure:
		*err = f.err
	default:
		panic(f)
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

type bench struct {
	options
	report
	ctx             context.Context
	engines         []*engine
	stops           []func() // called at the end
	databaseVersion string
	load            *child
	binary          func() program.Binary // builds the release binary once
	patience        time.Duration         // left for waiting and repeating, see quiet
	fresh           int                   // databases created so far
}

func newBench(ctx context.Context, o options) *bench {
	b := &bench{options: o, ctx: ctx, engines: []*engine{{name: "SQLite"}}}
	b.binary = sync.OnceValue(func() program.Binary {
		say("building")
		return must(program.BuildRelease(o.dir))
	})
	b.fact("write 4 KiB and fsync, same disk, same run", fsyncCost(o.dir))
	if p, err := startPostgres(ctx, o.dir); err == nil {
		b.stops = append(b.stops, func() { _ = p.Stop() })
		b.engines, b.databaseVersion = append(b.engines, &engine{"PostgreSQL", p, p.pid}), p.version
	} else {
		say("measuring without PostgreSQL: %v", err)
		b.targets = append(b.targets, target{"PostgreSQL", "not measured", "measured", false})
	}
	b.load = b.startChild(roleLoad, nil, nil)
	b.stops = append(b.stops, b.load.kill)
	return b
}

type engine struct {
	name     string
	database *postgres // nil for SQLite
	pid      int       // the database's process, 0 for SQLite
}

func (e *engine) String() string { return "Turnpike, " + e.name }

// newPlace creates an empty database. Call remove after the last server on it
// has stopped.
func (b *bench) newPlace(e *engine) (at program.Place, remove func()) {
	b.fresh++
	name := fmt.Sprintf("bench%d", b.fresh)
	at.Dir = filepath.Join(b.dir, name)
	check(os.Mkdir(at.Dir, 0o700))
	if e.database != nil {
		at.DatabaseURL = must(e.database.database(b.ctx, "CREATE", name, ""))
	}
	return at, func() {
		_ = os.RemoveAll(at.Dir) // what is left goes with the run's directory
		if e.database != nil {
			_, _ = e.database.database(b.ctx, "DROP", name, "WITH (FORCE)")
		}
	}
}

// sample is one measurement of a subject. Fields that were not measured are zero.
type sample struct {
	count                int // requests, deliveries, images or steps
	took                 time.Duration
	p50, p99             time.Duration
	directP50, directP99 time.Duration // without the subject in between
	cpu, databaseCPU     time.Duration // for all of count
	commits              int64
	peakMB               float64
	others               float64 // share of all cores that other processes of the machine had
}

func (s sample) rate() float64 { return float64(s.count) / s.took.Seconds() }

type subject struct {
	name    string
	measure func() sample
}

// series is a subject's samples, one for each round.
type series struct {
	name    string
	samples []sample
}

// rounds measures the subjects in turn and not one after the other: other work
// on the machine then affects all of them.
func (b *bench) rounds(title string, subjects ...subject) []series {
	all := make([]series, len(subjects))
	for n := range b.options.rounds {
		for i, s := range subjects {
			all[i].name = s.name
			all[i].samples = append(all[i].samples, b.leastDisturbed(title, s))
			x := all[i].samples[n]
			say("round %d, %s, %s: %.0f/s, p50 %s, p99 %s, others had %.0f%%", n+1, title, s.name, x.rate(), millis(x.p50), millis(x.p99), 100*x.others)
		}
	}
	return all
}

// A measurement begins when other processes have less of the cores than
// disturbed, and one during which they had more is repeated: the least disturbed
// one counts. It is selected by what others did, never by its result. When a
// part has waited long enough, the run stops waiting.
const (
	disturbed = 0.10
	attempts  = 3
)

func (b *bench) leastDisturbed(title string, s subject) (best sample) {
	say("%s, %s", title, s.name) // a failure follows what it belongs to
	for n := range attempts {
		b.waitForQuiet()
		begun := time.Now()
		if next := s.measure(); n == 0 || next.others < best.others {
			best = next
		}
		if b.patience -= time.Since(begun); best.others <= disturbed || b.patience <= 0 {
			break
		}
	}
	return best
}

// waitForQuiet returns when the cores have little to do, or patience is used up.
func (b *bench) waitForQuiet() {
	const interval = 300 * time.Millisecond
	for b.patience > 0 {
		check(b.ctx.Err())
		before := machineBusy()
		time.Sleep(interval)
		b.patience -= interval
		if float64(machineBusy()-before) <= disturbed*float64(interval)*float64(runtime.NumCPU()) {
			return
		}
	}
}

func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// percentiles returns the median and the 99th percentile, and sorts values.
func percentiles(values []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(values)
	if len(values) == 0 {
		return 0, 0
	}
	return values[len(values)/2], values[len(values)*99/100]
}

// fsyncCost appends pages to a file and syncs each, as a commit does.
func fsyncCost(dir string) string {
	f := must(os.Create(filepath.Join(dir, "fsync")))
	defer f.Close()
	page := make([]byte, 4096)
	var took []time.Duration
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && len(took) < 2000; {
		begun := time.Now()
		must(f.Write(page))
		check(f.Sync())
		took = append(took, time.Since(begun))
	}
	p50, p99 := percentiles(took)
	return fmt.Sprintf("median %s, 99th percentile %s", millis(p50), millis(p99))
}

// tick is the unit of CPU times in /proc on every Linux that Go supports.
const tick = 10 * time.Millisecond

// cpuTime is what the process and its children have used so far.
func cpuTime(pid int) (total time.Duration) {
	if pid == 0 {
		return 0
	}
	for _, p := range must(procfs.AllProcs()) {
		s, err := p.Stat()
		if err != nil {
			continue // it ended since it was listed
		}
		if s.PID == pid || s.PPID == pid {
			total += time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * tick
		}
	}
	return total
}

// ownTime is what this process has used, without its children.
func ownTime() time.Duration {
	s := must(must(procfs.NewProc(os.Getpid())).Stat())
	return time.Duration(s.UTime+s.STime) * tick
}

// machineBusy is how long all cores together have worked so far.
func machineBusy() time.Duration {
	s := must(must(procfs.NewDefaultFS()).Stat()).CPUTotal
	return time.Duration((s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal) * float64(time.Second))
}

// memoryMB returns the process's resident size and the highest it ever had.
func memoryMB(pid int) (now, peak float64) {
	s := must(must(procfs.NewProc(pid)).NewStatus())
	return float64(s.VmRSS) / (1 << 20), float64(s.VmHWM) / (1 << 20)
}

func highestMB(pid int, within time.Duration) (highest float64) {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		now, _ := memoryMB(pid)
		highest = max(highest, now)
	}
	return highest
}

const settleTime = 2 * time.Second // memory may be allocated or freed late

// watch runs fn and returns what the server and its database (0 for none) used
// meanwhile, and the share of the cores that went to processes that are neither
// these, this one nor the helpers.
func watch(server, database int, helpers []int, fn func()) (u sample) {
	pids := append([]int{server, database}, helpers...)
	used := func() (each []time.Duration, ours time.Duration) {
		ours = ownTime()
		for _, pid := range pids {
			each = append(each, cpuTime(pid))
			ours += each[len(each)-1]
		}
		return each, ours
	}
	before, oursBefore := used()
	busy, begun := machineBusy(), time.Now()
	fn()
	u.took = time.Since(begun)
	after, ours := used()
	u.cpu, u.databaseCPU = after[0]-before[0], after[1]-before[1]
	u.others = max(0, float64(machineBusy()-busy-(ours-oursBefore))/float64(u.took*time.Duration(runtime.NumCPU())))
	return u
}

// postgres is a server with PostgreSQL's default settings.
type postgres struct {
	*dbtest.Cluster
	version string // such as "15.14"
	pid     int
}

func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	check(os.Chmod(dir, 0o711))     // if we are root, PostgreSQL runs as another user
	check(os.Setenv("TMPDIR", dir)) // where it keeps its data
	cluster, err := dbtest.StartDurableCluster()
	if err != nil {
		return nil, err
	}
	conn := must(pgx.Connect(ctx, cluster.URL()))
	defer conn.Close(ctx)
	p := &postgres{Cluster: cluster}
	var backend int
	check(conn.QueryRow(ctx, "SELECT pg_backend_pid(), split_part(current_setting('server_version'), ' ', 1)").Scan(&backend, &p.version))
	p.pid = must(must(procfs.NewProc(backend)).Stat()).PPID
	return p, nil
}

// database runs CREATE or DROP DATABASE and returns the database's URL.
func (p *postgres) database(ctx context.Context, command, name, options string) (url string, err error) {
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, fmt.Sprintf("%s DATABASE %s %s", command, name, options))
	return strings.Replace(p.URL(), "/postgres?", "/"+name+"?", 1), err
}
