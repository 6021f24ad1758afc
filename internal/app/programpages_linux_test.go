package app

import (
	"os"
	"testing"

	"github.com/prometheus/procfs"
)

func TestProgramPagesAreReturnedAndComeBack(t *testing.T) {
	resident := func() uint64 {
		t.Helper()
		self, err := procfs.NewProc(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		status, err := self.NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		return status.RssFile
	}
	before := resident()
	if err := dropProgramPages(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after >= before/2 { // this test itself needs few of them
		t.Errorf("%d of %d KB of the program are still resident", after>>10, before>>10)
	}
}
