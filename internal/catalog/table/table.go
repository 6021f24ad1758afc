// Package table is the format of the model table, which the generator writes and the catalog reads.
package table

// Table is the model table.
type Table struct {
	AsOf   string `json:"as_of"` // such as 2026-08-08
	Models []Row  `json:"models"`
}

// Row is a model at one provider. Empty and zero values are unknown.
type Row struct {
	Provider        string   `json:"provider"`
	ID              string   `json:"id"`
	Kind            string   `json:"kind"`
	ContextWindow   int64    `json:"context_window,omitzero"`
	MaxOutputTokens int64    `json:"max_output_tokens,omitzero"`
	USD             USD      `json:"usd"`
	Capabilities    []string `json:"capabilities,omitempty"`
	DeprecatedOn    string   `json:"deprecated_on,omitempty"`
}

// USD is a list price in dollars as plain decimals; "" if unknown.
type USD struct {
	Input        string `json:"input_per_million,omitempty"`
	Output       string `json:"output_per_million,omitempty"`
	CachedInput  string `json:"cached_input_per_million,omitempty"`
	CacheWrite   string `json:"cache_write_per_million,omitempty"`
	PerImage     string `json:"per_image,omitempty"`
	PerSecond    string `json:"per_second,omitempty"`
	PerCharacter string `json:"per_character,omitempty"`
	PerSearch    string `json:"per_search,omitempty"`
}
