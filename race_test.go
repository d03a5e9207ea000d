//go:build race

package main

// raceDetector: the race detector takes several times the time and the memory.
const raceDetector = true
