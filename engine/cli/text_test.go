package cli

import (
	"testing"
	"time"
)

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 5_000_000: "5.0 MB",
		2_340_000_000: "2.3 GB", 1 << 62: "4.6 EB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 250 * time.Microsecond: "250µs", 1234 * time.Microsecond: "1ms", 90 * time.Second: "1m30s",
		2 * time.Minute: "2m", 6 * time.Hour: "6h", 6*time.Hour + 30*time.Minute: "6h30m", 10 * time.Second: "10s",
		1234 * time.Millisecond: "1.23s", time.Hour + 5*time.Second: "1h0m5s",
	} {
		if got := durationText(d); got != want {
			t.Errorf("durationText(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	if got := plain("a\x1b[31mb\r\nc\u009bd é"); got != "a�[31mb��c�d é" {
		t.Errorf("plain gave %q", got)
	}
}

func TestTallyText(t *testing.T) {
	if got := tallyText(map[string]int64{"b": 2, "a": 2, "c": 10}); got != "c 10, a 2, b 2" {
		t.Errorf("tallyText gave %q", got)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 jobs", 1: "1 job", 2: "2 jobs"} {
		if got := count(n, "job"); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	if got := count(2, "proxy"); got != "2 proxies" {
		t.Errorf("count gave %q", got)
	}
}
