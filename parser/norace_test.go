//go:build !race

package parser

const raceDetector = false
