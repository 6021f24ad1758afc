package media

import (
	"slices"
	"testing"

	"turnpike/internal/accounts"
)

func TestStaleFilesOfEndedJobsAreDeleted(t *testing.T) {
	t.Parallel()
	all, pieces := []string{"job", segmentsHolder(&Job{ID: "job"})}, []string{segmentsHolder(&Job{ID: "job"})}
	for _, tt := range []struct {
		kind   Kind
		status Status
		want   []string
	}{
		{Voice, InProgress, nil}, {Voice, Completed, pieces}, {Voice, Failed, all}, {Voice, Cancelled, all},
		{Video, InProgress, nil}, {Video, Completed, nil}, {Video, Failed, all},
		{Images, InProgress, nil}, {Images, Completed, nil}, {Images, Failed, nil}, {Images, Cancelled, nil},
	} {
		was := &Job{ID: "job", Tenant: accounts.Tenant{WorkspaceID: "ws"}, Kind: tt.kind, Status: InProgress}
		now := *was
		now.Status = tt.status
		if got := staleHolders(was, &now); !slices.Equal(got, tt.want) {
			t.Errorf("%s that is %s: %q", tt.kind, tt.status, got)
		}
		now.WorkspaceID = "" // deleted
		for _, gone := range []*Job{nil, &now} {
			if got := staleHolders(was, gone); !slices.Equal(got, all) {
				t.Errorf("%s that was deleted: %q", tt.kind, got)
			}
		}
	}
}
