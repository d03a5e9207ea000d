package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"semel/storage"
)

const (
	hookSecret = "whsec_YSBzZWNyZXQgb2YgMzAgYnl0ZXMsIG1vcmUgb3IgbGVzcw=="
	// pageRows are on each page of a catalog, and every tenth of them changes from
	// edition to edition.
	pageRows  = 100
	changing  = 10
	editions  = 3
	dropEvery = 20 // of the requests that a ledger stores
)

// deliveryLoad is how many rows are delivered, and how often the program is killed
// meanwhile.
func deliveryLoad() (rows, kills int) {
	if os.Getenv("SEMEL_REAL") != "" {
		return 10_000, 10
	}
	return 2_000, 4
}

// catalog is a site of pages of rows, which comes out in editions.
type catalog struct {
	*httptest.Server
	mu      sync.Mutex
	edition int
}

func newCatalog(t *testing.T) *catalog {
	c := &catalog{edition: 1}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *catalog) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	edition := c.edition
	c.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	for i := range pageRows {
		as := 1
		if i%changing == 0 {
			as = edition
		}
		fmt.Fprintf(w, "<p><b>%s-%02d</b><i>%d</i></p>", r.URL.Path[1:], i, as)
	}
}

// publish brings out an edition.
func (c *catalog) publish(edition int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edition = edition
}

// ledger is a consumer that keeps a unique key: what it has had before it answers
// with 409. It drops connections after it has stored what came over them.
type ledger struct {
	*httptest.Server
	t        *testing.T
	verifier *standardwebhooks.Webhook
	random   *rand.Rand

	mu       sync.Mutex
	idle     sync.Cond           // open is 0
	open     int                 // connections
	closed   bool                // it wants nothing
	arrivals map[string]int      // of an event, by its id
	editions map[string][]string // of a row, in the order in which they arrived
	dropped  int
	left     int // arrivals until reached is closed
	reached  chan struct{}
}

func newLedger(t *testing.T, seed uint64) *ledger {
	verifier, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{
		t: t, verifier: verifier, random: rand.New(rand.NewPCG(seed, 1)), closed: true,
		arrivals: map[string]int{}, editions: map[string][]string{},
	}
	l.idle.L = &l.mu
	l.Server = httptest.NewUnstartedServer(http.HandlerFunc(l.serve))
	l.Config.ErrorLog = log.New(io.Discard, "", 0) // programs die in the middle of requests
	l.Config.ConnState = l.count
	l.Start()
	t.Cleanup(l.Close)
	return l
}

// count counts the connections of programs.
func (l *ledger) count(_ net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		l.open++
	case http.StateClosed, http.StateHijacked:
		l.open--
	}
	if l.open == 0 {
		l.idle.Broadcast()
	}
}

// settle waits until all that a dead program has sent is stored.
func (l *ledger) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open > 0 {
		l.idle.Wait()
	}
}

func (l *ledger) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it died while it sent
	}
	status, drop := l.store(body, r.Header)
	if !drop {
		w.WriteHeader(status)
		return
	}
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// store stores an event and says what to answer.
func (l *ledger) store(body []byte, header http.Header) (status int, drop bool) {
	var event struct {
		ID   string
		Data struct{ SKU, Edition string }
	}
	if err := errors.Join(l.verifier.Verify(body, header), json.Unmarshal(body, &event)); err != nil || header.Get("webhook-id") != event.ID {
		l.t.Errorf("%v: %s, %v", err, body, header)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return http.StatusGone, false
	}
	status = http.StatusCreated
	if l.arrivals[event.ID]++; l.arrivals[event.ID] > 1 {
		status = http.StatusConflict
	}
	l.editions[event.Data.SKU] = append(l.editions[event.Data.SKU], event.Data.Edition)
	if l.left--; l.left == 0 {
		close(l.reached)
	}
	drop = l.random.IntN(dropEvery) == 0
	if drop {
		l.dropped++
	}
	return status, drop
}

// after gives a channel that is closed when n more events have arrived.
func (l *ledger) after(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.reached = n, make(chan struct{})
	return l.reached
}

func (l *ledger) openUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

func deliveryConfig(site, consumer string, rows int) string {
	pages := make([]string, rows/pageRows)
	for i := range pages {
		pages[i] = fmt.Sprintf(`{ page = "%03d" }`, i)
	}
	return fmt.Sprintf(`version = 1
[engine]
workers = 8
allow_private = true
robots = false
[host."*"]
concurrency = 8
interval = "0s"
[sink.ledger]
type = "webhook"
url = "%s/hook"
secret = "env:HOOK_SECRET"
events = ["observation.created", "observation.updated"]
attempts = 1000
[source.shop]
url = "%s/{page}"
targets = [%s]
key = "{page}"
sinks = ["ledger"]
[source.shop.parser]
version = 1
rows = { css = "p" }
key = "{sku}"
[source.shop.parser.fields]
sku = { css = "b", required = true }
edition = { css = "i", required = true }
`, consumer, site, strings.Join(pages, ", "))
}

