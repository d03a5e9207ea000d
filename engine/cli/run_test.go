package cli

import (
	"errors"
	"strings"
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
		{engine.Summary{Completed: 9, Delivered: 9, Undelivered: 1, Dead: 2}, "9 complete, 0 failed, 9 events delivered, 1 event left, 2 events given up"},
	} {
		if got := summaryText(c.s); got != c.want {
			t.Errorf("summary %q, want %q", got, c.want)
		}
	}
}

func TestVerdictOfDelivery(t *testing.T) {
	left := engine.Summary{Offered: true, Undelivered: 3, Dead: 1, Waiting: map[string]string{"b": "its next delivery is not due", "a": "it is paused: 503"}}
	for _, c := range []struct {
		name              string
		s                 engine.Summary
		once, interrupted bool
		code              int
		text              string
	}{
		{"all delivered", engine.Summary{Offered: true, Delivered: 5}, true, false, exitDone, ""},
		{"some left", left, true, false, exitJobs, "3 events not delivered (sink a: it is paused: 503; sink b: its next delivery is not due)"},
		{"some given up", engine.Summary{Offered: true, Dead: 1}, true, false, exitJobs, "1 event given up"},
		{"interrupted", left, true, true, exitInterrupted, "interrupted: 3 events not delivered"},
		{"a daemon", left, false, true, exitDone, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := verdict(c.s, engine.BodiesNone, c.once, c.interrupted)
			var f *fault
			if c.code == exitDone {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if !errors.As(err, &f) || f.code != c.code || !strings.Contains(f.Error(), c.text) || f.hint == "" {
				t.Errorf("error %+v", err)
			}
		})
	}
}
