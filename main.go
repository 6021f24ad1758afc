// Turnpike is the self-hosted AI API platform in one binary.
package main

import (
	"os"

	"turnpike/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
