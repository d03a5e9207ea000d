package engine

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"semel/storage"
)

// scheduler decides which job starts next. It lives in one goroutine; workers
// tell it over news when they are free and when their outcome is durable. A
// worker is free for the next job while the disk syncs the last one's outcome,
// so that neither waits for the other.
//
// A host is asked for work only when it may be: it stands in queue by the time
// of its next start, or in parked while no proxy of its lanes has room, or in
// neither while its attempts are at its limit. So a slow host holds back no
// other, a paused proxy holds back no host's other lanes, and choosing costs
// O(log hosts), but for the parked ones, each of which is looked at again when
// a proxy may have room.
type scheduler struct {
	engine *Engine
	once   bool

	enqueued chan struct{}    // closed when all targets have become jobs
	offered  bool             // that has been heard
	attempts chan *attempt    // to workers
	news     chan news        // from workers
	hosts    map[string]*host // with lanes or attempts
	queue    hostQueue
	parked   map[*host]struct{}
	healthAt uint64    // health.version when parked hosts were last looked at
	probe    time.Time // when they are looked at again if that stays; zero: never

	working int // attempts that fetch or parse: at most Options.Workers
	open    int // jobs claimed and not committed: at most twice as many
}

// host is one host's part of the queue.
type host struct {
	name     string
	lanes    map[storage.LaneID]lane // that may have ready jobs
	inFlight int
	at       time.Time // key of queue
	place    int       // in queue; -1: not there
}

// lane is what the choice of a job looks at.
type lane struct {
	src     *Source
	country string
}

// news is a worker's word: first that it is free, its host no longer asked and
// held back if it wanted that; then that the outcome is committed.
type news struct {
	host      string
	committed bool
	err       error // the store failed
}

func newScheduler(e *Engine, once bool) *scheduler {
	return &scheduler{
		engine: e, once: once,
		enqueued: make(chan struct{}),
		attempts: make(chan *attempt, 2*e.opts.Workers),
		news:     make(chan news, 2*e.opts.Workers),
		hosts:    map[string]*host{},
		parked:   map[*host]struct{}{},
	}
}

// run hands out jobs until there is nothing left to do (once) or stop ends,
// and then until no attempt is under way.
func (s *scheduler) run(stop context.Context) error {
	attempts, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer close(s.attempts)
	for range 2 * s.engine.opts.Workers { // one half works while the other commits
		workers.Go(s.work)
	}
	var lanes []storage.LaneID
	if err := s.engine.opts.Store.View(func(tx *storage.Tx) error {
		lanes = tx.ReadyLanes()
		return nil
	}); err != nil {
		return err
	}
	for stop.Err() == nil {
		if err := s.activate(append(lanes, s.engine.opts.Store.TakeReady()...)); err != nil {
			return s.drain(cancel, err)
		}
		lanes = nil
		for name := range s.engine.pace.takeLeft() {
			if h := s.hosts[name]; h != nil {
				s.enter(h)
			}
		}
		if err := s.dispatch(stop, attempts); err != nil {
			return s.drain(cancel, err)
		}
		done, err := s.done()
		if done || err != nil {
			return s.drain(cancel, err)
		}
		if err := s.sleep(stop); err != nil {
			return s.drain(cancel, err)
		}
	}
	return s.drain(cancel, s.engine.opts.Store.Err())
}

// drain waits for the attempts under way: for Grace, then it cuts them short.
// A store that has failed is not waited for.
func (s *scheduler) drain(cancel context.CancelCauseFunc, err error) error {
	grace := s.engine.opts.Grace
	if err != nil {
		grace = 0
	}
	timer := time.AfterFunc(grace, func() { cancel(errStopping) })
	defer timer.Stop()
	for s.open > 0 {
		if n := <-s.news; s.hear(n) != nil && err == nil {
			err = n.err
			cancel(errStopping)
		}
	}
	return err
}

// done reports whether RunOnce has nothing left that it could do.
func (s *scheduler) done() (bool, error) {
	if !s.once || s.open > 0 {
		return false, nil
	}
	select {
	case <-s.enqueued:
	default:
		return false, nil
	}
	left := false
	err := s.engine.opts.Store.View(func(tx *storage.Tx) (err error) {
		left, err = s.engine.workable(tx)
		return err
	})
	return !left, err
}

