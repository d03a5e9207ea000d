package storage

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
)

// DispatchFilter says which dispatches are meant; the zero value: all.
type DispatchFilter struct {
	Sink     string          // "": any
	States   []DispatchState // nil: any
	Types    []string        // of the event; nil: any
	From, To time.Time       // of the event's commit, From included and To not; zero: no bound
}

// listed reports whether the indexes of states name all that is meant.
func (f *DispatchFilter) listed() bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s DispatchState) bool {
		_, _, ok := s.index()
		return !ok
	})
}

func (f *DispatchFilter) means(d *Dispatch) bool {
	return (f.Sink == "" || d.Sink == f.Sink) && (f.States == nil || slices.Contains(f.States, d.State))
}

func (f *DispatchFilter) meansEvent(e *Event) bool {
	return (f.Types == nil || slices.Contains(f.Types, e.Type)) &&
		!e.Timestamp.Before(f.From) && (f.To.IsZero() || e.Timestamp.Before(f.To))
}

// DispatchCursor is the place of a dispatch in the order of events and, for one
// event, of sinks. The zero value stands before all.
type DispatchCursor struct {
	Event uint64
	Sink  string
}

func (c DispatchCursor) compare(to DispatchCursor) int {
	return cmp.Or(cmp.Compare(c.Event, to.Event), cmp.Compare(c.Sink, to.Sink))
}

// Dispatches calls fn with up to limit dispatches behind a place, and the event
// of each, which must not be changed. It gives the place to go on from, zero when
// there are no more. It looks at a bounded number of records, so there may be more
// though it has found less than limit, or nothing: at those that are pending or
// dead, where only such are meant, else at all.
func (tx *Tx) Dispatches(f DispatchFilter, after DispatchCursor, limit int, fn func(*Event, *Dispatch) error) (DispatchCursor, error) {
	dispatches := tx.allDispatches(after)
	if f.listed() {
		dispatches = tx.listedDispatches(f, after)
	}
	seen, event := 0, &Event{}
	for d, err := range dispatches {
		if err != nil || limit == 0 || seen == entryRows {
			return after, err
		}
		seen++
		after = DispatchCursor{d.Event, d.Sink}
		if !f.means(d) {
			continue
		}
		if event.Seq != d.Event {
			if event, err = tx.eventOf(d.Event); err != nil {
				return after, err
			}
		}
		if !f.meansEvent(event) {
			continue
		}
		limit--
		if err := fn(event, d); err != nil {
			return after, err
		}
	}
	return DispatchCursor{}, nil
}

func (tx *Tx) allDispatches(after DispatchCursor) iter.Seq2[*Dispatch, error] {
	return func(yield func(*Dispatch, error) bool) {
		c := tx.bucket(bucketDispatch).Cursor()
		from := dispatchKey(after.Event, after.Sink)
		k, v := c.Seek(from)
		if bytes.Equal(k, from) {
			k, v = c.Next()
		}
		for ; k != nil && yield(decodeDispatch(k, v)); k, v = c.Next() {
		}
	}
}

// listedDispatches are those in the indexes of the states that a filter names,
// and of its sink where it names one.
func (tx *Tx) listedDispatches(f DispatchFilter, after DispatchCursor) iter.Seq2[*Dispatch, error] {
	return func(yield func(*Dispatch, error) bool) {
		listings := tx.listings(f, after)
		for len(listings) > 0 {
			i := firstListing(listings)
			if !yield(tx.Dispatch(listings[i].at.Event, listings[i].at.Sink)) {
				return
			}
			if !listings[i].next() {
				listings = slices.Delete(listings, i, i+1)
			}
		}
	}
}

// listing is a place among the events that are pending or dead at one sink.
type listing struct {
	cursor *bolt.Cursor
	at     DispatchCursor
}

// listings stand at the first dispatch each behind a place.
func (tx *Tx) listings(f DispatchFilter, after DispatchCursor) (listings []*listing) {
	for _, state := range f.States {
		id, _, _ := state.index()
		for _, sink := range tx.listedSinks(state) {
			if f.Sink != "" && sink != f.Sink {
				continue
			}
			l := &listing{tx.bucket(id).Cursor(), DispatchCursor{after.Event, sink}}
			if k, _ := l.cursor.Seek(outboxKey(sink, after.Event)); l.move(k) && (l.at.compare(after) > 0 || l.next()) {
				listings = append(listings, l)
			}
		}
	}
	return listings
}

func firstListing(listings []*listing) (first int) {
	for i, l := range listings {
		if l.at.compare(listings[first].at) < 0 {
			first = i
		}
	}
	return first
}

// next goes on to the sink's next event, and reports whether there is one.
func (l *listing) next() bool {
	k, _ := l.cursor.Next()
	return l.move(k)
}

func (l *listing) move(k []byte) bool {
	l.at.Event = tailID(k)
	return bytes.HasPrefix(k, counterKey(l.at.Sink, ""))
}

// listedSinks are the sinks with events of a state that has an index: one seek
// each.
func (tx *Tx) listedSinks(state DispatchState) (sinks []string) {
	id, _, _ := state.index()
	c := tx.bucket(id).Cursor()
	for k, _ := c.First(); len(k) > 0; {
		sink, _, _ := bytes.Cut(k, []byte{0})
		sinks = append(sinks, string(sink))
		k, _ = c.Seek(append(bytes.Clone(sink), 1))
	}
	return sinks
}
