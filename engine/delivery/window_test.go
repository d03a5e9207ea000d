package delivery

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWindow compares a window with a plain list of its events.
func TestWindow(t *testing.T) {
	type event struct {
		key  uint64
		due  time.Time
		busy bool
	}
	rapid.Check(t, func(t *rapid.T) {
		w, now := newWindow(), time.Unix(0, 0)
		model := map[uint64]*event{}
		var out []item
		// first is the first of a key that is not under way, if none of it is.
		first := func(key uint64) (first uint64) {
			for seq, e := range model {
				if e.key != key {
					continue
				}
				if e.busy {
					return 0
				}
				if first == 0 || seq < first {
					first = seq
				}
			}
			return first
		}
		begun := func(items ...item) {
			for _, it := range items {
				e := model[it.seq]
				if e == nil || first(e.key) != it.seq {
					t.Fatalf("event %d was not the next of its key", it.seq)
				}
				e.busy = true
			}
			out = append(out, items...)
		}
		ended := func() item {
			i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
			it := out[i]
			out = slices.Delete(out, i, i+1)
			return it
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				seq, due := rapid.Uint64Range(1, 40).Draw(t, "seq"), now.Add(time.Duration(rapid.IntRange(-2, 5).Draw(t, "due"))*time.Second)
				if head := first(seq % 5); head != 0 && !model[head].due.After(now) {
					due = now // what joins one that may go is due, too
				}
				e := model[seq]
				if e == nil {
					e = &event{key: seq % 5}
					model[seq] = e
				}
				if e.busy || !e.due.IsZero() && e.due.Before(due) {
					due = e.due
				}
				e.due = due
				w.add(seq, e.key, due, now)
			},
			"take": func(t *rapid.T) {
				w.wake(now)
				items := w.take(rapid.IntRange(0, 4).Draw(t, "n"))
				for _, it := range items {
					if model[it.seq].due.After(now) {
						t.Fatalf("event %d is not due", it.seq)
					}
				}
				begun(items...)
			},
			"probe": func(t *rapid.T) {
				after := rapid.Uint64Range(0, 40).Draw(t, "after")
				want := uint64(0)
				for key := range uint64(5) {
					if seq := first(key); seq > after && (want == 0 || seq < want) {
						want = seq
					}
				}
				it, ok := w.probe(after)
				if ok != (want != 0) || it.seq != want {
					t.Fatalf("probe after %d is %d, want %d", after, it.seq, want)
				}
				if ok {
					begun(it)
				}
			},
			"put back": func(t *rapid.T) {
				if len(out) == 0 {
					t.Skip()
				}
				it, due := ended(), now.Add(time.Duration(rapid.IntRange(-2, 5).Draw(t, "due"))*time.Second)
				model[it.seq].busy, model[it.seq].due = false, due
				w.putBack(it, due, now)
			},
			"forget": func(t *rapid.T) {
				if len(out) == 0 {
					t.Skip()
				}
				it := ended()
				delete(model, it.seq)
				w.forget(it, now)
			},
			"rewind": func(t *rapid.T) {
				seq := rapid.Uint64Range(0, 42).Draw(t, "seq")
				w.after = 40
				w.rewind(seq)
				for known, e := range model {
					if known >= seq && seq <= 40 && !e.busy {
						delete(model, known)
					}
				}
			},
			"time": func(*rapid.T) { now = now.Add(time.Second) },
			"": func(t *rapid.T) {
				if w.size != len(model) {
					t.Fatalf("size %d, want %d", w.size, len(model))
				}
				w.wake(now)
				ready, next := 0, time.Time{}
				for key := range uint64(5) {
					seq := first(key)
					switch {
					case seq == 0:
					case !model[seq].due.After(now):
						ready++
					case next.IsZero() || model[seq].due.Before(next):
						next = model[seq].due
					}
				}
				if len(w.ready) != ready || !w.next().Equal(next) {
					t.Fatalf("%d ready, next %s; want %d and %s", len(w.ready), w.next(), ready, next)
				}
			},
		})
	})
}

func TestReadyInOrder(t *testing.T) {
	w, now := newWindow(), time.Unix(100, 0)
	for seq := uint64(1); seq <= 10; seq++ {
		w.add(seq, seq, time.Time{}, now)
	}
	first := w.take(1)[0]
	w.putBack(first, now.Add(time.Second), now)
	w.wake(now.Add(time.Second))
	items := w.take(10)
	if !slices.IsSortedFunc(items[:9], func(a, b item) int { return cmp.Compare(a.seq, b.seq) }) || items[9].seq != 1 {
		t.Errorf("order %v", items)
	}
	if w.rewind(0); w.after != 0 || !w.more {
		t.Errorf("after %d", w.after)
	}
}
