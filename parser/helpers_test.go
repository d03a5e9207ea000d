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
