package delivery

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// maxWindow bounds the events that a lane has in memory, some 100 bytes each:
// numbers and times, not what they say. It is reached where as many wait for
// their next delivery, or behind one of their key that does; what comes after
// them then waits, too.
const maxWindow = 1 << 15

// window is the part of a sink's outbox that is planned with: events in queues by
// key, of which the first may go when it is due and none of its key is under way.
type window struct {
	after   uint64            // number of the event that was read last
	more    bool              // there may be events behind it
	size    int               // events in the window, with those under way
	limit   int               // of size; a look at the outbox may pass it a little
	queues  map[uint64]*queue // by hash of the key: two keys that share one only wait for each other
	ready   []*queue          // whose first event may go, in the order in which they came to that
	waiting waitHeap          // whose first event is not due
}

// queue are the events of one key in the order of their commits.
type queue struct {
	key    uint64
	events []pending // without the one under way
	busy   uint64    // number of the one under way; 0: none
	ready  bool      // in window.ready
	place  int       // in window.waiting; -1: not there
}

type pending struct {
	seq uint64
	due time.Time
}

// item is an event under way: from when it is chosen until what became of it
// has been written.
type item struct {
	queue *queue
	seq   uint64
}

func newWindow() window { return window{more: true, limit: maxWindow, queues: map[uint64]*queue{}} }

// hasMore reports whether there may be events to read, and room for them.
func (w *window) hasMore() bool { return w.more && w.size < w.limit }

// rewind has the window read again from an event on, 0 being the first: it has
// become pending, or due, or was discarded. What is under way stays.
func (w *window) rewind(seq uint64) {
	w.more = true
	if seq > w.after {
		return
	}
	w.after = max(seq, 1) - 1
	for key, q := range w.queues {
		i, _ := q.find(seq)
		w.size -= len(q.events) - i
		if i == 0 && q.busy == 0 {
			w.unwait(q)
			delete(w.queues, key)
		}
		q.events = q.events[:i]
	}
	w.ready = slices.DeleteFunc(w.ready, func(q *queue) bool { return len(q.events) == 0 })
}

// add takes in a pending event, or what the store now says of one. By that it may
// be due sooner than before, but not later: only deliveries put off.
func (w *window) add(seq, key uint64, due, now time.Time) {
	q := w.queues[key]
	if q == nil {
		q = &queue{key: key, place: -1}
		w.queues[key] = q
	}
	if q.busy == seq {
		return
	}
	if !q.insert(pending{seq, due}) {
		w.size++
	}
	w.arrange(q, now)
}

// insert puts an event into its place, and reports whether it was there before.
func (q *queue) insert(p pending) (known bool) {
	i, known := q.find(p.seq)
	if known {
		q.events[i] = p
		return true
	}
	q.events = slices.Insert(q.events, i, p)
	return false
}

// find gives the place of an event, or where it would be.
func (q *queue) find(seq uint64) (i int, known bool) {
	return slices.BinarySearchFunc(q.events, seq, func(p pending, seq uint64) int { return cmp.Compare(p.seq, seq) })
}

// arrange puts a queue where its first event belongs.
func (w *window) arrange(q *queue, now time.Time) {
	switch {
	case q.busy != 0 || q.ready:
	case len(q.events) == 0:
		delete(w.queues, q.key)
	case q.events[0].due.After(now) && q.place >= 0:
		heap.Fix(&w.waiting, q.place)
	case q.events[0].due.After(now):
		heap.Push(&w.waiting, q)
	default:
		w.unwait(q)
		q.ready = true
		w.ready = append(w.ready, q)
	}
}

func (w *window) unwait(q *queue) {
	if q.place >= 0 {
		heap.Remove(&w.waiting, q.place)
	}
}

// wake makes ready what the clock has made due.
func (w *window) wake(now time.Time) {
	for len(w.waiting) > 0 && !w.waiting[0].events[0].due.After(now) {
		w.arrange(w.waiting[0], now)
	}
}

// next is when the first of those that wait is due; zero: none waits.
func (w *window) next() time.Time {
	if len(w.waiting) == 0 {
		return time.Time{}
	}
	return w.waiting[0].events[0].due
}

// take chooses up to n events that may go now.
func (w *window) take(n int) []item {
	n = min(n, len(w.ready))
	items := make([]item, n)
	for i, q := range w.ready[:n] {
		q.ready = false
		items[i] = q.begin()
	}
	w.ready = slices.Delete(w.ready, 0, n)
	return items
}

func (q *queue) begin() item {
	q.busy = q.events[0].seq
	q.events = q.events[1:]
	return item{q, q.busy}
}

// probe chooses the first event behind one that may go but for its due time.
func (w *window) probe(after uint64) (item, bool) {
	var next *queue
	for _, q := range w.queues {
		if q.busy == 0 && q.events[0].seq > after && (next == nil || q.events[0].seq < next.events[0].seq) {
			next = q
		}
	}
	if next == nil {
		return item{}, false
	}
	w.unwait(next)
	if next.ready {
		next.ready = false
		w.ready = slices.DeleteFunc(w.ready, func(q *queue) bool { return q == next })
	}
	return next.begin(), true
}

// putBack ends an event's being under way: it is due again.
func (w *window) putBack(it item, due, now time.Time) {
	it.queue.busy = 0
	it.queue.insert(pending{it.seq, due})
	w.arrange(it.queue, now)
}

// forget ends an event's being under way: it is no longer pending.
func (w *window) forget(it item, now time.Time) {
	it.queue.busy = 0
	w.size--
	w.arrange(it.queue, now)
}

// waitHeap is a heap of queues by when their first event is due, then by its
// number.
type waitHeap []*queue

func (h waitHeap) Len() int { return len(h) }
func (h waitHeap) Less(i, j int) bool {
	a, b := h[i].events[0], h[j].events[0]
	return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq)) < 0
}
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *waitHeap) Push(x any) {
	q := x.(*queue)
	q.place = len(*h)
	*h = append(*h, q)
}
func (h *waitHeap) Pop() any {
	old := *h
	q := old[len(old)-1]
	q.place = -1
	*h = old[:len(old)-1]
	return q
}
