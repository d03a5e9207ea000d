package api

import (
	"cmp"
	"maps"
	"slices"

	"semel/storage"
)

// Traffic is a number of bytes on the wire.
type Traffic struct {
	BytesUp   int64 `json:"bytes_up"`
	BytesDown int64 `json:"bytes_down"`
}

func newTraffic(t storage.Traffic) Traffic { return Traffic{t.Up, t.Down} }

// Total is both ways together.
func (t Traffic) Total() int64 { return t.BytesUp + t.BytesDown }

// topHosts bounds the hosts of a status.
const topHosts = 20

// addTraffic adds what went where today, and what the sources sent through each
// proxy in all.
func (l *Local) addTraffic(s *Status, all map[string]storage.Traffic, today storage.Counters) {
	through := today.Proxies()
	for name, status := range s.Proxies {
		p := l.Config.Proxy(name)
		status.Traffic, status.Today = newTraffic(all[name]), newTraffic(through[name])
		status.Budget = null(p.Budget)
		if p.Price.Currency != "" {
			status.Cost = (&cost{p.Price.Cost(all[name].Total()), p.Price.Currency}).money()
			status.CostToday = (&cost{p.Price.Cost(through[name].Total()), p.Price.Currency}).money()
		}
		s.Proxies[name] = status
	}
	for name, n := range today.Hosts() {
		s.Hosts[name] = newTraffic(n)
	}
	for i, name := range s.BusiestHosts() {
		if i >= topHosts {
			delete(s.Hosts, name)
		}
	}
}

// BusiestHosts are the names of Hosts, the one that moved most first.
func (s *Status) BusiestHosts() []string {
	return slices.SortedFunc(maps.Keys(s.Hosts), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Hosts[b].Total(), s.Hosts[a].Total()), cmp.Compare(a, b))
	})
}
