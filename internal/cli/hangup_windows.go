package cli

// hasTerminal reports whether the process belongs to a terminal that is open.
// Windows has no SIGHUP.
func hasTerminal() bool { return false }
