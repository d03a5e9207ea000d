package storage_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"syscall"
)

func iostat() (w, sys int64) {
	b, _ := os.ReadFile("/proc/self/io")
	for _, l := range strings.Split(string(b), "\n") {
		fmt.Sscanf(l, "wchar: %d", &w)
		fmt.Sscanf(l, "syscw: %d", &sys)
	}
	return
}
func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkZZ(b *testing.B) {
	few := newBenchQueue(b, 40_000)
	raw := newRawStore(b)
	for range 3 {
		w0, s0 := iostat()
		c0 := cpu()
		d := raw.slice(b)
		w1, s1 := iostat()
		c1 := cpu()
		e := few.slice(b)
		w2, s2 := iostat()
		c2 := cpu()
		b.Logf("raw: %v/op wall, cpu %v, %d B, %.2f sysw; store: %v wall, cpu %v, %d B, %.2f sysw", d/benchJobs, (c1-c0)/benchJobs, (w1-w0)/benchJobs, float64(s1-s0)/benchJobs, e/benchJobs, (c2-c1)/benchJobs, (w2-w1)/benchJobs, float64(s2-s1)/benchJobs)
	}
}

func BenchmarkYY(b *testing.B) {
	few := newBenchQueue(b, 170_000)
	b.ResetTimer()
	for b.Loop() {
		few.slice(b)
	}
}
