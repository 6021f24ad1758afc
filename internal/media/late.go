package media

import (
	"context"
	"maps"
	"slices"

	"turnpike/internal/db"
)

// dropLate lets go of files that came when their job had ended or was deleted,
// which takes no notice of tasks under way: nobody asks for them any more. The
// jobs are as they are now.
func (s *Service) dropLate(ctx context.Context, tx *db.Tx, jobs []*Job, byJob map[string][]*result) error {
	now := make(map[string]*Job, len(jobs))
	for _, j := range jobs {
		now[j.ID] = j
	}
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		was := byJob[id][0].job
		for _, holder := range lateHolders(was, now[id]) {
			if err := s.files.Drop(ctx, tx, was.Owner(), holder); err != nil {
				return err
			}
		}
	}
	return nil
}

// lateHolders are what holds the files of a job that nobody wants. It was as
// it was when a task of it was worked; nil is one that was deleted, and so is
// one that is nobody's.
func lateHolders(was, now *Job) []string {
	switch {
	case now == nil || now.WorkspaceID == "":
		return []string{was.ID, segmentsOf(was)}
	case !now.Status.Ended():
		return nil
	case now.Kind == Voice && now.Status == Completed:
		return []string{segmentsOf(was)}
	case now.Kind == Images || now.Status == Completed:
		return nil // what was made stays
	}
	return []string{was.ID, segmentsOf(was)}
}
