//go:build race

package simulation

// The race detector makes a world ten times as dear.
const (
	defaultSeeds = 25
	replayed     = 0 // it also shuffles who is next
)
