package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"semel/storage"
)

func TestDeliversAllInOrderOfKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &consumer{answer: func(_ context.Context, name string, try int) Result {
			time.Sleep(time.Millisecond)
			return ok
		}}
		r := setup(t, sink("a", 4, c))
		emit(t, r.store, []string{"a"}, append(versions("x", 20), rows("k", 600)...)...)
		report := r.once()
		if report.Delivered != 620 || report.Dead != 0 || report.Undelivered != 0 || len(report.Waiting) != 0 {
			t.Errorf("report: %+v", report)
		}
		if len(c.all) != 620 || c.most != 4 || len(c.faults) > 0 || !c.closed {
			t.Errorf("%d deliveries, %d at once, faults %v, closed %v", len(c.all), c.most, c.faults, c.closed)
		}
		var want []string
		for _, f := range versions("x", 20) {
			want = append(want, f.key+"="+f.value)
		}
		wantNames(t, "order of x", of("x", c.all), want...)
		if taken := r.taken("a"); len(taken) > 0 {
			t.Errorf("still taken: %v", taken)
		}
		if d := r.dispatch("a", "x=20"); d.State != storage.DispatchDelivered || d.Tries != 1 {
			t.Errorf("x=20: %+v", d)
		}
	})
}
