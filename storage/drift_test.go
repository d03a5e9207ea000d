package storage

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// usual is the policy that the config has by default.
var usual = DriftPolicy{Fall: Whole / 2, Min: 50, Jobs: 50, Failed: 25}

// pagesOf are the pages of a source with one field; each share is of so many records.
func pagesOf(d *Drift, p DriftPolicy, records int, shares ...Share) (began []int) {
	for _, s := range shares {
		now := time.Unix(int64(1000+len(d.Pages)), 0)
		if len(d.count(DriftPage{Time: now, Records: records, Shares: []Share{s}}, p)) > 0 {
			began = append(began, len(d.Pages))
		}
	}
	return began
}

func oneField() *Drift { return &Drift{Fields: []DriftField{{Name: "price"}}} }

// in repeats a pattern until there are n pages.
func in(n int, pattern ...Share) (shares []Share) {
	for i := range n {
		shares = append(shares, pattern[i%len(pattern)])
	}
	return shares
}

// TestDriftFallen: after how many pages that lack a field it is told, by its past.
func TestDriftFallen(t *testing.T) {
	none, half := Share(0), Whole/2
	for name, test := range map[string]struct {
		before  []Share
		records int
		after   []Share
		want    int // pages until it is told; 0: never
	}{
		"always there":                   {in(1000, Whole), 1, in(50, none), 4},
		"always there, for a short time": {in(50, Whole), 1, in(50, none), 7},
		"too few before":                 {in(20, Whole), 1, in(29, none), 0},
		"ten pages of many records":      {in(10, Whole), 100, in(40, none), 25},
		"a few pages of many records":    {in(5, Whole), 100, in(45, none), 0},
		"nine of ten":                    {in(1000, Whole, Whole, Whole, Whole, Whole, Whole, Whole, Whole, Whole, none), 1, in(50, none), 9},
		"half of the pages":              {in(1000, Whole, none), 1, in(50, none), 30},
		"half of each page":              {in(1000, half), 1, in(50, none), 31},
		"a tenth of the pages":           {in(1000, none, none, none, none, none, none, none, none, none, Whole), 1, in(50, none), 0},
		"never there":                    {in(1000, none), 1, in(50, none), 0},
		"not by half":                    {in(1000, Whole), 1, in(50, Whole*6/10), 0},
		"by more than half":              {in(1000, Whole), 1, in(50, Whole*4/10), 7},
		"one of three pages":             {in(1000, Whole), 1, in(50, Whole, none, Whole), 0},
		"two of three pages":             {in(1000, Whole), 1, in(50, none, none, Whole), 5},
		"pages that tell nothing":        {in(1000, Whole), 1, in(50, none, notRead, notRead), 10},
	} {
		d := oneField()
		if began := pagesOf(d, usual, test.records, test.before...); began != nil {
			t.Errorf("%s: told before it fell", name)
		}
		got := 0
		for i, s := range test.after {
			if got == 0 && pagesOf(d, usual, test.records, s) != nil {
				got = i + 1
			}
		}
		if got != test.want {
			t.Errorf("%s: told after %d pages, want %d", name, got, test.want)
		}
	}
}

// TestDriftSince: what is told is the first page that lacked the field, what was
// before it, and what came since.
func TestDriftSince(t *testing.T) {
	d := oneField()
	pagesOf(d, usual, 1, in(100, Whole)...)
	pagesOf(d, usual, 1, 0, Whole, Whole, Whole, Whole, Whole, 0, 0, notRead, 0, 0, 0, 0, 0)
	list := d.Drifted()
	if len(list) != 1 || list[0].Before != 9905 || list[0].Now != 0 || list[0].Pages != 7 || !list[0].Since.Equal(d.Pages[42].Time) {
		t.Errorf("drifted %+v", list)
	}
}

// TestDriftEnds: once it has most of its share again a field is no longer told, and
// its past is what it was before it fell.
func TestDriftEnds(t *testing.T) {
	d := oneField()
	pagesOf(d, usual, 1, in(500, Whole)...)
	pagesOf(d, usual, 1, in(200, 0)...)
	past := d.Fields[0].Past
	if past.Pages != 500 || past.Share() != Whole || d.Fields[0].Run != 50 {
		t.Errorf("while it lasts: past %+v, %d pages since", past, d.Fields[0].Run)
	}
	if began := pagesOf(d, usual, 1, in(37, Whole)...); began != nil || len(d.Drifted()) != 1 {
		t.Errorf("with 37 of 50 pages: told anew %v, %d drifted", began, len(d.Drifted()))
	}
	if began := pagesOf(d, usual, 1, in(200, Whole)...); began != nil || len(d.Drifted()) != 0 {
		t.Errorf("when it is back: told anew %v, %d drifted", began, len(d.Drifted()))
	}
	if began := pagesOf(d, usual, 1, in(10, 0)...); len(began) != 1 {
		t.Error("a second fall is not told")
	}
}

