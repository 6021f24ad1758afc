// Package docs embeds the documentation, which the server shows at /docs.
package docs

import "embed"

// Files holds the Markdown pages.
//
//go:embed *.md */*.md
var Files embed.FS
