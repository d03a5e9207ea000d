//go:build race

package cli

// raceDetector: the race detector keeps several times the memory.
const raceDetector = true
