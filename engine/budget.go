package engine

import (
	"fmt"
	"time"
)

// budget bounds the bytes that go through a proxy in a day (UTC). What is under
// way is counted in advance, at the size of a usual attempt, so that a day is
// overdrawn at most by what unusually large pages add.
type budget struct {
	daily int64 // bytes; 0: no bound
	day   time.Time
	bytes int64   // moved on day
	usual float64 // bytes of an attempt, lately
}

// usualWeight is how much the last attempt counts in what is usual.
const usualWeight = 0.1

// spend counts the bytes of an attempt that has ended.
func (b *budget) spend(bytes int64, now time.Time) {
	if today := dayOf(now); !today.Equal(b.day) {
		b.day, b.bytes = today, 0
	}
	b.bytes += bytes
	if bytes == 0 {
		return
	}
	if b.usual == 0 {
		b.usual = float64(bytes)
	}
	b.usual += usualWeight * (float64(bytes) - b.usual)
}

// slots is how many more attempts the day's rest will pay for. The first one
// of a day may cost what it wants.
func (b *budget) slots(now time.Time, inFlight int) int {
	switch {
	case b.daily == 0:
		return unlimited
	case b.spent(now):
		return 0
	case b.left(now) == b.daily:
		return max(0, 1-inFlight)
	}
	return int(min(float64(b.left(now))/max(b.usual, 1), unlimited)) - inFlight
}

// spent reports whether the day's rest does not pay for one more attempt.
func (b *budget) spent(now time.Time) bool {
	left := b.left(now)
	return b.daily > 0 && left < b.daily && float64(left) < max(b.usual, 1)
}

func (b *budget) left(now time.Time) int64 {
	if !dayOf(now).Equal(b.day) {
		return b.daily
	}
	return max(0, b.daily-b.bytes)
}

// String says what is used up.
func (b *budget) String() string {
	return fmt.Sprintf("%d of the %d bytes of its budget have moved today, and another attempt would not fit", b.bytes, b.daily)
}

func dayOf(t time.Time) time.Time   { return t.UTC().Truncate(24 * time.Hour) }
func nextDay(t time.Time) time.Time { return dayOf(t).Add(24 * time.Hour) }
