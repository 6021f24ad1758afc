package cli

import (
	"fmt"

	"turnpike/internal/safehttp"
)

// enoughFiles is how many open files a small server needs: two hundred clients
// with a call each take four hundred, and deliveries, the database and pools of
// idle connections have the rest.
const enoughFiles = 1024

// examineLimits looks at what the system grants to a process that is started
// here. A service can have another limit than a shell.
func examineLimits() []finding {
	limit, known := openFiles()
	if !known {
		return nil
	}
	return []finding{judgeOpenFiles(limit)}
}

func judgeOpenFiles(limit uint64) finding {
	if limit < enoughFiles {
		return finding{"open files", false, fmt.Sprintf("a server that is started here may have %d, one for each connection, and should have %d or more; %s", limit, enoughFiles, safehttp.MoreDescriptors)}
	}
	return finding{"open files", true, "a server that is started here may have enough of them"}
}
