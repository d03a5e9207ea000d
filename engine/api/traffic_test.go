package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/storage"
	"semel/storage/storagetest"
)

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "semel.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spend runs an attempt of a job of a source at a host, through a proxy. It
// completes, unless a category says why not.
func spend(t *testing.T, l *Local, source, host, proxy string, up, down int64, c storage.Category) {
	t.Helper()
	update(t, l, func(tx *storage.Tx) error {
		e, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: source, Target: host + proxy}, URL: "http://" + host, Host: host})
		if err == nil && !e.New {
			err = fmt.Errorf("job %d was there", e.ID)
		}
		return err
	})
	work(t, l, 1, func(tx *storage.Tx, j *storage.Job) error {
		a := storage.Attempt{Proxy: proxy, BytesUp: up, BytesDown: down, Category: c}
		if c != "" {
			return tx.FailJob(j.Lease(), a, storage.Failure{Category: c})
		}
		_, err := tx.CompleteJob(j.Lease(), storage.Completion{Attempt: a})
		return err
	})
}

// Status tells what went where and what it cost, by source, proxy and host, of
// today and in all.
func TestStatusTraffic(t *testing.T) {
	now := time.Date(2026, 4, 23, 23, 0, 0, 0, time.UTC)
	l := &Local{
		Store:  storagetest.OpenAt(t, filepath.Join(t.TempDir(), "semel.db"), storage.Options{NoSync: true, Now: func() time.Time { return now }}),
		Config: prices(t),
	}
	update(t, l, func(tx *storage.Tx) error {
		return errors.Join(tx.PutSource(storage.Source{Name: "shop"}), tx.PutSource(storage.Source{Name: "mall"}))
	})
	spend(t, l, "shop", "a.test", "home", 1_000, 99_000, "")
	spend(t, l, "shop", "b.test", "home", 1_000, 24_000, storage.CategoryNotFound)
	spend(t, l, "mall", "b.test", "gone", 1, 2, "")
	now = now.Add(2 * time.Hour) // the next day
	spend(t, l, "shop", "c.test", "home", 5_000, 120_000, "")
	spend(t, l, "mall", "c.test", "home", 50_000, 200_000, "")
	spend(t, l, "mall", "d.test", "", 7, 70, "")
	s, err := l.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	home := s.Proxies["home"]
	budget := int64(1_000_000)
	want := ProxyStatus{
		Endpoint: home.Endpoint, Traffic: Traffic{57_000, 443_000}, Today: Traffic{55_000, 320_000}, Budget: &budget,
		Cost: money("0.001", "USD"), CostToday: money("0.00075", "USD"),
	}
	if diff := cmp.Diff(want, home); diff != "" {
		t.Errorf("proxy home (-want +got):\n%s", diff)
	}
	if free := s.Proxies["free"]; free.Budget != nil || free.Cost != nil || free.Total() != 0 {
		t.Errorf("proxy free: %+v", free)
	}
	hosts := map[string]Traffic{"c.test": {55_000, 320_000}, "d.test": {7, 70}}
	if diff := cmp.Diff(hosts, s.Hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	shop := s.Sources["shop"]
	if diff := cmp.Diff([]any{int64(25_000), money("0.0005", "USD"), money("0.00025", "USD"), (*Estimate)(nil)},
		[]any{shop.BytesWasted, shop.Cost, shop.CostPerComplete, shop.Estimate}); diff != "" {
		t.Errorf("source shop (-want +got):\n%s", diff)
	}
	if mall := s.Sources["mall"]; mall.Cost != nil || mall.CostPerComplete != nil {
		t.Errorf("the cost of a proxy that is gone is known: %+v", mall)
	}
	wantShape(t, s)
}

// wantShape holds the names that programs read.
func wantShape(t *testing.T, s Status) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"bytes_wasted":25000`, `"cost":{"amount":"0.0005","currency":"USD"},"cost_per_complete":{"amount":"0.00025","currency":"USD"}`,
		`"cost":null,"cost_per_complete":null`, `"hosts":{"c.test":{"bytes_up":55000,"bytes_down":320000},"d.test":{"bytes_up":7,"bytes_down":70}}`,
		`"bytes_up":57000,"bytes_down":443000,"today":{"bytes_up":55000,"bytes_down":320000},"budget":1000000,` +
			`"cost":{"amount":"0.001","currency":"USD"},"cost_today":{"amount":"0.00075","currency":"USD"}`,
		`"bytes_up":0,"bytes_down":0,"today":{"bytes_up":0,"bytes_down":0},"budget":null,"cost":null,"cost_today":null`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// Of many hosts the busiest are told.
func TestStatusHosts(t *testing.T) {
	l := local(t)
	for i := range topHosts + 5 {
		spend(t, l, "shop", fmt.Sprintf("h%02d.test", i), "", 0, int64(10+i%7), "")
	}
	s, err := l.Status(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	names := s.BusiestHosts()
	if len(names) != topHosts || names[0] != "h06.test" || s.Hosts[names[0]].BytesDown != 16 || s.Hosts[names[topHosts-1]].BytesDown < 11 {
		t.Errorf("hosts %v of %v", names, s.Hosts)
	}
}

// An estimate is asked for over HTTP as well, and only a number will do.
func TestEstimateOverHTTP(t *testing.T) {
	l := local(t)
	spend(t, l, "shop", "a.test", "", 10, 90, "")
	c := client(t, NewHandler(l, ""))
	s, err := c.Status(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Estimate{Targets: 50, Jobs: 1, Thin: true, Bytes: 5000}, s.Sources["shop"].Estimate); diff != "" {
		t.Errorf("estimate (-want +got):\n%s", diff)
	}
	if _, err := c.Status(t.Context(), -1); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), `estimate is a number of at least 1 (got "-1")`) {
		t.Errorf("a negative number: %v", err)
	}
}
