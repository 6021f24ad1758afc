package main

import (
	"fmt"
	"time"
)

// The targets for the dashboard.
const (
	maxPageTime  = 100 * time.Millisecond
	maxPageBytes = 100_000
)

func (p *dashboard) targets() (all []target) {
	for _, e := range p.engines {
		last := e.sizes[len(e.sizes)-1]
		slow, large := last.slowest(), last.largest()
		all = append(all,
			target{fmt.Sprintf("the slowest page (%s) with %d deliveries and %d entries in the log on %s, p95", slow.name, last.delivered, last.logged, e.engine),
				millis(slow.p95), "under " + millis(maxPageTime), slow.p95 < maxPageTime},
			target{fmt.Sprintf("the largest page (%s) on %s", large.name, e.engine), fmt.Sprintf("%d KB", large.bytes/1000), fmt.Sprintf("under %d KB", maxPageBytes/1000), large.bytes < maxPageBytes})
	}
	if len(p.engines) == 1 {
		all = append(all, target{"the dashboard on PostgreSQL", "not measured", "as on SQLite", false})
	}
	return all
}

func (p *dashboard) tables(line line) {
	for _, e := range p.engines {
		line("## The dashboard on %s: server time of a page, median and p95", e.engine)
		line("")
		head, rule := "| |", "|---|"
		for _, s := range e.sizes {
			head += fmt.Sprintf(" %d deliveries, %d entries |", s.delivered, s.logged)
			rule += "---|"
		}
		line("%s size |", head)
		line("%s---|", rule)
		for i, page := range e.sizes[len(e.sizes)-1].pages {
			row := "| `" + page.name + "` |"
			for _, s := range e.sizes {
				row += fmt.Sprintf(" %s, %s |", millis(s.pages[i].p50), millis(s.pages[i].p95))
			}
			line("%s %.1f KB |", row, float64(page.bytes)/1000)
		}
		line("")
	}
}

func (p *dashboard) method(line line) {
	line("- The dashboard: one workspace with %d keys, %d projects, %d endpoints and a month of usage by the hour; deliveries, of which one in fifty has failed, and entries of the log are added to the same database from size to size. Each page is opened %d times, one after the other, by a client that is signed in, and the time is that until its last byte has come. What is filtered by something that has no index ends after a bounded look with a way to go on.",
		pagesKeys, pagesProjects, pagesEndpoints, pageViews)
}
