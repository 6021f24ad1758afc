package cli

// openFiles is not limited here.
func openFiles() (limit uint64, known bool) { return 0, false }
