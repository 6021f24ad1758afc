package reads

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"image/png"
	"io"
	"net/http"

	"turnpike/internal/budget"
	"turnpike/internal/safehttp"
)

const tooMuch = 2 << 20

func read(r io.Reader, b *budget.Budget, text []byte, limit int64) {
	_, _ = io.ReadAll(r)                          // want `io.ReadAll without a budget`
	_, _ = io.ReadAll(io.LimitReader(r, tooMuch)) // want `io.ReadAll without a budget`
	_, _ = io.ReadAll(io.LimitReader(r, limit))   // want `io.ReadAll without a budget`
	_, _ = io.ReadAll(io.LimitReader(r, 1<<10))
	_, _ = io.ReadAll(b.Charge(r, limit))
	_, _ = io.ReadAll(r) //budget:own it comes from a test
	_ = json.NewDecoder(b.ChargeJSON(r, limit))
	_ = json.NewDecoder(b.Charge(r, limit)) // want `NewDecoder without a budget`
	_ = json.NewDecoder(r)                  // want `NewDecoder without a budget`
	_, _ = new(bytes.Buffer).ReadFrom(r)    // want `ReadFrom without a budget`
	_ = json.NewDecoder(bytes.NewReader(text))
	_, _ = gzip.NewReader(bytes.NewReader(text)) // want `gzip.NewReader without a budget`
}

func decode(r io.Reader, b *budget.Budget) {
	_, _ = png.Decode(r) // want `png.Decode outside of Budget.Decode`
	_ = b.Decode(func() error {
		_, err := png.Decode(r)
		return err
	})
}

var (
	endless = http.Client{} // want `the Transport of an http.Client must be from package safehttp`
	bounded = http.Client{Transport: safehttp.Bounded(nil)}
)

func get() { _, _ = http.Get("http://localhost") } // want `http.Get without a limit`