// TestDeliveryKilled collects rows in three editions and delivers them to a
// consumer that drops connections after it has stored what came, while the program
// is killed with SIGKILL again and again. In the end the consumer has each event,
// those of a row in their order; nothing came twice but what Semel had noted as
// ambiguous; and what came twice is noted as deduplicated.
func TestDeliveryKilled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rows, kills := deliveryLoad()
	events := rows + (editions-1)*rows/changing
	site, consumer := newCatalog(t), newLedger(t, seed)
	f := newFolder(t, deliveryConfig(site.URL, consumer.URL, rows), "HOOK_SECRET="+hookSecret)
	for edition := 1; edition < editions; edition++ { // the sink is stopped: all of it waits
		site.publish(edition)
		if _, stderr, code := f.semel(collectEdition(edition)...); code != 3 {
			t.Fatalf("exit %d\n%s", code, stderr)
		}
	}
	site.publish(editions) // is collected while the others are delivered
	consumer.openUp()
	f.ok("outbox", "retry", "--sink", "ledger")
	for range kills {
		if !killed(t, f.command(collectEdition(editions)...), consumer.after(events/(kills+1))) {
			t.Fatal("it ended before it was killed")
		}
		consumer.settle()
		openChecked(t, f.path("semel.db")).Close()
	}
	f.racing().ok(collectEdition(editions)...)
	consumer.settle()
	f.ok("verify")
	consumer.wantAll(f, rows, events)
}

func collectEdition(n int) []string {
	return []string{"run", "--once", "--window", fmt.Sprintf("2026-04-%02d", n)}
}

// wantAll compares what arrived with what the store knows of it.
func (l *ledger) wantAll(f *folder, rows, events int) {
	l.t.Helper()
	if len(l.editions) != rows || len(l.arrivals) != events {
		l.t.Errorf("%d rows and %d events arrived, want %d and %d", len(l.editions), len(l.arrivals), rows, events)
	}
	for sku, order := range l.editions {
		want := 1
		if strings.HasSuffix(sku, "0") {
			want = editions
		}
		if !slices.IsSorted(order) || len(slices.Compact(slices.Clone(order))) != want {
			l.t.Errorf("row %s came in editions %v", sku, order)
		}
	}
	var counts storage.SinkCounts
	seen, twice := 0, 0
	s := openChecked(l.t, f.path("semel.db"))
	defer s.Close()
	err := s.View(func(tx *storage.Tx) (err error) {
		counts = tx.SinkCounts()["ledger"]
		var at storage.DispatchCursor
		for more := true; more && err == nil; more = at != (storage.DispatchCursor{}) {
			at, err = tx.Dispatches(storage.DispatchFilter{}, at, math.MaxInt, func(e *storage.Event, d *storage.Dispatch) error {
				seen++
				twice += min(l.arrivals[e.ID]-1, 1)
				l.wantOne(e, d)
				return nil
			})
		}
		return err
	})
	if err != nil || seen != events {
		l.t.Errorf("the store has %d events (%v)", seen, err)
	}
	l.t.Logf("%d of %d events came more than once; %d connections dropped; the store says %+v", twice, events, l.dropped, counts)
	if counts.Delivered+counts.Deduplicated != int64(events) || counts.Deduplicated != int64(twice) || counts.Pending+counts.Dead != 0 {
		l.t.Errorf("the store counts %+v", counts)
	}
	if twice == 0 || l.dropped < events/dropEvery/2 {
		l.t.Error("hardly anything went wrong: nothing is shown")
	}
}

// wantOne compares what arrived of an event.
func (l *ledger) wantOne(e *storage.Event, d *storage.Dispatch) {
	l.t.Helper()
	n, want := l.arrivals[e.ID], storage.OutcomeDelivered
	if n > 1 {
		want = storage.OutcomeDeduplicated
	}
	if d.State != storage.DispatchDelivered || d.Outcome != want || n < 1 || n-1 > int(d.Ambiguous) {
		l.t.Errorf("event %d came %d times, and is %s, %s after %d that are ambiguous", e.Seq, n, d.State, d.Outcome, d.Ambiguous)
	}
}
