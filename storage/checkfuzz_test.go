package storage

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
)

// edit is what random damage did to one key.
type edit struct{ key, before, after []byte } // nil: nothing stands there

// undetectable is the damage that Check cannot know for what it is, and why.
// Everything else must be reported.
var undetectable = []struct {
	bucket  bucket
	why     string
	excuses func(e edit) bool
}{
	{bucketRobots, "a robots.txt is what a site said; it is asked again within a day", func(e edit) bool {
		return e.after == nil || readsAsRobots(e.after)
	}},
	{bucketValidator, "without one the page is fetched whole", func(e edit) bool { return e.after == nil }},
	{bucketSchedule, "one that is missing is seen for the first time again, and offers a window that its run knows", func(e edit) bool {
		return e.after == nil
	}},
	{bucketHost, "a gate is a time and nothing else; without one the host is asked, and answers", func(e edit) bool {
		return e.after == nil || len(e.after) == 8
	}},
	{bucketSource, "fingerprints are compared with the config, and a source without jobs need not be there", func(e edit) bool {
		return e.after == nil || json.Valid(e.after)
	}},
	{bucketMeta, "a sequence that jumped ahead has lost numbers and nothing else; names in meta may be of a newer version", func(e edit) bool {
		return e.before == nil || e.after != nil && tailID(e.after) >= tailID(e.before)
	}},
	{bucketCounter, "duplicates, unchanged records and stale commits leave nothing to recount; nor do attempts by day and metrics of a newer version", func(e edit) bool {
		_, metric, _ := strings.Cut(string(e.key), "\x00")
		return !recountable(metric) && !strings.HasPrefix(metric, metricDuration)
	}},
	{bucketCounter, "a counter of 0 is as good as none", func(e edit) bool {
		return zero(e.before) && zero(e.after)
	}},
	{bucketCounter, "durations are recounted as a sum", func(e edit) bool {
		_, metric, _ := strings.Cut(string(e.key), "\x00")
		return strings.HasPrefix(metric, metricDuration)
	}},
	{bucketDispatch, "one that is over leads nowhere, and which sink wants what is in the config alone", func(e edit) bool {
		return over(e.before) && over(e.after)
	}},
	{bucketDispatch, "what only people read, and what the dispatcher counts", both(readDispatch)},
	{bucketSink, "what is under way and whether it is stopped is the dispatcher's word", func(e edit) bool {
		_, err := decodeSink(e.key, e.after)
		return e.after == nil || err == nil
	}},
	{bucketCursor, "what a file was is compared with the file by whoever appends to it; without a cursor it is no file of ours", func(e edit) bool {
		_, err := decodeFileCursor(e.key, e.after)
		return e.after == nil || err == nil
	}},
	{bucketJob, "what only people read, what the key leaves out, and what limits count since a person's retry", both(readJob)},
	{bucketAttempt, "what only people read: of an attempt the store needs outcome, bytes, page and rules", both(readAttempt)},
	{bucketObservation, "which fields had no match is the parser's word; events of later revisions may be deleted", both(readRow)},
	{bucketObservation, "no event tells of a row of its own where a window is replaced, and a row does not say its place", func(e edit) bool {
		return bytes.HasPrefix(e.key, []byte("u\x00")) && e.before != nil && e.after != nil && wholeRow(e)
	}},
	{bucketStaged, "a row does not say its place", wholeRow},
	{bucketLive, "an older schema wrote nothing at a job's own place", func(e edit) bool {
		return len(e.key) == 16 && e.after != nil && len(e.after) == 0
	}},
	{bucketEvent, "what only people read of an earlier revision or a job; deleted events leave nothing to miss them", func(e edit) bool {
		return isCopy(e) || both(readEvent)(e)
	}},
	{bucketImport, "one that has ended is remembered to tell a file that is known, and what it says of the file is compared with that alone", func(e edit) bool {
		im, err := decodeImport(e.key, e.before)
		return err == nil && !im.Ended.IsZero() && e.after == nil || both(readImport)(e)
	}},
	{bucketQuarantine, "what only people read: of a page set aside the store needs whose it is", both(readQuarantine)},
	{bucketDrift, "what pages were like is in the pages alone; without it counting begins anew", func(e edit) bool {
		_, err := decodeDrift(e.key, e.after)
		return e.after == nil || err == nil
	}},
	{bucketImportChunk, "its sum is compared with the file's rows", both(readImportChunk)},
}

