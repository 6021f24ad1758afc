package main

import (
	"fmt"
	"slices"
	"time"
)

// The targets for jobs.
const (
	minPictureRatio = 0.5
	maxBesideAdded  = time.Second
	maxVoiceMB      = 150.0
)

func (m *media) targets() (all []target) {
	for i, name := range m.engines {
		all = append(all, atLeast("pictures of waiting batches on "+name+" against a loop that only draws", ratioOf(m.pictures[i+1].samples, m.pictures[0].samples, mediaSample.rate), minPictureRatio))
	}
	for _, s := range m.beside {
		added := s.added()
		all = append(all, target{fmt.Sprintf("added to a job beside a workspace with %d waiting, %s, on %s, longest", busyJobs, s.kind(), s.engine), millis(added), "at most " + millis(maxBesideAdded), added <= maxBesideAdded})
	}
	for _, s := range m.voice {
		all = append(all, target{fmt.Sprintf("memory while a text of %d characters is read on %s", voiceCharacters, s.engine), megabytes(s.peak), "under " + megabytes(maxVoiceMB), s.peak < maxVoiceMB})
	}
	if len(m.engines) == 1 {
		all = append(all, target{"jobs on PostgreSQL", "not measured", "as on SQLite", false})
	}
	return all
}

func (s *besideSeries) kind() string {
	if s.model == 0 {
		return "whose pictures take no time"
	}
	return fmt.Sprintf("whose pictures take %v each", s.model)
}

func (m *media) tables(line line) {
	line("## Jobs, %d pictures of the usual size (1024x1024) in %d batches of %d workspaces", picturesInAll, pictureBatches, pictureWorkspaces)
	line("")
	line("| | pictures/s | ratio | rounds | CPU per picture | of its database | others |")
	line("|---|---|---|---|---|---|---|")
	for _, s := range m.pictures {
		store := "–"
		if per := figure(s.samples, func(x mediaSample) float64 { return float64(x.storeCPU) / float64(x.count) }); per > 0 {
			store = fmt.Sprintf("%.0f µs", per/1e3)
		}
		line("| %s | %.0f | %.2f | %s | %.0f µs | %s | %.0f %% |", s.subject, figure(s.samples, mediaSample.rate), ratioOf(s.samples, m.pictures[0].samples, mediaSample.rate),
			joined(s.samples, func(x mediaSample) string { return fmt.Sprintf("%.0f", x.rate()) }),
			figure(s.samples, func(x mediaSample) float64 { return float64(x.cpu) / float64(x.count) })/1e3, store, 100*figure(s.samples, func(x mediaSample) float64 { return x.others }))
	}
	line("")
	line("## Jobs, beside a workspace with %d waiting", busyJobs)
	line("")
	line("| | the neighbour's pictures take | median | longest | alone, median | longest | left of the neighbour's |")
	line("|---|---|---|---|---|---|---|")
	for _, s := range m.beside {
		line("| Turnpike, %s | %v | %s | %s | %s | %s | %d |", s.engine, s.model, millis(median(s.beside)), millis(slices.Max(s.beside)), millis(median(s.alone)), millis(slices.Max(s.alone)), s.left)
	}
	line("")
	line("## Jobs, a text of %d characters read aloud", voiceCharacters)
	line("")
	line("| | time | file | memory before | highest |")
	line("|---|---|---|---|---|")
	for _, s := range m.voice {
		line("| Turnpike, %s | %s | %s | %s | %s |", s.engine, seconds(s.took), megabytes(float64(s.bytes)/1e6), megabytes(s.idle), megabytes(s.peak))
	}
	line("")
}

func (m *media) method(line line) {
	line("- Jobs: test keys, so that the simulator makes everything, at once unless it is said. Batches are made through the API by a server that works one picture at a time, which is then stopped; a server with the default settings is started on the same data. The clock begins when that one takes requests, by when it is at work: the pictures that wait at that moment are counted, and the time is that to the end of the last batch. Making the batches is not in it; every picture is a file on disk, a row and an entry in its batch before it counts.")
	line("- The drawing loop is a process with a worker for each core that calls the same code for the same pictures and keeps none of them.")
	line("- Beside a busy workspace: another one orders %d jobs of one picture, one after the other, and asks every %v for its end. Alone is the same server with nothing else to do; what is added is the longest of them less the median alone.", lateJobs, latePoll)
	line("- A text: at 8 kHz, on a server that has done nothing else; memory is the highest resident size of its life. Every piece is a file, and so is the whole.")
	line("- Jobs wait for quiet, and are measured again, for %v in all.", mediaPatience)
}
