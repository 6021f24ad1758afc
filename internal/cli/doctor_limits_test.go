package cli

import (
	"strings"
	"testing"
)

func TestDoctorSaysWhenTooFewFilesCanBeOpen(t *testing.T) {
	t.Parallel()
	for limit, ok := range map[uint64]bool{256: false, 1023: false, 1024: true, 1 << 63: true} {
		f := judgeOpenFiles(limit)
		if f.OK != ok || f.Check != "open files" || !ok && !strings.Contains(f.Message, "LimitNOFILE") {
			t.Errorf("%d is %+v", limit, f)
		}
	}
	limit, known := openFiles()
	if got := examineLimits(); known != (len(got) == 1) || known && got[0].OK != (limit >= enoughFiles) {
		t.Errorf("a limit of %d is %+v", limit, got)
	}
}
