//go:build !race

package simulation

const (
	defaultSeeds = 200
	replayed     = 20
)