// sleep waits until something may have changed.
func (s *scheduler) sleep(stop context.Context) error {
	timer := time.NewTimer(s.untilNext(s.engine.now()))
	defer timer.Stop()
	enqueued := s.enqueued
	if s.offered {
		enqueued = nil // from now on only the others wake
	}
	select {
	case <-stop.Done():
	case <-enqueued:
		s.offered = true
	case <-s.engine.opts.Store.Ready():
	case <-s.engine.pace.leaving:
	case <-timer.C:
	case n := <-s.news:
		if err := s.hear(n); err != nil {
			return err
		}
	}
	return s.hearAll()
}

// hearAll takes the news that came meanwhile, so that one claim serves them
// all.
func (s *scheduler) hearAll() error {
	for {
		select {
		case n := <-s.news:
			if err := s.hear(n); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// untilNext is how long nothing can change by the clock alone.
func (s *scheduler) untilNext(now time.Time) time.Duration {
	wait := time.Hour
	if len(s.queue) > 0 && s.free() > 0 {
		wait = s.queue[0].at.Sub(now)
	}
	if !s.engine.FullSince().IsZero() {
		wait = roomWait
	}
	if !s.probe.IsZero() && len(s.parked) > 0 {
		wait = min(wait, s.probe.Sub(now))
	}
	return max(wait, 0)
}

// activate adds lanes that got ready jobs. Lanes of sources that are not ours
// (gone from the config, or not named in this call) stay as they are.
func (s *scheduler) activate(lanes []storage.LaneID) error {
	if len(lanes) == 0 {
		return nil
	}
	if err := s.engine.endPauses(); err != nil {
		return err
	}
	return s.engine.opts.Store.View(func(tx *storage.Tx) error {
		for _, id := range lanes {
			l, err := tx.Lane(id)
			if err != nil {
				return err
			}
			src := s.engine.sources[l.Source]
			if src == nil {
				continue
			}
			h := s.hosts[l.Host]
			if h == nil {
				h = &host{name: l.Host, lanes: map[storage.LaneID]lane{}, place: -1}
				s.hosts[l.Host] = h
			}
			h.lanes[id] = lane{src, l.Country}
			delete(s.parked, h) // a new lane may have a proxy with room
			s.enter(h)
		}
		return nil
	})
}

// enter puts a host into the queue if it has lanes and room.
func (s *scheduler) enter(h *host) {
	_, parked := s.parked[h]
	if parked || len(h.lanes) == 0 || s.engine.pace.room(h.name) == 0 {
		return
	}
	h.at = s.engine.pace.at(h.name)
	if h.place >= 0 {
		heap.Fix(&s.queue, h.place)
		return
	}
	heap.Push(&s.queue, h)
}

// dispatch claims jobs for all free workers, as far as pacing lets it.
func (s *scheduler) dispatch(stop, attempts context.Context) error {
	s.unpark()
	for stop.Err() == nil && s.engine.FullSince().IsZero() {
		plans := s.plan(s.engine.now())
		if len(plans) == 0 {
			return nil
		}
		if err := s.claim(stop, attempts, plans); err != nil {
			return err
		}
	}
	return nil
}

// unpark looks again at hosts whose proxies had no room, if that may have
// changed.
func (s *scheduler) unpark() {
	now, version := s.engine.now(), s.engine.health.version()
	next := s.engine.health.nextProbe(now)
	if s.probe.IsZero() || !next.IsZero() && next.Before(s.probe) {
		s.probe = next // of a pause that has begun since
	}
	if version == s.healthAt && !ended(s.probe, now) {
		return
	}
	s.healthAt, s.probe = version, next
	for h := range s.parked {
		delete(s.parked, h)
		s.enter(h)
	}
}

// plan is what to claim for one host, and on whose account.
type plan struct {
	host    *host
	group   storage.ClaimGroup
	via     map[storage.LaneID]string // the proxy chosen for each lane
	reserve []exit                    // on which one place each was taken beforehand
}

// free is how many jobs may be claimed.
func (s *scheduler) free() int {
	workers := s.engine.opts.Workers
	return min(workers-s.working, 2*workers-s.open)
}

// plan takes hosts out of the queue that may start now, until the free workers
// are spoken for.
func (s *scheduler) plan(now time.Time) []plan {
	free := s.free()
	var plans []plan
	for free > 0 && len(s.queue) > 0 {
		h := s.queue[0]
		if h.at.After(now) {
			break // nobody may start yet
		}
		heap.Pop(&s.queue)
		p, ok := s.planHost(h, free, now)
		if !ok {
			s.parked[h] = struct{}{}
			continue
		}
		p.group.Max = s.engine.pace.begin(h.name, p.group.Max, now)
		if p.group.Max == 0 { // gated since it was put here, or a redirect has led there just now
			s.giveBack(p, now)
			s.enter(h)
			continue
		}
		free -= p.group.Max
		plans = append(plans, p)
	}
	return plans
}

// giveBack ends what a plan has reserved of proxies.
func (s *scheduler) giveBack(p plan, now time.Time) {
	for _, x := range p.reserve {
		s.engine.health.end(x, now)
	}
}

// planHost chooses the lanes of a host that have a proxy with room, and the
// proxy for each. Where there is none the host has not had its turn.
func (s *scheduler) planHost(h *host, free int, now time.Time) (plan, bool) {
	p := plan{host: h, group: storage.ClaimGroup{Max: free}, via: map[storage.LaneID]string{}}
	for id, l := range h.lanes {
		via, slots := s.engine.chooseExit(l, now)
		if slots == 0 {
			continue
		}
		if slots < s.engine.opts.Workers { // one at a time, since any lane of the group may get it
			p.group.Max = 1
			p.reserve = append(p.reserve, via)
			s.engine.health.begin(via, now)
		}
		p.group.Lanes = append(p.group.Lanes, id)
		p.via[id] = via.proxy
	}
	return p, len(p.group.Lanes) > 0
}

// claim takes the planned jobs in one transaction and starts their attempts.
// Where the disk is full it waits for room, or for the stop.
func (s *scheduler) claim(stop, attempts context.Context, plans []plan) error {
	groups := make([]storage.ClaimGroup, len(plans))
	for i := range plans {
		groups[i] = plans[i].group
	}
	var jobs [][]*storage.Job
	e := s.engine
	err := e.update(stop, func(tx *storage.Tx) (err error) {
		jobs, err = tx.ClaimJobs(e.opts.Owner, e.opts.Lease, groups)
		return err
	})
	if errors.Is(err, storage.ErrFull) {
		return nil // it stops
	}
	if err != nil {
		return fmt.Errorf("claiming jobs: %w", err)
	}
	unused := false
	for i, p := range plans {
		for _, j := range jobs[i] {
			s.start(attempts, p.host, j, p.via[j.Lane])
		}
		s.giveBack(p, e.now())
		unused = unused || len(jobs[i]) < len(p.reserve)
		e.pace.release(p.host.name, p.group.Max-len(jobs[i]))
		if len(jobs[i]) < p.group.Max { // these lanes are empty until they are named again
			for _, lane := range p.group.Lanes {
				delete(p.host.lanes, lane)
			}
		}
		s.enter(p.host)
		s.dropIfIdle(p.host)
	}
	if unused { // others were parked for what nobody took
		s.unpark()
	}
	return nil
}

func (s *scheduler) start(attempts context.Context, h *host, j *storage.Job, proxy string) {
	e := s.engine
	h.inFlight++
	s.working++
	s.open++
	a := e.hold(attempts, j, e.sources[j.Key.Source], proxy)
	e.health.begin(a.exit(), a.started)
	a.lane = h.name
	s.attempts <- a // has room for all that may be open
}

// work is one worker. It stays for many attempts, since the stack that a parser
// needs is dear to grow anew.
func (s *scheduler) work() {
	for a := range s.attempts {
		outcome, err := a.work()
		s.engine.health.end(a.exit(), s.engine.now())
		s.news <- news{host: a.lane}
		if err == nil {
			err = a.commit(outcome)
		}
		s.engine.letGo(a)
		s.news <- news{committed: true, err: err}
	}
}

// hear books a worker's news. Its error is the store's.
func (s *scheduler) hear(n news) error {
	if n.committed {
		s.open--
		return n.err
	}
	s.working--
	h := s.hosts[n.host]
	h.inFlight--
	s.engine.pace.release(n.host, 1)
	s.enter(h)
	s.dropIfIdle(h)
	return nil
}

func (s *scheduler) dropIfIdle(h *host) {
	if len(h.lanes) > 0 || h.inFlight > 0 {
		return
	}
	if h.place >= 0 {
		heap.Remove(&s.queue, h.place)
	}
	delete(s.parked, h)
	delete(s.hosts, h.name)
}

// hostQueue is a heap of hosts by their next start, then by name.
type hostQueue []*host

func (q hostQueue) Len() int { return len(q) }
func (q hostQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].name < q[j].name
}
func (q hostQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *hostQueue) Push(x any) {
	h := x.(*host)
	h.place = len(*q)
	*q = append(*q, h)
}
func (q *hostQueue) Pop() any {
	old := *q
	h := old[len(old)-1]
	h.place = -1
	*q = old[:len(old)-1]
	return h
}
