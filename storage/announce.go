package storage

// This file tells who waits for work that there is some: after the commit that
// made it, and once for however much there is.

// queued is an event that became pending at a sink, or was discarded there; 0: the
// sink may go on.
type queued struct {
	sink  string
	event uint64
}

// Ready gives a token after lanes got ready jobs; TakeReady names them.
func (s *Store) Ready() <-chan struct{} { return s.wake }

// TakeReady gives the lanes that got ready jobs since the last call. A job
// committed ready after a claim found its lane empty is always named later.
func (s *Store) TakeReady() []LaneID {
	s.mu.Lock()
	defer s.mu.Unlock()
	lanes := make([]LaneID, 0, len(s.ready))
	for lane := range s.ready {
		lanes = append(lanes, lane)
	}
	clear(s.ready)
	return lanes
}

// Queued gives a token after events became pending or were discarded; TakeQueued
// names their sinks.
func (s *Store) Queued() <-chan struct{} { return s.deliver }

// TakeQueued gives the sinks at which events became pending or were discarded
// since the last call, each with the lowest number of these; 0: a sink that was
// stopped may go on.
func (s *Store) TakeQueued() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sinks := s.queued
	s.queued = map[string]uint64{}
	return sinks
}

// announce tells what a group that is durable has made.
func (s *Store) announce(tx *Tx) {
	if len(tx.ready) == 0 && len(tx.queued) == 0 {
		return
	}
	s.mu.Lock()
	for _, lane := range tx.ready {
		s.ready[lane] = struct{}{}
	}
	for _, q := range tx.queued {
		if first, ok := s.queued[q.sink]; !ok || q.event < first {
			s.queued[q.sink] = q.event
		}
	}
	s.mu.Unlock()
	if len(tx.ready) > 0 {
		signal(s.wake)
	}
	if len(tx.queued) > 0 {
		signal(s.deliver)
	}
}

// signal leaves a token, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
