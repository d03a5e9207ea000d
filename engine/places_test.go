package engine

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"semel/engine/intake"
)

// crowd counts how many requests a host answers at once.
type crowd struct {
	mu   sync.Mutex
	now  map[string]int
	most map[string]int
	last map[string]time.Time
}

func newCrowd() *crowd {
	return &crowd{now: map[string]int{}, most: map[string]int{}, last: map[string]time.Time{}}
}

// stay is one request that takes a while.
func (c *crowd) stay(host string, d time.Duration) {
	c.mu.Lock()
	c.now[host]++
	c.most[host] = max(c.most[host], c.now[host])
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	c.now[host]--
	c.last[host] = time.Now()
	c.mu.Unlock()
}

func otherSource(t *testing.T, name, url string, n int) Source {
	src := source(t, n)
	src.Name, src.URL = name, template(t, url)
	return src
}

// Two sources of one host share its concurrency and its interval.
func TestSourcesShareTheirHost(t *testing.T) {
	for _, interval := range []time.Duration{0, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			c, begin := newCrowd(), time.Now()
			web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
				c.stay(intake.HostOf(req.URL), time.Second)
				return product(req.URL.Path), nil
			})
			opts := options(openStore(t), web, source(t, 10), otherSource(t, "other", "http://SHOP.test:80/q/{id}", 10))
			opts.Pacing = pacing(3, interval)
			sum := runOnce(t, opts)
			if sum.Completed != 20 || interval == 0 && c.most["shop.test"] != 3 {
				t.Errorf("interval %s: %+v, at once %v", interval, sum, c.most)
			}
			if least := 19 * interval; time.Since(begin) < least {
				t.Errorf("interval %s: 20 starts within %s", interval, time.Since(begin))
			}
		})
	}
}

// Hops that redirects lead to a host count there, beside its own attempts and
// while robots.txt is asked, and both go on.
func TestHopsCountAtTheirHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := newCrowd(), time.Now()
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			if req.URL.Path == "/robots.txt" {
				return respond(404, ""), nil
			}
			if req.URL.Host == "shop.test" {
				return respond(302, "", "Location", "http://b.test"+req.URL.Path), nil
			}
			c.stay(intake.HostOf(req.URL), time.Second)
			return product(req.URL.Path), nil
		})
		opts := options(openStore(t), web, source(t, 20), otherSource(t, "bee", "http://b.test/q/{id}", 20))
		opts.Pacing, opts.Robots, opts.Workers = pacing(2, 0), true, 16
		sum := runOnce(t, opts)
		if sum.Completed != 40 || sum.Retried > 0 || c.most["b.test"] != 2 {
			t.Errorf("%+v, %d at once", sum, c.most["b.test"])
		}
		if took := time.Since(begin); took > 22*time.Second { // 40 pages of 1 s, two at once
			t.Errorf("it took %s: the host's places stood empty", took)
		}
	})
}

// Hosts that redirect to each other cannot hold each other up, however few
// places they have.
func TestHostsThatRedirectToEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := newCrowd(), time.Now()
		web := newSite(func(req *http.Request, _ int) (*http.Response, error) {
			c.stay(intake.HostOf(req.URL), time.Second)
			other := map[string]string{"shop.test": "b.test", "b.test": "shop.test"}[req.URL.Host]
			switch hop := req.URL.Query().Get("hop"); hop {
			case "":
				return respond(302, "", "Location", "http://"+other+req.URL.Path+"?hop=1"), nil
			case "1": // and back
				return respond(302, "", "Location", "http://"+other+req.URL.Path+"?hop=2"), nil
			}
			return product(req.URL.Path), nil
		})
		opts := options(openStore(t), web, source(t, 10), otherSource(t, "bee", "http://b.test/q/{id}", 10))
		opts.Pacing, opts.Workers = pacing(1, 0), 8
		sum := runOnce(t, opts)
		if sum.Completed != 20 || sum.Retried > 0 || c.most["shop.test"] != 1 || c.most["b.test"] != 1 {
			t.Errorf("%+v, at once %v", sum, c.most)
		}
		if took := time.Since(begin); took > 45*time.Second { // 60 answers of 1 s by two hosts
			t.Errorf("it took %s", took)
		}
	})
}

// A hop that waits for a place ends with its attempt and leaves nothing behind.
func TestPlacesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(pacing(1, 0), time.Now)
		if p.begin("h", 3, time.Now()) != 1 || p.room("h") != 0 {
			t.Fatal("more places than there are")
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- p.enter(ctx, "h", false) }()
		entered := make(chan error)
		synctest.Wait()
		go func() { entered <- p.enter(t.Context(), "h", false) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("it got %v", err)
		}
		p.release("h", 1)
		if err := <-entered; err != nil || p.room("h") != 0 {
			t.Errorf("the next did not get the place: %v", err)
		}
		p.forget(time.Now().Add(time.Hour))
		if p.room("h") != 0 {
			t.Error("a host in use was forgotten")
		}
		p.leave("h", false)
		if left := p.takeLeft(); p.room("h") != 1 || len(left) != 1 {
			t.Errorf("room %d after all have left, told %v", p.room("h"), left)
		}
		p.forget(time.Now().Add(time.Hour))
		if len(p.hosts) != 0 {
			t.Error("an idle host is kept")
		}
	})
}
