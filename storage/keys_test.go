package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// oddTexts are parts that must not break a key apart.
var oddTexts = []string{"", "-", "--", "%", "%2D", "%2", ":", "a:b", "\x00", "\x00\xff", "\x00\x01", "\x7f", "\n", "\xff\xfe", "ü", "v3", "sku-42"}

func FuzzJobKey(f *testing.F) {
	for _, text := range oddTexts {
		f.Add(text, text, text, text, int64(0), 0)
		f.Add("s", text, "US", "", int64(1_776_956_400), 3)
		f.Add("s", "t", text, text, int64(-304_128_000), 1)
	}
	f.Fuzz(func(t *testing.T, source, target, country, scope string, window int64, version int) {
		key := JobKey{Source: source, Target: target, Country: country, Scope: scope, Version: max(0, version)}
		if window != 0 {
			key.Window = time.Unix(window%200_000_000_000, 0).UTC()
			if year := key.Window.Year(); year < 1 || year > 9999 || key.Window.IsZero() {
				t.Skip("RFC 3339 has no such year")
			}
		}
		text := key.String()
		got, err := ParseJobKey(text)
		if err != nil || got != key {
			t.Errorf("%q became %+v (%v), want %+v", text, got, err, key)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f }) || strings.Count(text, ":") != 5 {
			t.Errorf("key %q is not six clean parts", text)
		}
	})
}

func FuzzParseJobKey(f *testing.F) {
	for _, text := range append(oddTexts, "a:b:c:d:e:f", "s:t:-:2026-04-23T17%3A00%3A00+02%3A00:-:v3", "s:t:-:-:-:v0", "s:t:-:0000-01-01T00%3A00%3A00+01%3A00:-:-", "s:%zz:-:-:-:-", "s:%2:-:-:-:-") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := ParseJobKey(text)
		if err != nil {
			return
		}
		again, err := ParseJobKey(key.String())
		if err != nil || again != key {
			t.Errorf("%q reads as %+v, and that as %+v (%v)", text, key, again, err)
		}
	})
}

func TestJobKeyText(t *testing.T) {
	key := JobKey{Source: "catalog", Target: "sku-42", Country: "US", Window: time.Date(2026, 4, 23, 17, 0, 0, 0, time.FixedZone("", 7200)), Version: 3}
	const want = "catalog:sku-42:US:2026-04-23T15%3A00%3A00Z:-:v3"
	if got := key.String(); got != want {
		t.Errorf("key %q, want %q", got, want)
	}
	for text, want := range map[string]string{
		"a:b":                                "want 6 parts",
		"s:t:-:-:-:3x":                       "is not v1",
		"s:t:-:-:-:v0":                       "is not v1",
		"s:t:-:yesterday:-:-":                "window",
		"s:t:-:0001-01-01T00%3A00%3A00Z:-:-": "no time of the years 1 to 9999",
		"s:t:-:9999-12-31T23%3A59%3A59-01%3A00:-:-": "no time of the years 1 to 9999",
		"s:%4:-:-:-:-":                "cut escape",
		"s:%xx:-:-:-:-":               "bad escape",
		"s:t:-:2026-04-23T15:00:00Z:": "want 6 parts",
	} {
		if _, err := ParseJobKey(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// tuple draws texts with many zeros, which are what an encoding trips over.
func drawText(t *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xfe, 0xff}), 0, 5).Draw(t, label))
}

// TestTextOrder: encoded tuples sort as the tuples do, and read back.
func TestTextOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := []string{drawText(t, "a0"), drawText(t, "a1")}
		b := []string{drawText(t, "b0"), drawText(t, "b1")}
		ea := appendText(appendText(nil, a[0]), a[1])
		eb := appendText(appendText(nil, b[0]), b[1])
		if bytes.Compare(ea, eb) != slices.Compare(a, b) {
			t.Fatalf("%q and %q sort as %x and %x do not", a, b, ea, eb)
		}
		first, rest, ok := readText(append(ea, "tail"...))
		second, tail, ok2 := readText(rest)
		if !ok || !ok2 || first != a[0] || second != a[1] || string(tail) != "tail" {
			t.Fatalf("%q reads back as %q, %q, then %q", a, first, second, tail)
		}
	})
}

func TestReadTextRefuses(t *testing.T) {
	for _, b := range []string{"", "a", "a\x00", "a\x00\x02", "\x00\xff", "\x00\xff\x00"} {
		if text, _, ok := readText([]byte(b)); ok {
			t.Errorf("%q reads as %q", b, text)
		}
	}
}

