package parser

import "testing"

func mustCompile(tb testing.TB, spec Spec) *Rules {
	tb.Helper()
	r, err := Compile(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// withoutRaceDetector skips a test of one goroutine that costs seconds, and tens
// of them with the race detector: .ci/run has a step without it.
func withoutRaceDetector(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("runs without the race detector: .ci/run does")
	}
}
