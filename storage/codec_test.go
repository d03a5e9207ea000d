package storage

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func drawTime(t *rapid.T, label string) time.Time {
	us := rapid.OneOf(rapid.Just(int64(math.MinInt64)), rapid.Int64Range(-1<<52, 1<<52)).Draw(t, label)
	if us == math.MinInt64 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func drawInt(t *rapid.T, label string) int { return rapid.IntRange(0, math.MaxInt32).Draw(t, label) }

func drawJob(t *rapid.T) *Job {
	text := rapid.String()
	j := &Job{
		ID: rapid.Uint64().Draw(t, "id"), Key: JobKey{Source: text.Draw(t, "source"), Target: text.Draw(t, "target")},
		Country: text.Draw(t, "country"), Window: drawTime(t, "window"), Scope: text.Draw(t, "scope"), Version: drawInt(t, "version"),
		URL: text.Draw(t, "url"), Priority: rapid.Int8().Draw(t, "priority"), Lane: LaneID(rapid.Uint32().Draw(t, "lane")),
		State: rapid.SampledFrom(JobStates).Draw(t, "state"), Generation: rapid.Uint32().Draw(t, "generation"),
		Attempts: rapid.Uint32().Draw(t, "attempts"), Tries: rapid.Uint32().Draw(t, "tries"), Rescues: rapid.Uint32().Draw(t, "rescues"),
		Recovered: rapid.Bool().Draw(t, "recovered"), Category: Category(text.Draw(t, "category")), Reason: text.Draw(t, "reason"),
		Created: drawTime(t, "created"), Updated: drawTime(t, "updated"), FirstClaim: drawTime(t, "first"), ClaimedAt: drawTime(t, "claimed"),
		LeaseUntil: drawTime(t, "lease"), Owner: text.Draw(t, "owner"), NextAt: drawTime(t, "next"),
		BytesUp: rapid.Int64().Draw(t, "up"), BytesDown: rapid.Int64().Draw(t, "down"), Spent: rapid.Int64().Draw(t, "spent"),
		Forgotten: rapid.Uint32().Draw(t, "forgotten"), Sent: text.Draw(t, "sent"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "vars") {
		j.Vars = append(j.Vars, Var{text.Draw(t, "name"), text.Draw(t, "value")})
	}
	in := rapid.IntRange(0, 15).Draw(t, "identity")
	j.restoreKey(in&1 != 0, in&2 != 0, in&4 != 0, in&8 != 0)
	return j
}

func drawAttempt(t *rapid.T) Attempt {
	text := rapid.String()
	return Attempt{
		Job: rapid.Uint64().Draw(t, "job"), Generation: rapid.Uint32().Draw(t, "generation"), Owner: text.Draw(t, "owner"),
		Start: drawTime(t, "start"), End: drawTime(t, "end"), Outcome: text.Draw(t, "outcome"),
		Category: Category(text.Draw(t, "category")), Reason: text.Draw(t, "reason"), Phase: text.Draw(t, "phase"),
		Status: drawInt(t, "status"), ConnectStatus: drawInt(t, "connect"), ProxyCode: text.Draw(t, "code"),
		BytesUp: rapid.Int64().Draw(t, "up"), BytesDown: rapid.Int64().Draw(t, "down"), FinalURL: text.Draw(t, "url"),
		Endpoint: text.Draw(t, "endpoint"), Country: text.Draw(t, "country"), Session: text.Draw(t, "session"),
		Step: text.Draw(t, "step"), Proxy: text.Draw(t, "proxy"), Lane: LaneID(rapid.Uint32().Draw(t, "lane")),
		ParserVersion: drawInt(t, "parser"), Records: drawInt(t, "records"), NextAt: drawTime(t, "next"),
		Kind: text.Draw(t, "kind"), FetchedAt: drawTime(t, "fetched"),
	}
}

func drawObservation(t *rapid.T) *Observation {
	text := rapid.String()
	window := drawTime(t, "key window").Truncate(time.Second)
	return &Observation{
		Key: JobKey{
			Source: "s", Target: text.Draw(t, "target"), Country: text.Draw(t, "country"), Window: window,
			Scope: text.Draw(t, "scope"), Version: drawInt(t, "key version"),
		},
		Job: text.Draw(t, "job"), Window: drawTime(t, "window"), Country: text.Draw(t, "country"), URL: text.Draw(t, "url"),
		Version: drawInt(t, "version"), Revision: drawInt(t, "revision"), ObservedAt: drawTime(t, "at"),
		Missing: rapid.SliceOfN(text, 1, 3).Draw(t, "missing"), Gone: rapid.Bool().Draw(t, "gone"),
		Data: []byte(rapid.StringN(1, 20, -1).Draw(t, "data")), Told: rapid.SliceOfN(rapid.Uint64(), 1, 3).Draw(t, "told"),
	}
}

func drawRun(t *rapid.T) *Run {
	number := rapid.Uint64()
	return &Run{
		ID: number.Draw(t, "run"), Key: RunKey{Source: "s", Window: drawTime(t, "window"), Import: rapid.String().Draw(t, "import")},
		Kind: RunKinds[rapid.IntRange(0, len(RunKinds)-1).Draw(t, "kind")], Created: drawTime(t, "created"),
		Jobs: number.Draw(t, "jobs"), Open: number.Draw(t, "open"), Failed: number.Draw(t, "failed"),
		Listing: rapid.Bool().Draw(t, "listing"), Offered: rapid.Bool().Draw(t, "offered"),
		Targets: number.Draw(t, "targets"), List: number.Draw(t, "list"), Made: number.Draw(t, "made"),
		Finished: drawTime(t, "finished"), Held: rapid.String().Draw(t, "held"), HeldSince: drawTime(t, "since"),
		Discarded: drawTime(t, "discarded"), Replaced: drawTime(t, "replaced"),
		Revision: number.Draw(t, "revision"), Told: rapid.SliceOfN(number, 1, 3).Draw(t, "told"),
	}
}

// TestRecordsReadBack: what an encoder writes its decoder reads, and no record
// that is cut or has a byte too many passes for whole.
func TestRecordsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJob(t)
		readBack(t, j, j.encode(), func(b []byte) (*Job, error) { return decodeJob(j.ID, b) })
		a := drawAttempt(t)
		readBack(t, a, a.encode(), func(b []byte) (Attempt, error) { return decodeAttempt(attemptKey(a.Job, a.Generation), b) })
		o := drawObservation(t)
		readBack(t, o, o.encode(), func(b []byte) (*Observation, error) { return decodeObservation(observationKey(o.Key), b) })
		text := rapid.String()
		e := &Event{
			Seq: rapid.Uint64().Draw(t, "seq"), ID: text.Draw(t, "event id"), Type: text.Draw(t, "type"), Key: text.Draw(t, "key"),
			Timestamp: drawTime(t, "timestamp"), Data: []byte(rapid.StringN(1, 20, -1).Draw(t, "event data")),
		}
		readBack(t, e, e.encode(), func(b []byte) (*Event, error) { return decodeEvent(e.Seq, b) })
		r := drawRun(t)
		readBack(t, r, r.encode(), func(b []byte) (*Run, error) { return decodeRun(r.ID, b) })
	})
}

