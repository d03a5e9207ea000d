package delivery

import (
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	bounds := map[uint32]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 12: 2048 * time.Second,
		13: time.Hour, 64: time.Hour, 1 << 31: time.Hour,
	}
	for n, bound := range bounds {
		least, most := bound, time.Duration(0)
		for _, id := range []string{"evt_1", "evt_2", "evt_3", "evt_4", "evt_5", "evt_6", "evt_7", "evt_8"} {
			d := delay(id, n)
			if d < bound/2 || d > bound {
				t.Errorf("delay %d of %s: %s, want half of %s to all of it", n, id, d, bound)
			}
			if d != delay(id, n) {
				t.Errorf("delay %d of %s is not always the same", n, id)
			}
			least, most = min(least, d), max(most, d)
		}
		if most-least < bound/8 {
			t.Errorf("delay %d: all lie between %s and %s", n, least, most)
		}
	}
}

func TestHealth(t *testing.T) {
	var h health
	now := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	for n := 1; n <= failuresToPause; n++ {
		if paused := h.fail("503", false, now.Add(time.Duration(n)*time.Millisecond)); paused != (n == failuresToPause) {
			t.Fatalf("failure %d: paused %v", n, paused)
		}
	}
	if want := now.Add(time.Millisecond); h.since != want || h.reason != "503" {
		t.Errorf("since %s, want %s", h.since, want)
	}
	now = now.Add(failuresToPause * time.Millisecond)
	if until := h.until; h.fail("late", false, now.Add(500*time.Millisecond)) || h.until != until || h.pause != firstPause {
		t.Error("what was under way has made the pause longer")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		if want *= time.Second; h.from().Sub(now) != want || h.allows(now.Add(want-1)) || !h.allows(now.Add(want)) {
			t.Errorf("the pause is %s, want %s", h.from().Sub(now), want)
		}
		now = now.Add(want)
		if h.fail("503", true, now) {
			t.Error("a probe that failed has begun a pause")
		}
	}
	if !h.succeed() || h.paused() || !h.allows(now) || h.failures != 0 {
		t.Errorf("after a success: %+v", h)
	}
	if h.succeed() {
		t.Error("it was opened twice")
	}
}

func TestASuccessEndsARow(t *testing.T) {
	var h health
	for range 10 {
		for range failuresToPause - 1 {
			if h.fail("503", false, time.Now()) {
				t.Fatal("paused")
			}
		}
		h.succeed()
	}
}

func TestGate(t *testing.T) {
	var h health
	now := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	if !h.wait(time.Minute, now) || h.wait(30*time.Second, now) || h.wait(2*time.Minute, now) {
		t.Error("the first wait is news, and no other")
	}
	h.succeed() // of what was under way
	if h.allows(now.Add(2*time.Minute-1)) || !h.allows(now.Add(2*time.Minute)) {
		t.Errorf("gate %s", h.gate)
	}
	for range failuresToPause {
		h.fail("503", false, now)
	}
	if h.allows(now.Add(time.Minute)) {
		t.Error("a pause that is shorter has opened the gate")
	}
	if !h.wait(48*time.Hour, now.Add(3*time.Minute)) || h.gate.Sub(now) != 63*time.Minute {
		t.Errorf("gate %s", h.gate)
	}
}
