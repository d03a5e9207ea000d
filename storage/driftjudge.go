package storage

import "math"

// This file judges whether pages have changed, by arithmetic on counts alone.
//
// A page counts as one trial however many records it has, since these stand and fall
// together: its share is a number from 0 to 1. Where such numbers have the mean p, the
// chance that n of them have the mean m or one farther from p is at most
// exp(-n·KL(m, p)), with KL(m, p) = m·ln(m/p) + (1-m)·ln((1-m)/(1-p)), whatever their
// distribution (Hoeffding 1963, theorem 1). So the chance that pages before and since
// some page are as far apart as they are is at most the product of two of these,
// whatever share they have in common; the product is largest where that is the mean of
// them all. Pages since a change are looked for among all that end with the last page. A
// few pages before say little of what is to come, which this takes into account;
// a single guess of p from them does not.

// chance is how improbable a fall must be to be told as one. Each page is judged for
// each field and for each number of last pages. Those tests hang together, so that
// false alarms are about as frequent as this for a page and a field (see
// TestDriftByChance). A source of 10,000 pages a day and 20 fields has 7·10^7 of
// these in a year: one false alarm in ten years or so. A thousand times as many would
// be one each week, for two or three pages less until a field that was always there is told.
const chance = 1e-9

// pastPages is after how many pages a past counts for half: it forgets, so that what
// changes slowly is followed and not told.
const pastPages = 1000

// Tally is a sum over pages.
type Tally struct {
	Pages   uint32
	Sum     uint64 // of their shares
	Records uint64 // of all pages ever, forgotten ones as well
}

// sample is what one page says of a field; records 0: nothing.
type sample struct {
	share   Share
	records int
}

func (p *DriftPage) sample(field int) sample {
	if p.Shares[field] == notRead {
		return sample{}
	}
	return sample{p.Shares[field], p.Records}
}

func (t *Tally) add(s sample) {
	if s.records == 0 {
		return
	}
	t.Pages++
	t.Sum += uint64(s.share)
	t.Records += uint64(s.records)
}

func (t *Tally) take(s sample) {
	if s.records == 0 {
		return
	}
	t.Pages--
	t.Sum -= uint64(s.share)
	t.Records -= uint64(s.records)
}

// age is add to a past.
func (t *Tally) age(s sample) {
	t.add(s)
	if t.Pages >= pastPages {
		t.Pages, t.Sum = t.Pages/2, t.Sum/2
	}
}

// Share is the mean over the pages; 0 where there are none.
func (t Tally) Share() Share {
	if t.Pages == 0 {
		return 0
	}
	return Share(t.Sum / uint64(t.Pages))
}

// mean is Share as a part of 1; not a number where there are no pages.
func (t Tally) mean() float64 { return float64(t.Sum) / float64(t.Pages) / float64(Whole) }

// apart is -ln of a bound of the chance that pages which are alike come in two halves
// like these.
func apart(before, since Tally) float64 {
	all := Tally{Pages: before.Pages + since.Pages, Sum: before.Sum + since.Sum}
	return before.far(all.mean()) + since.far(all.mean())
}

// far is n·KL(m, p) of the n pages.
func (t Tally) far(p float64) float64 {
	term := func(m, p float64) float64 {
		if m == 0 {
			return 0
		}
		return m * math.Log(m/p)
	}
	m := t.mean()
	return float64(t.Pages) * (term(m, p) + term(1-m, 1-p))
}

// fell reports whether a share has lost that part of what it was, or more. Where there
// was none there is none to lose.
func (p DriftPolicy) fell(now, before float64) bool {
	return before > 0 && now <= before*(1-float64(p.Fall)/float64(Whole))
}

// back reports whether a field that had fallen has enough of its share again. It needs
// more than what would have been no fall, else chance would tell it again and
// again.
func (p DriftPolicy) back(now, before Share) bool {
	return float64(now) >= float64(before)*(1-float64(p.Fall)/float64(Whole)/2)
}

// fallen finds how many of the last pages came since a field fell, and what its share
// was before; 0: it did not. Of several answers it takes the one that chance
// explains least, which begins with a page that lacks the field.
func (d *Drift) fallen(field int, p DriftPolicy) (run int, share Share) {
	before, since, most := d.Fields[field].Past, Tally{}, -math.Log(chance)
	for i := range d.Pages {
		since.add(d.Pages[i].sample(field))
	}
	for i := range d.Pages {
		s := d.Pages[i].sample(field)
		if s.records == 0 {
			continue
		}
		if before.Records >= uint64(p.Min) && p.fell(since.mean(), before.mean()) {
			if far := apart(before, since); far > most {
				run, share, most = len(d.Pages)-i, before.Share(), far
			}
		}
		before.add(s)
		since.take(s)
	}
	return run, share
}

// count takes in a page, and gives the fields that have drifted with it.
func (d *Drift) count(page DriftPage, p DriftPolicy) (began []int) {
	d.Pages = append(d.Pages, page)
	for i := range d.Fields {
		if f := &d.Fields[i]; f.Run > 0 {
			f.Run++
		}
	}
	for len(d.Pages) > p.Jobs {
		d.forgetOldest()
	}
	for i := range d.Fields {
		f := &d.Fields[i]
		switch {
		case page.Shares[i] == notRead:
		case f.Run > 0 && p.back(d.drifted(i).Now, f.Before):
			f.Run, f.Since, f.Before = 0, noTime, 0
		case f.Run > 0 || page.Shares[i] == Whole: // the last of the pages that show a fall lacks the field
		default:
			if f.Run, f.Before = d.fallen(i, p); f.Run > 0 {
				f.Since = d.Pages[len(d.Pages)-f.Run].Time
				began = append(began, i)
			}
		}
	}
	return began
}

// forgetOldest moves the oldest page to the past of the fields that had not drifted
// by then.
func (d *Drift) forgetOldest() {
	for i := range d.Fields {
		f := &d.Fields[i]
		if f.Run < len(d.Pages) {
			f.Past.age(d.Pages[0].sample(i))
		}
		f.Run = min(f.Run, len(d.Pages)-1)
	}
	d.Pages = d.Pages[1:]
}

// pausing is the first field for which the source has to pause; -1: there is none, or
// it has paused.
func (d *Drift) pausing(p DriftPolicy) int {
	if p.Failed == 0 || !d.Paused.IsZero() {
		return -1
	}
	for i := range d.Fields {
		f, lacking := &d.Fields[i], 0
		for _, page := range d.Pages[len(d.Pages)-f.Run:] {
			if s := page.sample(i); s.records > 0 && p.fell(float64(s.share), float64(f.Before)) {
				lacking++
			}
		}
		if lacking >= p.Failed {
			return i
		}
	}
	return -1
}