// TestOlderRun: of a run whose rows an older version has replaced nobody knows what
// was told, so all that comes counts as having come back.
func TestOlderRun(t *testing.T) {
	for _, replaced := range []time.Time{noTime, time.Unix(1, 0)} {
		now := &Run{Kind: RunTick, Replaced: replaced}
		record := now.encode()
		older := encoder{b: append([]byte{2}, record[1:len(record)-sealBytes-12]...)} // without Revision and Told
		r, err := decodeRun(1, older.sealed())
		if err != nil {
			t.Fatal(err)
		}
		for i, rows := range []string{"a", "b", "a"} {
			if again, want := r.tell(rows), !replaced.IsZero() || i == 2; again != want {
				t.Errorf("replaced at %v, then rows %d: %v, want %v", replaced, i, again, want)
			}
		}
	}
}

func readBack[T any](t *rapid.T, want T, b []byte, decode func([]byte) (T, error)) {
	t.Helper()
	got, err := decode(b)
	if err != nil {
		t.Fatalf("decoding %x: %v", b, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("decoded (-want +got):\n%s", diff)
	}
	var broken *RecordError
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(b[:len(b):len(b)], 0), append([]byte{99}, b[1:]...)} {
		if _, err := decode(bad); !errors.As(err, &broken) {
			t.Fatalf("decoding %x gave %v, want a RecordError", bad, err)
		}
	}
}

// FuzzDecoders: no bytes make a decoder panic or allocate without bound.
func FuzzDecoders(f *testing.F) {
	j := &Job{ID: 1, State: StatePending, Vars: []Var{{"sku", "42"}}}
	a := Attempt{Job: 1, Generation: 1, Outcome: OutcomeRetry}
	o := &Observation{Key: JobKey{Source: "s", Target: "t"}, Missing: []string{"price"}, Data: []byte("{}")}
	e := &Event{Seq: 1, ID: "evt_", Data: []byte("{}")}
	for _, seed := range []struct{ key, record []byte }{
		{idKey(1), j.encode()}, {attemptKey(1, 1), a.encode()}, {observationKey(o.Key), o.encode()}, {idKey(1), e.encode()},
	} {
		f.Add(seed.key, seed.record[:len(seed.record)-sealBytes])
	}
	f.Add([]byte{}, []byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, key, unsealed []byte) {
		value := (&encoder{unsealed}).sealed() // else hardly anything would come through
		if j, err := decodeJob(tailID(key), value); (j == nil) == (err == nil) {
			t.Errorf("job %v with error %v", j, err)
		}
		if o, err := decodeObservation(key, value); (o == nil) == (err == nil) {
			t.Errorf("observation %v with error %v", o, err)
		}
		if e, err := decodeEvent(tailID(key), value); (e == nil) == (err == nil) {
			t.Errorf("event %v with error %v", e, err)
		}
		_, _ = decodeAttempt(key, value)
		_, _ = observationGroup(key)
	})
}

func TestUnknownStateInARecord(t *testing.T) {
	b := (&Job{State: StatePending}).encode()
	b[1] = 77
	again := encoder{b[:len(b)-sealBytes]}
	_, err := decodeJob(5, again.sealed())
	const want = "reading bucket job, key 0000000000000005: unknown state 77"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
