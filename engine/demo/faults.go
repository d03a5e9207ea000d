package demo

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"semel/engine/gateway"
)

// faultSeed decides which requests meet which fault. With this one, 200 pages
// meet every kind early on.
const faultSeed = 31

// faultKinds are the kinds in the order of the report.
var faultKinds = [...]struct {
	kind gateway.Kind
	name string
}{
	{gateway.DeadTunnel, "dead exit (502)"},
	{gateway.Reset, "reset in the body"},
	{gateway.Slow, "slow answer"},
	{gateway.Status, "503 with Retry-After"},
}

// script are the faults, each as likely as it is often here. A 503 is the
// site's word and holds back every request to it for a second, so it is rarer.
func script() []gateway.Fault {
	dead := gateway.Fault{Kind: gateway.DeadTunnel, Header: http.Header{"Proxy-Status": {"gateway; error=destination_unavailable"}}}
	reset := gateway.Fault{Kind: gateway.Reset, After: 5 << 10}
	slow := gateway.Fault{Kind: gateway.Slow, After: 4 << 10, Pause: 60 * time.Millisecond}
	busy := gateway.Fault{Kind: gateway.Status, Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}}
	return []gateway.Fault{dead, dead, reset, reset, slow, slow, busy}
}

// faults draws what happens to requests for products, and counts it.
type faults struct {
	draw func(gateway.Request) gateway.Fault

	mu       sync.Mutex
	requests int // all that had the right login
	met      map[gateway.Kind]int
}

func newFaults(p float64) *faults {
	return &faults{draw: gateway.Random(faultSeed, p, script()...), met: map[gateway.Kind]int{}}
}

// next is the gateway's Fault function. robots.txt is always answered: a site
// that does not give it is left alone for ten minutes, which is right and no
// demo.
func (f *faults) next(r gateway.Request) gateway.Fault {
	var fault gateway.Fault
	if u, err := url.Parse(r.URL); err == nil && strings.HasPrefix(u.Path, productPath) {
		fault = f.draw(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if fault.Kind != gateway.None {
		f.met[fault.Kind]++
	}
	return fault
}

// total is how many requests reached the gateway.
func (f *faults) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// String says how many faults there were, by kind.
func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var parts []string
	sum := 0
	for _, k := range faultKinds {
		if n := f.met[k.kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k.name, n))
			sum += n
		}
	}
	if sum == 0 {
		return "none"
	}
	return fmt.Sprintf("%d: %s", sum, strings.Join(parts, ", "))
}