// over reports whether a dispatch waits for nobody, or is not there.
func over(v []byte) bool {
	d, err := decodeDispatch(dispatchKey(1, "a"), v)
	return v == nil || err == nil && (d.State == DispatchDelivered || d.State == DispatchDiscarded)
}

func readDispatch(key, v []byte) any {
	d, err := decodeDispatch(key, v)
	if err != nil {
		return nil
	}
	return d.State
}

func readImport(key, v []byte) any {
	im, err := decodeImport(key, v)
	if err != nil {
		return nil
	}
	im.SHA256, im.Jobs, im.Rows, im.Bad, im.Began = [32]byte{}, [32]byte{}, 0, 0, noTime
	if !im.Ended.IsZero() {
		im.Ended = damagedEnd
	}
	return im
}

func readImportChunk(key, v []byte) any {
	c, err := decodeImportChunk(key, v)
	if err != nil {
		return nil
	}
	return c.Rows > 0
}

func readQuarantine(key, v []byte) any {
	q, err := decodeQuarantine(key, v)
	if err != nil {
		return nil
	}
	return q.Generation
}

func zero(v []byte) bool { return v == nil || bytes.Equal(v, i64(0)) }

func excused(id bucket, edits []edit) bool {
	return !slices.ContainsFunc(edits, func(e edit) bool {
		for _, u := range undetectable {
			if u.bucket == id && u.excuses(e) {
				return false
			}
		}
		return true
	})
}

// both excuses an edit whose sides are read as the same by a function that
// blanks what Check cannot know; nil: unreadable.
func both(read func(key, v []byte) any) func(edit) bool {
	return func(e edit) bool {
		before := read(e.key, e.before)
		return before != nil && reflect.DeepEqual(before, read(e.key, e.after))
	}
}

func readsAsRobots(v []byte) bool {
	d := newDecoder(robotsVersion, v)
	d.time()
	d.u32()
	d.raw()
	return d.done() == nil
}

func readJob(key, v []byte) any {
	j, err := decodeJob(tailID(key), v)
	if err != nil {
		return nil
	}
	j.URL, j.Vars, j.Created = "", nil, noTime
	j.Tries, j.Rescues, j.Spent = 0, 0, 0
	if j.Owner != "" { // who lost a running job so learns it as if it had been rescued
		j.Owner = "someone"
	}
	if j.State != StatePending {
		j.Priority = 0
	}
	if j.State != StateComplete {
		j.Updated = noTime
	}
	if j.State == StatePending || j.State == StateFailed {
		j.Reason = ""
	}
	if j.State == StatePending && j.Category.Known() {
		j.Category = ""
	}
	if j.Key.Country == "" {
		j.Country = ""
	}
	if j.Key.Scope == "" {
		j.Scope = ""
	}
	if j.Key.Version == 0 {
		j.Version = 0
	}
	if j.Key.Window.IsZero() {
		j.Window = noTime
	}
	return *j
}

func readAttempt(key, v []byte) any {
	a, err := decodeAttempt(key, v)
	if err != nil {
		return nil
	}
	a.Status, a.ConnectStatus, a.Records, a.ParserVersion, a.Free = 0, 0, 0, 0, false
	a.ContentType, a.Reason, a.Phase, a.ProxyCode, a.Endpoint, a.Country, a.Session, a.FinalURL = "", "", "", "", "", "", "", ""
	a.Start, a.End = noTime, noTime
	if a.Owner != "" {
		a.Owner = "someone"
	}
	if a.Outcome != OutcomeRetry && a.Category.Known() {
		a.Category = ""
	}
	return a
}

func readRow(key, v []byte) any {
	o, err := decodeObservation(key, v)
	if err != nil {
		return nil
	}
	o.Missing = nil
	o.Revision = min(o.Revision, 1)
	return *o
}

// wholeRow reports whether a whole row was written over another, or to another
// place.
func wholeRow(e edit) bool {
	for _, v := range [][]byte{e.before, e.after} {
		if _, err := readObservation(rowP, v); v != nil && err != nil {
			return false
		}
	}
	return true
}

func readEvent(key, v []byte) any {
	e, err := decodeEvent(tailID(key), v)
	if err != nil {
		return nil
	}
	e.Timestamp = e.Timestamp.Truncate(time.Second)
	if o, err := readLine(e); err == nil {
		o.URL, o.Country, o.Job, o.Missing = "", "", "", nil
		e.Data = o.appendJSON(nil)
		return *e
	}
	var told map[string]any
	if json.Unmarshal(e.Data, &told) != nil {
		return nil
	}
	e.Timestamp, e.Data = noTime, nil
	told["url"], told["category"], told["reason"] = "", "", ""
	return []any{*e, told}
}

