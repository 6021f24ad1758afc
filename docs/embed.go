// Package docs embeds the documentation, which the server shows at /docs.
package docs

import "embed"

// Files holds the Markdown pages, and their Mermaid diagrams as images.
//
//go:embed *.md */*.md diagrams/*.svg
var Files embed.FS
