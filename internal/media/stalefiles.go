package media

import (
	"context"
	"maps"
	"slices"

	"turnpike/internal/db"
)

// dropStaleFiles deletes files of tasks that finished after their job ended or was
// deleted. jobs are the jobs as they are now.
func (s *Service) dropStaleFiles(ctx context.Context, tx *db.Tx, jobs []*Job, byJob map[string][]*result) error {
	now := make(map[string]*Job, len(jobs))
	for _, j := range jobs {
		now[j.ID] = j
	}
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		was := byJob[id][0].job
		for _, holder := range staleHolders(was, now[id]) {
			if err := s.files.Drop(ctx, tx, was.Tenant, holder); err != nil {
				return err
			}
		}
	}
	return nil
}

// staleHolders returns the holders of files to delete. was is the job when its task
// was worked, and now is nil if the job was deleted since.
func staleHolders(was, now *Job) []string {
	switch {
	case now == nil || now.WorkspaceID == "":
		return []string{was.ID, segmentsHolder(was)}
	case !now.Status.Ended():
		return nil
	case now.Kind == Voice && now.Status == Completed:
		return []string{segmentsHolder(was)}
	case now.Kind == Images || now.Status == Completed:
		return nil // finished files are kept
	}
	return []string{was.ID, segmentsHolder(was)}
}