// isCopy reports whether an event was overwritten by another one, whole.
func isCopy(e edit) bool {
	_, err := decodeEvent(tailID(e.key), e.after)
	return err == nil && e.before != nil && !bytes.Equal(e.before[9:45], e.after[9:45]) // another id
}

// damager does random damage, one key or two at a time.
type damager struct {
	random *rand.Rand
	keys   [bucketCount][][]byte
	bolt   *bolt.DB
}

func newDamager(t *testing.T, s *Store, seed uint64) *damager {
	d := &damager{random: rand.New(rand.NewPCG(seed, 1)), bolt: s.db}
	err := s.View(func(tx *Tx) error {
		for id := range bucketCount {
			(&checker{tx: tx}).each(id, func(k, _ []byte) { d.keys[id] = append(d.keys[id], bytes.Clone(k)) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// damage changes a random record in a way of its own choice, and tells what it
// did.
func (d *damager) damage(t *testing.T) (bucket, string, []edit) {
	id := bucket(d.random.IntN(int(bucketCount)))
	if len(d.keys[id]) == 0 {
		t.Fatalf("bucket %s is empty", bucketNames[id])
	}
	pick := func() []byte { return d.keys[id][d.random.IntN(len(d.keys[id]))] }
	key, ways := pick(), []string{"flip", "cut", "delete", "move", "duplicate", "overwrite"}
	way := ways[d.random.IntN(len(ways))]
	edits := []edit{{key: key}}
	d.update(t, id, func(b *bolt.Bucket) {
		value := bytes.Clone(b.Get(key))
		other := d.flip(key)
		switch way {
		case "flip":
			edits[0].after = d.flip(value)
		case "cut":
			edits[0].after = value[:d.random.IntN(len(value)+1)]
		case "overwrite":
			edits[0].after = bytes.Clone(b.Get(pick()))
		case "move":
			edits = append(edits, edit{key: other, after: value})
		case "duplicate":
			edits = []edit{{key: other, after: value}}
		}
		for i := range edits {
			edits[i].before = bytes.Clone(b.Get(edits[i].key))
		}
	})
	d.write(t, id, edits, func(e edit) []byte { return e.after })
	return id, way, edits
}

// flip changes a byte at random; an empty record gets one.
func (d *damager) flip(b []byte) []byte {
	if len(b) == 0 {
		return []byte{1}
	}
	b = bytes.Clone(b)
	b[d.random.IntN(len(b))] ^= byte(1 + d.random.IntN(255))
	return b
}

func (d *damager) write(t *testing.T, id bucket, edits []edit, side func(edit) []byte) {
	d.update(t, id, func(b *bolt.Bucket) {
		for _, e := range edits {
			var err error
			if v := side(e); v == nil {
				err = b.Delete(e.key)
			} else {
				err = b.Put(e.key, v)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func (d *damager) update(t *testing.T, id bucket, fn func(*bolt.Bucket)) {
	err := d.bolt.Update(func(tx *bolt.Tx) error {
		fn(tx.Bucket([]byte(bucketNames[id])))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckFindsRandomDamage: whatever happens to a record, Check neither
// panics nor hangs, and reports all but what is listed as undetectable. A
// failure names the seed and the round.
func TestCheckFindsRandomDamage(t *testing.T) {
	const seed, rounds = 1, 2000
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		d := newDamager(t, s, seed)
		missed := 0
		for round := range rounds {
			id, way, edits := d.damage(t)
			found, err := s.Check()
			if err != nil {
				t.Fatalf("seed %d, round %d: %s in bucket %s: %v", seed, round, way, bucketNames[id], err)
			}
			if len(found) == 0 && !unchanged(edits) {
				missed++
				if !excused(id, edits) {
					t.Errorf("seed %d, round %d: not found: %s in bucket %s: %q", seed, round, way, bucketNames[id], edits)
				}
			}
			d.write(t, id, edits, func(e edit) []byte { return e.before })
		}
		t.Logf("%d of %d were not found", missed, rounds)
		wantClean(t, s)
	})
}

func unchanged(edits []edit) bool {
	return !slices.ContainsFunc(edits, func(e edit) bool { return !bytes.Equal(e.before, e.after) || (e.before == nil) != (e.after == nil) })
}
