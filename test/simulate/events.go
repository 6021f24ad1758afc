package main

import (
	"math"
	"time"
)

// simulation runs events in the order of their virtual time. Events at the same time run in the order in which
// they were added, so a run depends on nothing but its seed.
type simulation struct {
	now    time.Duration
	events heap[event]
	added  int64
}

type event struct {
	at  time.Duration
	seq int64
	do  func()
}

func earlier(a, b event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// after runs do when a time has passed.
func (s *simulation) after(d time.Duration, do func()) {
	s.added++
	s.events.push(event{s.now + d, s.added, do}, earlier)
}

// run runs events until stop reports true, or none is left.
func (s *simulation) run(stop func() bool) {
	for len(s.events) > 0 && !stop() {
		e := s.events.pop(earlier)
		s.now = e.at
		e.do()
	}
}

// machine has cores that its active threads share equally.
type machine struct {
	s     *simulation
	cores float64

	served  float64       // what each thread has had since the start, in nanoseconds
	at      time.Duration // when served was computed
	threads heap[thread]
	added   int64
	next    int64 // the valid timer; later ones replace it
}

type thread struct {
	until float64 // the value of served at which it ends
	seq   int64
	done  func()
}

func endsFirst(a, b thread) bool { return a.until < b.until || a.until == b.until && a.seq < b.seq }

func newMachine(s *simulation, cores int) *machine { return &machine{s: s, cores: float64(cores)} }

// run calls done when a new thread has had its work.
func (m *machine) run(work time.Duration, done func()) {
	m.advance()
	m.added++
	m.threads.push(thread{m.served + float64(work), m.added, done}, endsFirst)
	m.schedule()
}

// rate is the share of a core that each thread has.
func (m *machine) rate() float64 { return min(1, m.cores/float64(len(m.threads))) }

func (m *machine) advance() {
	passed := float64(m.s.now - m.at)
	m.at = m.s.now
	if len(m.threads) > 0 {
		m.served += passed * m.rate()
	}
}

// schedule sets the timer for the thread that ends first.
func (m *machine) schedule() {
	m.next++
	if len(m.threads) == 0 {
		return
	}
	timer := m.next
	left := max(0, m.threads[0].until-m.served) / m.rate()
	m.s.after(time.Duration(math.Ceil(left)), func() {
		if timer == m.next {
			m.finish()
		}
	})
}

func (m *machine) finish() {
	m.advance()
	for len(m.threads) > 0 && m.threads[0].until <= m.served+0.5 { // half a nanosecond for rounding
		t := m.threads.pop(endsFirst)
		m.schedule()
		t.done()
	}
	m.schedule()
}

// process runs a few threads on a machine, and queues the rest, as Go does with goroutines.
type process struct {
	m       *machine
	threads int
	running int
	first   []job // ahead of the queue
	queue   fifo[job]
	worked  time.Duration // CPU of all threads so far
}

type job struct {
	work time.Duration
	done func()
}

func (p *process) run(work time.Duration, done func()) {
	if p.running == p.threads {
		p.queue.push(job{work, done})
		return
	}
	p.start(job{work, done})
}

// runNext is run ahead of the queue.
func (p *process) runNext(work time.Duration, done func()) {
	if p.running == p.threads {
		p.first = append(p.first, job{work, done})
		return
	}
	p.start(job{work, done})
}

func (p *process) start(j job) {
	p.running++
	p.m.run(j.work, func() {
		p.running--
		p.worked += j.work
		if n := len(p.first); n > 0 {
			next := p.first[0]
			p.first = append(p.first[:0], p.first[1:]...)
			p.start(next)
		} else if p.queue.len() > 0 {
			p.start(p.queue.pop())
		}
		j.done()
	})
}

// fifo is a queue.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) push(item T) { q.items = append(q.items, item) }

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) pop() T {
	item := q.items[q.head]
	q.head++
	if q.head > 64 && q.head*2 > len(q.items) {
		q.items, q.head = append(q.items[:0], q.items[q.head:]...), 0
	}
	return item
}

// heap has the least item first.
type heap[T any] []T

func (h *heap[T]) push(item T, less func(a, b T) bool) {
	list := append(*h, item)
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !less(list[i], list[parent]) {
			break
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
	*h = list
}

func (h *heap[T]) pop(less func(a, b T) bool) T {
	list := *h
	least, last := list[0], len(list)-1
	list[0] = list[last]
	var zero T
	list[last] = zero
	list = list[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && less(list[child+1], list[child]) {
			child++
		}
		if !less(list[child], list[i]) {
			break
		}
		list[i], list[child] = list[child], list[i]
		i = child
	}
	*h = list
	return least
}
