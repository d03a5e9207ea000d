package cli

import (
	"testing"

	"semel/engine"
)

func TestSummaryTextCounts(t *testing.T) {
	for _, c := range []struct {
		s    engine.Summary
		want string
	}{
		{engine.Summary{}, "0 complete, 0 failed"},
		{engine.Summary{Completed: 3, New: 4, BadRows: 1, BadFiles: 1, Held: 1}, "3 complete, 0 failed, 4 new, 1 bad target, 1 unreadable target file, 1 run held"},
		{engine.Summary{Failed: 2, Open: 5, BadRows: 2, BadFiles: 2, Held: 2}, "0 complete, 2 failed, 5 left, 2 bad targets, 2 unreadable target files, 2 runs held"},
	} {
		if got := summaryText(c.s); got != c.want {
			t.Errorf("summary %q, want %q", got, c.want)
		}
	}
}
