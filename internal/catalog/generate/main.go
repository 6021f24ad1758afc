// Command generate creates the embedded model table from a file of model prices:
//
//	MODEL_PRICES=model-prices.json go generate ./internal/catalog
//
// It keeps what the catalog uses, sorted and with one model per line, so that changes are readable
// as a diff.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"turnpike/internal/catalog/table"
)

func main() {
	out := flag.String("out", "models.json", "file to write")
	flag.Parse()
	if err := run(flag.Arg(0), *out); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	if from == "" {
		return errors.New("missing argument: the file of model prices; with go generate, set MODEL_PRICES to its absolute path")
	}
	source, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	converted, err := convert(source)
	if err != nil {
		return err
	}
	return os.WriteFile(to, converted, 0o644)
}

func convert(source []byte) ([]byte, error) {
	var t table.Table
	if err := json.Unmarshal(source, &t); err != nil {
		return nil, err
	}
	if _, err := time.Parse(time.DateOnly, t.AsOf); err != nil {
		return nil, fmt.Errorf("as_of: %w", err)
	}
	slices.SortFunc(t.Models, func(a, b table.Row) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.ID, b.ID))
	})
	for i := range t.Models {
		row := &t.Models[i]
		normalize(row)
		if i > 0 && t.Models[i-1].Provider == row.Provider && t.Models[i-1].ID == row.ID {
			return nil, fmt.Errorf("duplicate model %s at %s", row.ID, row.Provider)
		}
	}
	inheritDeprecation(t.Models)
	return encode(t)
}

// normalize removes a zero price of cache writes if input has a price: it means that writing costs
// nothing in addition, not that the tokens are free.
func normalize(row *table.Row) {
	if row.USD.CacheWrite == "0" && row.USD.Input != "0" {
		row.USD.CacheWrite = ""
	}
	slices.Sort(row.Capabilities)
}

// encode writes one model per line.
func encode(t table.Table) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\"as_of\":%q,\"models\":[\n", t.AsOf)
	for i, row := range t.Models {
		line, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		b.Write(line)
		if i < len(t.Models)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}
