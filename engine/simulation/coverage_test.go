package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// boundary is one side of a transaction that made a move of a kind.
type boundary struct {
	kind kind
	side side
}

// coverage counts what happened, over all worlds.
type coverage struct {
	seeds int

	mu         sync.Mutex
	faults     map[string]int
	boundaries map[boundary]int // at which a life ended
}

func newCoverage() *coverage {
	c := &coverage{faults: map[string]int{}, boundaries: map[boundary]int{}}
	for _, f := range faults {
		c.faults[f.name] = 0
	}
	for _, e := range slices.Concat(endings, disturbances) {
		c.faults[e.name] = 0
	}
	for _, f := range deliveryFaults {
		c.faults[f.name] = 0
	}
	for _, name := range deliveryFates {
		c.faults[name] = 0
	}
	return c
}

// fault counts one that happened.
func (c *coverage) fault(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[name]++
}

// ended counts a life that ended at a transaction.
func (c *coverage) ended(at side, kinds []kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range kinds {
		c.boundaries[boundary{k, at}]++
	}
}

// String is the table of all counts.
func (c *coverage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds\n\n%-58s %8s\n", c.seeds, "fault", "hit")
	for _, name := range slices.Sorted(maps.Keys(c.faults)) {
		fmt.Fprintf(&b, "%-58s %8d\n", name, c.faults[name])
	}
	fmt.Fprintf(&b, "\n%-58s %8s %8s\n", "life ended at the boundary of", before, after)
	for _, k := range kinds {
		fmt.Fprintf(&b, "%-58s %8d %8d\n", k, c.boundaries[boundary{k, before}], c.boundaries[boundary{k, after}])
	}
	return b.String()
}

// rare gives what was hit less than least times.
func (c *coverage) rare(least int) []string {
	var names []string
	for name, n := range c.faults {
		if n < least {
			names = append(names, fmt.Sprintf("%s: %d", name, n))
		}
	}
	for _, k := range kinds {
		for _, s := range []side{before, after} {
			if n := c.boundaries[boundary{k, s}]; n < least {
				names = append(names, fmt.Sprintf("%s %s: %d", s, k, n))
			}
		}
	}
	slices.Sort(names)
	return names
}
