package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"turnpike/internal/ids"
)

// object is a JSON object of the API, for people: its strings can't control a
// terminal.
type object map[string]any

// resource describes a kind of object of the API. The commands list, show and
// cancel are the same for all.
type resource struct {
	name        string // of the group of commands: "jobs"
	noun        string // "a job"
	argument    string // in the usage: "JOB_ID"
	collections []collection
	filters     []filter
	header      string // of the list, with tabs between the columns
	row         string // template of a line of the list
	attached    *attachment
	templates   []string // of the details
}

// collection is where the API has the objects with a prefix.
type collection struct {
	kind   string // value of --kind, if the resource has several
	prefix string
	path   string
}

// filter is a flag of list that becomes a query parameter.
type filter struct {
	flag, usage string
	values      []string // that the shell completes
	strict      bool     // other values are an error of usage
	isTime      bool
}

// attachment is another object that show adds to the first, as a field.
type attachment struct {
	field string
	flag  string // usage of the flag that asks for it; empty if it is always added
	fetch func(ctx context.Context, c *apiClient, path string, o object) (json.RawMessage, error)
}

const maxListed = 10_000

// path returns the path of an object. It rejects what can't be an ID.
func (r *resource) path(id string) (string, error) {
	prefixes := make([]string, len(r.collections))
	for i, col := range r.collections {
		if ids.Valid(col.prefix, id) {
			return col.path + "/" + id, nil
		}
		prefixes[i] = col.prefix
	}
	return "", fmt.Errorf("%q is not the ID of %s, which starts with %s; to see IDs, run: turnpike %s list", id, r.noun, strings.Join(prefixes, " or "), r.name)
}

// withObject makes run the action of cmd, whose first argument is the ID of an object.
func (r *resource) withObject(e *env, cmd *cobra.Command, run func(ctx context.Context, c *apiClient, path string, args []string) error) *cobra.Command {
	return e.withClient(cmd, func(ctx context.Context, c *apiClient, args []string) error {
		path, err := r.path(args[0])
		if err != nil {
			return wrongUsage(cmd, err)
		}
		return run(ctx, c, path, args)
	})
}

// list returns the command that lists objects, newest first.
func (r *resource) list(e *env, example string) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List " + r.name + ", newest first", Example: example}
	var kinds []string
	for _, col := range r.collections {
		kinds = append(kinds, col.kind)
	}
	kind := new(string)
	if len(kinds) > 1 {
		kind = cmd.Flags().String("kind", "", "only this kind: "+strings.Join(kinds, ", "))
		completeFlag(cmd, "kind", kinds)
	}
	values := make([]*string, len(r.filters))
	for i, f := range r.filters {
		values[i] = cmd.Flags().String(f.flag, "", f.usage)
		completeFlag(cmd, f.flag, f.values)
	}
	limit := cmd.Flags().Int("limit", 20, fmt.Sprintf("maximum number to show, up to %d", maxListed))
	return e.withClient(cmd, func(ctx context.Context, c *apiClient, _ []string) error {
		from := r.collections
		if *kind != "" {
			i := slices.Index(kinds, *kind)
			if i < 0 {
				return wrongUsage(cmd, fmt.Errorf("--kind must be one of %s", strings.Join(kinds, ", ")))
			}
			from = from[i : i+1]
		}
		q, err := r.query(values)
		if err == nil && (*limit < 1 || *limit > maxListed) {
			err = fmt.Errorf("--limit must be from 1 to %d", maxListed)
		}
		if err != nil {
			return wrongUsage(cmd, err)
		}
		objects, more, err := e.listAll(ctx, c, from, q, *limit)
		if err != nil {
			return err
		}
		return r.printList(e, objects, more)
	})
}

// completeFlag lets the shell complete the values of a flag.
func completeFlag(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

func (r *resource) query(values []*string) (url.Values, error) {
	q := url.Values{}
	for i, f := range r.filters {
		value := *values[i]
		switch {
		case value == "":
			continue
		case f.strict && !slices.Contains(f.values, value):
			return nil, fmt.Errorf("--%s must be one of %s", f.flag, strings.Join(f.values, ", "))
		case f.isTime:
			at, err := parseTime(value, time.Now())
			if err != nil {
				return nil, fmt.Errorf("--%s: %w", f.flag, err)
			}
			value = strconv.FormatInt(at.Unix(), 10)
		}
		q.Set(f.flag, value)
	}
	return q, nil
}

// listAll merges the newest objects of the collections. Of several, it skips
// those that the key may not read.
func (e *env) listAll(ctx context.Context, c *apiClient, from []collection, q url.Values, limit int) (all []json.RawMessage, more bool, err error) {
	all = []json.RawMessage{}
	var denied []error
	for _, col := range from {
		page, rest, err := c.list(ctx, col.path, maps.Clone(q), limit)
		switch {
		case err != nil && (len(from) == 1 || !lacksScope(err)):
			return nil, false, err
		case err != nil:
			denied = append(denied, err)
			fmt.Fprintf(e.err, "Skipped the kind %s: %v\n", col.kind, err)
		}
		all, more = append(all, page...), more || rest
	}
	if len(denied) == len(from) {
		return nil, false, denied[0]
	}
	if len(from) > 1 {
		// An ID sorts by time after its prefix.
		slices.SortFunc(all, func(a, b json.RawMessage) int {
			_, first, _ := strings.Cut(idOf(a), "_")
			_, second, _ := strings.Cut(idOf(b), "_")
			return cmp.Compare(second, first)
		})
	}
	if len(all) > limit {
		all, more = all[:limit], true
	}
	return all, more, nil
}

func idOf(raw json.RawMessage) string {
	var o struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &o) // printing it reports the error
	return o.ID
}

