package engine

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/gateway"
	"semel/engine/proxy"
	"semel/storage"
	"semel/storage/storagetest"
)

// billed starts a gateway, and gives the proxy that leads to it.
func billed(t *testing.T, name string) (*gateway.Gateway, Proxy) {
	t.Helper()
	g, err := gateway.Start(gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	p, err := proxy.New(proxy.Spec{Name: name, URL: g.URL()})
	if err != nil {
		t.Fatal(err)
	}
	return g, Proxy{Proxy: p, Name: name}
}

// flaky is a site over loopback whose every third page is refused once.
func flaky(t *testing.T) (host string) {
	t.Helper()
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		again := asked[r.URL.Path]
		asked[r.URL.Path] = true
		mu.Unlock()
		if !again && strings.HasSuffix(r.URL.Path, "3") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, "<h1>Thing "+r.URL.Path+"</h1>"+strings.Repeat("x", len(r.URL.Path)*100))
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// What the store counts for a proxy, a host and a day is, to the byte, what the
// gateways count: retries included, over two runs and an opening of the store
// between them, the second on the next day.
func TestTrafficIsWhatGatewaysBill(t *testing.T) {
	home, viaHome := billed(t, "home")
	away, viaAway := billed(t, "away")
	begin, noon := time.Now(), time.Date(2026, 4, 23, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return noon.Add(time.Since(begin)) }
	one, other := flaky(t), flaky(t)
	sourceAt := func(name, host, proxy string, targets int) Source {
		src := source(t, targets)
		src.Name = name
		if proxy != "" {
			src.Proxies = []string{proxy}
		}
		src.URL = template(t, fmt.Sprintf("http://%s/%s/{id}", host, name))
		src.Retry = map[storage.Category]RetryPolicy{storage.CategoryServerError: {Base: time.Millisecond, Max: time.Millisecond}}
		return src
	}
	path := filepath.Join(t.TempDir(), "semel.db")
	run := func(s *storage.Store, targets int) {
		t.Helper()
		opts := options(s, nil, sourceAt("a", one, "home", targets), sourceAt("b", other, "away", targets), sourceAt("c", other, "", targets))
		opts.Proxies, opts.Now = []Proxy{viaHome, viaAway}, clock
		if sum := runOnce(t, opts); sum.Failed+sum.Open > 0 || sum.Retried == 0 {
			t.Fatalf("%+v", sum)
		}
	}
	billOf := func(g *gateway.Gateway) storage.Traffic {
		seen := g.Stats()
		return storage.Traffic{Up: seen.Up, Down: seen.Down}
	}
	s, err := storage.Open(path, storage.Options{NoSync: true, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	run(s, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bills := map[string]storage.Traffic{"first home": billOf(home), "first away": billOf(away)}
	today := clock()
	noon = noon.AddDate(0, 0, 1)
	s = storagetest.OpenAt(t, path, storage.Options{NoSync: true, Now: clock})
	run(s, 30)
	bills["all home"], bills["all away"] = billOf(home), billOf(away)

	counted := map[string]storage.Traffic{}
	err = s.View(func(tx *storage.Tx) error {
		for _, name := range []string{"home", "away"} {
			counted["first "+name] = tx.ProxyTraffic(name, today)
			counted["all "+name] = counted["first "+name].Add(tx.ProxyTraffic(name, clock()))
		}
		if hosts := tx.DayTraffic(today).Hosts(); hosts[one] != counted["first home"] {
			t.Errorf("host %s is counted with %v, its proxy with %v", one, hosts[one], counted["first home"])
		}
		direct := storage.Traffic{}
		for _, day := range []time.Time{today, clock()} {
			direct = direct.Add(tx.DayTraffic(day).Hosts()[other])
		}
		c := tx.Counters("c")
		want := storage.Traffic{Up: c[storage.MetricBytesUp], Down: c[storage.MetricBytesDown]}.Add(counted["all away"])
		if direct != want || len(c.Proxies()) > 0 {
			t.Errorf("the host of two sources is counted with %v, they moved %v", direct, want)
		}
		if through := tx.Counters("a").Proxies(); len(through) != 1 || through["home"] != counted["all home"] {
			t.Errorf("source a went through %v", through)
		}
		return nil
	})
	if diff := cmp.Diff(bills, counted); err != nil || diff != "" {
		t.Errorf("bytes (-billed +counted): %v\n%s", err, diff)
	}
	if n := bills["first home"].Total(); n < 15_000 || bills["all home"].Total() < n+5_000 {
		t.Errorf("too little was moved to tell: %v", bills)
	}
}