// TestDriftFollows: a share that changes slowly is followed.
func TestDriftFollows(t *testing.T) {
	d, r := oneField(), rand.New(rand.NewPCG(1, 1))
	for n := range 40_000 {
		share := Whole
		if r.Float64() > 0.95-0.9*float64(n)/40_000 {
			share = 0
		}
		if pagesOf(d, usual, 1, share) != nil {
			t.Fatalf("told at page %d", n)
		}
	}
}

// TestDriftPauses: the source pauses once that many pages lack what has drifted, and no
// sooner.
func TestDriftPauses(t *testing.T) {
	for failed, want := range map[int]int{0: -1, 3: 6, 25: 25, 50: 50} {
		p := usual
		p.Failed = failed
		d := oneField()
		pagesOf(d, p, 1, in(100, Whole)...)
		got := -1
		for n := 1; n <= 60 && got < 0; n++ {
			if pagesOf(d, p, 1, 0); d.pausing(p) == 0 {
				got = n
			}
		}
		if got != want {
			t.Errorf("failed = %d: pauses after %d pages, want %d", failed, got, want)
		}
	}
}

// TestDriftWindow: fewer jobs in the config leave the rest to the past.
func TestDriftWindow(t *testing.T) {
	d, p := oneField(), usual
	pagesOf(d, p, 2, in(50, Whole)...)
	p.Jobs = 5
	pagesOf(d, p, 2, 0)
	if past := d.Fields[0].Past; len(d.Pages) != 5 || past != (Tally{Pages: 46, Sum: 46 * uint64(Whole), Records: 92}) {
		t.Errorf("%d pages, past %+v", len(d.Pages), past)
	}
}

// TestDriftByChance: pages that stay as they are hardly ever make an alarm, whatever
// their share and however many records they have. With these seeds there are none in
// 4 million pages, and under a bound of 1e-5 nine.
func TestDriftByChance(t *testing.T) {
	alarms, histories := 0, 10_000
	if testing.Short() {
		histories = 500
	}
	for seed := range histories {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		alarms += len(stationary(r, 400))
	}
	if alarms > 0 {
		t.Errorf("%d alarms", alarms)
	}
}

// stationary reads pages that are all alike but for chance: each record has the field by
// a probability that is the page's own, about that of the source.
func stationary(r *rand.Rand, pages int) (began []int) {
	d, p := oneField(), usual
	p.Min = 1 + r.IntN(50)
	share, spread, records := r.Float64(), r.Float64(), 1+r.IntN(1+r.IntN(20))
	for range pages {
		own := share
		if r.Float64() < spread { // rows of a page stand and fall together
			own = float64(r.IntN(2))
			if r.Float64() < share {
				own = 1
			}
		}
		filled := 0
		for range records {
			if r.Float64() < own {
				filled++
			}
		}
		began = append(began, pagesOf(d, p, records, shareOf(filled, records))...)
	}
	return began
}

// TestDriftRecord: what is written reads as what it was.
func TestDriftRecord(t *testing.T) {
	d := oneField()
	d.Paused, d.PausedFor = time.Unix(99, 0).UTC(), "price"
	pagesOf(d, usual, 4, in(120, Whole, notRead, 7)...)
	for i := range d.Pages {
		d.Pages[i].Time = d.Pages[i].Time.UTC()
	}
	for source, version := range map[string]int{"shop": 3, "größe/2 ": 0x00010000, "\xff": 1<<31 - 1} {
		got, err := decodeDrift(driftKey(source, version, 1<<24), d.encode())
		if err != nil || !slices.Equal(got.encode(), d.encode()) || got.Lane.Source != source || got.Version != version || got.LaneID != 1<<24 || len(got.Pages) != 50 {
			t.Errorf("%q, version %d: %+v, %v", source, version, got, err)
		}
	}
}

// TestDriftsOfOddKey: a key without a lane is told as damage.
func TestDriftsOfOddKey(t *testing.T) {
	s := openTest(t, Options{NoSync: true})
	err := s.Update(t.Context(), func(tx *Tx) error {
		if err := put(bucketDrift, driftPrefix("s", 1), oneField().encode())(tx); err != nil {
			return err
		}
		return tx.Drifts("s", 1, func(*Drift) bool { return true })
	})
	var damaged *RecordError
	if !errors.As(err, &damaged) || damaged.Bucket != "drift" {
		t.Errorf("error %v", err)
	}
}