func (r *resource) printList(e *env, objects []json.RawMessage, more bool) error {
	if len(objects) == 0 && !e.asJSON {
		fmt.Fprintf(e.err, "No %s match these filters.\n", r.name)
		return nil
	}
	if err := printObjects(e, objects, r.header, r.row); err != nil {
		return err
	}
	if more && !e.asJSON {
		fmt.Fprintf(e.err, "Showing the first %d. To see more, use --limit.\n", len(objects))
	}
	return nil
}

// show completes the command that shows one object.
func (r *resource) show(e *env, cmd *cobra.Command) *cobra.Command {
	cmd.Use, cmd.Args = "show "+r.argument, cobra.ExactArgs(1)
	attach := r.attached != nil
	if attach && r.attached.flag != "" {
		cmd.Flags().BoolVar(&attach, r.attached.field, false, r.attached.flag)
	}
	return r.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, _ []string) error {
		raw, o, err := c.fetch(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		if attach {
			value, err := r.attached.fetch(ctx, c, path, o)
			if err != nil {
				return err
			}
			raw = withField(raw, r.attached.field, value)
			if o, err = decode(raw); err != nil {
				return err
			}
		}
		return r.print(e, raw, o)
	})
}

func (r *resource) print(e *env, raw json.RawMessage, o object) error {
	if e.asJSON {
		return e.printJSON(raw)
	}
	return e.render(e.out, o, r.templates...)
}

func withField(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	fields := strings.TrimSuffix(strings.TrimSpace(string(object)), "}")
	return json.RawMessage(fmt.Sprintf("%s,%q:%s}", fields, name, value))
}

// cancel completes the command that cancels an object. The command next waits
// for it to end.
func (r *resource) cancel(e *env, cmd *cobra.Command, next string) *cobra.Command {
	cmd.Use, cmd.Args = "cancel "+r.argument, cobra.ExactArgs(1)
	return r.withObject(e, cmd, func(ctx context.Context, c *apiClient, path string, args []string) error {
		raw, o, err := c.fetch(ctx, http.MethodPost, path+"/cancel", struct{}{})
		if err != nil {
			return err
		}
		if o.str("status") == "cancelling" {
			return e.report(raw, "%s is %s; work in progress finishes first. To wait for it: turnpike %s %s %s\n",
				args[0], e.status("cancelling"), r.name, next, args[0])
		}
		return e.report(raw, "Canceled %s.\n", args[0])
	})
}

// watched is an object that a command waits for.
type watched struct {
	path     string
	label    string // of the progress bar
	hint     string // for when the command stops waiting
	timeout  time.Duration
	started  bool // the server has returned it before
	ended    func(o object) bool
	progress func(o object) (done, total int64)
}

// watch polls the object until it has ended, and shows its progress.
func (w watched) watch(ctx context.Context, e *env, c *apiClient) (raw json.RawMessage, o object, err error) {
	polling := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		polling, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	b := newBackoff()
	if w.started {
		b.lastOK = time.Now()
	}
	var bar *progress
	for {
		if raw, o, err = c.fetch(polling, http.MethodGet, w.path, nil); err == nil {
			if w.ended(o) {
				return raw, o, nil
			}
			b.lastOK = time.Now()
			done, total := w.progress(o)
			if bar == nil {
				bar = newProgress(e.err, w.label, total)
				defer bar.Done()
			}
			bar.Set(done)
		} else if polling.Err() == nil && !b.retryable(err) {
			return nil, nil, err
		}
		b.wait(polling, err)
		switch {
		case ctx.Err() != nil:
			return nil, nil, errors.New("stopped waiting; " + w.hint)
		case polling.Err() != nil:
			return nil, nil, exitError{code: 3, err: fmt.Errorf("not finished after %v; %s", w.timeout, w.hint)}
		}
	}
}

func decode(raw json.RawMessage) (object, error) {
	var o map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("decode the response: %w", err)
	}
	return sanitize(o).(object), nil
}

// sanitize converts decoded JSON: strings become visible, whole numbers int64,
// and other numbers keep their digits.
func sanitize(v any) any {
	switch v := v.(type) {
	case string:
		return visible(v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
	case []any:
		for i := range v {
			v[i] = sanitize(v[i])
		}
	case map[string]any:
		o := make(object, len(v))
		for name, value := range v {
			o[visible(name)] = sanitize(value)
		}
		return o
	}
	return v
}

func (o object) str(name string) string { s, _ := o[name].(string); return s }

// num returns a field that is a whole number, or 0.
func (o object) num(name string) int64 { n, _ := o[name].(int64); return n }

func (o object) sub(name string) object { sub, _ := o[name].(object); return sub }

// list returns a field that is an array of objects.
func (o object) list(name string) (all []object) {
	values, _ := o[name].([]any)
	for _, v := range values {
		if sub, ok := v.(object); ok {
			all = append(all, sub)
		}
	}
	return all
}

// endError returns nil for an object that has completed.
func (o object) endError() error {
	switch failure := o.sub("error"); {
	case o.str("status") == "completed":
		return nil
	case failure != nil:
		return fmt.Errorf("%s is %s: %s", o.str("id"), o.str("status"), failureText(failure))
	}
	return fmt.Errorf("%s is %s", o.str("id"), o.str("status"))
}