func TestWindowOrder(t *testing.T) {
	inOrder := []time.Time{
		{}, time.Unix(-1<<40, 0), time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 0),
		time.Unix(0, 0), time.Unix(1, 0), time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC), time.Unix(1<<40, 0),
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := cmp.Compare(windowOrder(a), windowOrder(b)); got != cmp.Compare(i, j) {
				t.Errorf("windows %s and %s compare as %d", a, b, got)
			}
		}
	}
}

// TestObservationKey: a key reads back, sorts by record key, country, window,
// version, and its group ends with the country.
func TestObservationKey(t *testing.T) {
	windows := []time.Time{{}, time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)}
	draw := func(t *rapid.T, label string) JobKey {
		return JobKey{
			Source: "s", Target: drawText(t, label+" target"), Country: drawText(t, label+" country"),
			Window: rapid.SampledFrom(windows).Draw(t, label+" window"), Version: rapid.IntRange(0, 2).Draw(t, label+" version"),
			Scope: drawText(t, label+" scope"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		ka, kb := observationKey(a), observationKey(b)
		want := cmp.Or(
			strings.Compare(a.Target, b.Target), strings.Compare(a.Country, b.Country),
			cmp.Compare(windowOrder(a.Window), windowOrder(b.Window)), cmp.Compare(a.Version, b.Version), strings.Compare(a.Scope, b.Scope),
		)
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%+v and %+v sort as %d, want %d", a, b, got, want)
		}
		var o Observation
		if err := o.readKey(ka); err != nil || o.Key != a {
			t.Fatalf("%+v reads back as %+v (%v)", a, o.Key, err)
		}
		ga, okA := observationGroup(ka)
		gb, okB := observationGroup(kb)
		if same := a.Target == b.Target && a.Country == b.Country; !okA || !okB || bytes.Equal(ga, gb) != same {
			t.Fatalf("groups %x and %x of %+v and %+v", ga, gb, a, b)
		}
	})
}

// TestLongKeys: keys over 128 bytes are found again, differ though their first
// 96 bytes are the same, and two that share a hash are told apart.
func TestLongKeys(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	long := func(tail string) NewJob { return newJob(strings.Repeat("x", 200) + tail) }
	err := s.Update(context.Background(), func(tx *Tx) error {
		for i, n := range []NewJob{long("1"), long("2"), newJob(strings.Repeat("x", longKey)), newJob(strings.Repeat("x", longKey-10))} {
			for again := range 2 {
				e, err := tx.EnqueueJob(n)
				if err != nil || e.ID != uint64(i+1) || e.New != (again == 0) {
					t.Errorf("job %d, time %d: %+v, %v", i+1, again, e, err)
				}
			}
		}
		// As if the third long key had the hash of the first.
		return tx.put(bucketKey, keyIndex(time.Time{}, long("3").Key.String()), idKey(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(context.Background(), func(tx *Tx) error { _, err := tx.EnqueueJob(long("3")); return err })
	if !errors.Is(err, ErrKeyCollision) {
		t.Errorf("a key with the hash of another: %v, want ErrKeyCollision", err)
	}
	err = s.View(func(tx *Tx) error { _, err := tx.Known(long("3")); return err })
	if !errors.Is(err, ErrKeyCollision) {
		t.Errorf("known: %v, want ErrKeyCollision", err)
	}
	var done Completed
	err = s.Update(context.Background(), func(tx *Tx) error { return tx.follow([]NewJob{long("3"), long("1"), long("4")}, &done) })
	if want := (Completed{Followed: 1, Known: 1, Collided: 1}); err != nil || done != want {
		t.Errorf("followed: %+v, %v, want %+v", done, err, want)
	}
	if key := keyIndex(time.Time{}, strings.Repeat("x", 10_000)); len(key) > 8+longKey {
		t.Errorf("index key of %d bytes", len(key))
	}
}

// TestShortKeyCannotPassForALongOne: a key as long as a cut one, and with its
// bytes, is told apart as well.
func TestShortKeyCannotPassForALongOne(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(context.Background(), func(tx *Tx) error {
		if _, err := tx.EnqueueJob(newJob("a")); err != nil {
			return err
		}
		return tx.put(bucketKey, keyIndex(time.Time{}, newJob("b").Key.String()), idKey(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error { _, err := tx.JobByKey(newJob("b").Key); return err })
	if !errors.Is(err, ErrKeyCollision) {
		t.Errorf("error %v, want ErrKeyCollision", err)
	}
}
