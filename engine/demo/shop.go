package demo

import (
	"net/http"
	"strings"
	"sync"
)

// shop is the site with a count of who asked for what.
type shop struct {
	site http.Handler

	mu        sync.Mutex
	served    map[string]bool // products asked for since the shop opened, by id
	committed map[string]bool // products whose record is in the store
	again     int             // requests for one of those

	mark    int           // products served at which reached is closed; 0: never
	reached chan struct{} // made by awaitServed
}

// newShop opens a shop of which some products have been collected.
func newShop(pages int, committed map[string]bool) *shop {
	return &shop{site: Site(pages), served: map[string]bool{}, committed: committed}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, productPath); ok {
		s.count(id)
	}
	s.site.ServeHTTP(w, r)
}

func (s *shop) count(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed[id] {
		s.again++
	}
	s.served[id] = true
	if s.mark > 0 && len(s.served) >= s.mark {
		s.mark = 0
		close(s.reached)
	}
}

// awaitServed gives a channel that is closed when n products have been served,
// n being more than there are now. A later call takes the place of an earlier
// one.
func (s *shop) awaitServed(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.reached = n, make(chan struct{})
	return s.reached
}

// seal takes note of the products whose record is in the store by now. Nobody
// may be at work meanwhile.
func (s *shop) seal(committed map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = committed
}

// counts are how many products were served, and how many requests there were
// for products that were committed before.
func (s *shop) counts() (served, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.served), s.again
}
