//go:build race

package parser

// raceDetector: the race detector takes ten times as long.
const raceDetector = true
