package engine

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"semel/engine/broker"
	"semel/engine/brokertest"
	"semel/engine/intake"
	"semel/storage"
)

// newQueue starts a server with stream TODO, which forgets what is done, and gives
// it with source shop, which takes its targets from there.
func newQueue(t *testing.T) (*brokertest.Server, jetstream.Stream, Source) {
	t.Helper()
	s := brokertest.Start(t, nil)
	stream := s.Stream(jetstream.StreamConfig{Name: "TODO", Subjects: []string{"todo"}, Retention: jetstream.WorkQueuePolicy})
	src := source(t, 0)
	src.Targets = intake.Spec{Kind: intake.Queue, Path: "TODO"}
	return s, stream, src
}

// put puts messages into the queue.
func put(t *testing.T, s *brokertest.Server, messages ...string) {
	t.Helper()
	js := s.JetStream()
	for _, m := range messages {
		if _, err := js.Publish(t.Context(), "todo", []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
}

// ids are n messages with the variable id.
func ids(n int) []string {
	messages := make([]string, n)
	for i := range messages {
		messages[i] = fmt.Sprintf(`{"id":%d}`, i)
	}
	return messages
}

// left is how many messages a stream has.
func left(t *testing.T, stream jetstream.Stream) int {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

func queueOptions(t *testing.T, s *brokertest.Server, web http.RoundTripper, src Source) Options {
	opts := options(openStore(t), web, src)
	opts.NATS = broker.Server{}.At(s.URL())
	return opts
}

func allProducts() *site {
	return newSite(func(req *http.Request, _ int) (*http.Response, error) { return product(req.URL.Path), nil })
}

// TestTakeOnce: a run takes all there is, makes a job of each target once, and
// leaves an empty queue.
func TestTakeOnce(t *testing.T) {
	s, stream, src := newQueue(t)
	put(t, s, ids(250)...)
	put(t, s, ids(3)...)
	web := allProducts()
	opts := queueOptions(t, s, web, src)
	sum := runOnce(t, opts)
	if sum.New != 250 || sum.Known != 3 || sum.Completed != 250 || sum.BadRows+sum.BadFiles != 0 || !sum.Offered {
		t.Errorf("summary %+v", sum)
	}
	if n := left(t, stream); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	if web.total() != 250 {
		t.Errorf("%d pages were asked for, want 250", web.total())
	}
	put(t, s, `{"id":7}`)
	if sum := runOnce(t, opts); sum.New != 0 || sum.Known != 1 || left(t, stream) != 0 {
		t.Errorf("a target that came before: %+v, %d left", sum, left(t, stream))
	}
}

// TestTakeBad: a message that cannot be a job is told with its place, and holds back
// no other. What nobody can read is ended; what does not fit this source stays.
func TestTakeBad(t *testing.T) {
	s, stream, src := newQueue(t)
	put(t, s, `{"id":"1"}`, `{"id":`, `[1]`, "", `{"sku":"2"}`, `{"id":{"n":1}}`, "http://shop.test/p/9", "caf\xe9", `{"id":"2"}`)
	sum, log := loggedOnce(t, queueOptions(t, s, allProducts(), src))
	if sum.Completed != 2 || sum.BadRows != 7 || left(t, stream) != 2 {
		t.Errorf("summary %+v, %d left", sum, left(t, stream))
	}
	for _, want := range []string{
		"nats:TODO:2: is not a whole JSON object", "nats:TODO:3: is neither a JSON object nor a URL", "nats:TODO:4: is neither",
		`nats:TODO:5: url: variable \"id\"`, `nats:TODO:6: value of \"id\" is nested`, `nats:TODO:7: url: variable \"id\"`, "nats:TODO:8: is not UTF-8",
		"messages do not fit the source as it is configured here", "messages=2",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %s:\n%s", want, log)
		}
	}
}

// TestTakeUnfit: a box whose template does not fit drops nothing: it leaves all
// messages to a box with the right one, after it has looked at one batch of them.
func TestTakeUnfit(t *testing.T) {
	s, stream, right := newQueue(t)
	consumer := jetstream.ConsumerConfig{Durable: "semel_shop", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1}
	if _, err := stream.CreateConsumer(t.Context(), consumer); err != nil {
		t.Fatal(err)
	}
	put(t, s, ids(250)...)
	wrong := right
	wrong.URL = template(t, "http://shop.test/p/{sku}")
	sum, log := loggedOnce(t, queueOptions(t, s, allProducts(), wrong))
	if sum.New != 0 || sum.BadRows != takeBatch || left(t, stream) != 250 || !strings.Contains(log, "messages do not fit the source") {
		t.Errorf("the wrong box: %+v, %d left\n%s", sum, left(t, stream), log)
	}
	opts := queueOptions(t, s, allProducts(), right)
	if sum := runOnce(t, opts); sum.Completed != 250-takeBatch || left(t, stream) != takeBatch {
		t.Errorf("the right box: %+v, %d left", sum, left(t, stream))
	}
	if err := stream.DeleteConsumer(t.Context(), consumer.Durable); err != nil { // the next one knows of no delays
		t.Fatal(err)
	}
	if sum := runOnce(t, opts); sum.Completed != takeBatch || left(t, stream) != 0 {
		t.Errorf("the right box later on: %+v, %d left", sum, left(t, stream))
	}
}

// TestTakeURLs: a message may be a URL and nothing else.
func TestTakeURLs(t *testing.T) {
	s, stream, src := newQueue(t)
	src.URL, src.Key = intake.Template{}, intake.Template{}
	put(t, s, "http://shop.test/p/1", `{"url":"http://shop.test/p/2"}`, "  http://shop.test/p/3\n")
	if sum := runOnce(t, queueOptions(t, s, allProducts(), src)); sum.Completed != 3 || left(t, stream) != 0 {
		t.Errorf("summary %+v, %d left", sum, left(t, stream))
	}
}

// TestTakeShared: two engines with a store each share a queue: each message goes
// to one of them.
func TestTakeShared(t *testing.T) {
	s, stream, src := newQueue(t)
	put(t, s, ids(400)...)
	web := allProducts()
	sums := make([]Summary, 2)
	var running sync.WaitGroup
	for i := range sums {
		opts := queueOptions(t, s, web, src)
		running.Go(func() { sums[i] = runOnce(t, opts) })
	}
	running.Wait()
	if a, b := sums[0].Completed, sums[1].Completed; a+b != 400 || web.total() != 400 {
		t.Errorf("%d and %d complete, %d pages were asked for; want 400 in all", a, b, web.total())
	}
	if n := left(t, stream); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// TestTakeBounded: a source takes no more than it can soon work, so that another
// may have the rest.
func TestTakeBounded(t *testing.T) {
	s, _, src := newQueue(t)
	put(t, s, ids(300)...)
	release, asked := make(chan struct{}), make(chan struct{}, 300)
	opts := queueOptions(t, s, newSite(func(req *http.Request, _ int) (*http.Response, error) {
		asked <- struct{}{}
		<-release
		return product(req.URL.Path), nil
	}), src)
	opts.Pacing = pacing(opts.Workers, 0)
	done := make(chan Summary)
	go func() { done <- runOnce(t, opts) }()
	for range opts.Workers {
		<-asked
	}
	js := s.JetStream()
	pull, err := js.Consumer(t.Context(), "TODO", "semel_shop")
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { // the source is full
		info, err := pull.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return int(info.NumPending)+info.NumAckPending <= 200
	})
	batch, err := pull.Fetch(200, jetstream.FetchMaxWait(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for m := range batch.Messages() {
		others++
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	}
	if others != 200 {
		t.Errorf("another takes %d while the source is full, want 200", others)
	}
	close(release)
	if sum := <-done; sum.Completed != 100 {
		t.Errorf("summary %+v, want 100 complete", sum)
	}
}

// TestTakeHeld: a source whose jobs cannot be done now leaves the rest of its
// queue to others, and the run ends.
func TestTakeHeld(t *testing.T) {
	s, stream, src := newQueue(t)
	src.Proxies = []string{"gw"}
	put(t, s, ids(300)...)
	opts := queueOptions(t, s, nil, src)
	p := testProxy(t, "gw")
	p.Budget = 1
	opts.Proxies = []Proxy{p}
	if err := opts.Store.Update(t.Context(), func(tx *storage.Tx) error {
		tx.CountTraffic("shop", "shop.test", "gw", storage.Traffic{Up: 1})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	sum, log := loggedOnce(t, opts)
	if sum.New != 100 || sum.Open != 100 || left(t, stream) != 200 {
		t.Errorf("summary %+v, %d left; want 100 and 200", sum, left(t, stream))
	}
	if !strings.Contains(log, "the rest is left in the queue") {
		t.Errorf("the log does not say what is left:\n%s", log)
	}
}

// TestTakeDied: what was taken by somebody who died comes again, and a run waits
// for it.
func TestTakeDied(t *testing.T) {
	s, stream, src := newQueue(t)
	pull, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "semel_shop", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, ids(20)...)
	batch, err := pull.Fetch(5)
	if err != nil {
		t.Fatal(err)
	}
	for range batch.Messages() {
	}
	if sum := runOnce(t, queueOptions(t, s, allProducts(), src)); sum.Completed != 20 || left(t, stream) != 0 {
		t.Errorf("summary %+v, %d left", sum, left(t, stream))
	}
}

// TestTakeUnreachable: a queue that is not there holds back no other source, and is
// told as targets that cannot be read.
func TestTakeUnreachable(t *testing.T) {
	s, _, src := newQueue(t)
	gone := src
	gone.Name, gone.Targets.Path = "gone", "NONE"
	other := otherSource(t, "other", "http://shop.test/o/{id}", 3)
	opts := queueOptions(t, s, allProducts(), gone)
	opts.Sources = append(opts.Sources, other)
	sum, log := loggedOnce(t, opts)
	if sum.BadFiles != 1 || sum.Completed != 3 || !strings.Contains(log, "there is no such stream: create it (nats stream add NONE)") {
		t.Errorf("no stream: summary %+v\n%s", sum, log)
	}
	s.Stop()
	sum, log = loggedOnce(t, queueOptions(t, s, allProducts(), src))
	if sum.BadFiles != 1 || !strings.Contains(log, "reaching NATS at "+s.URL()) {
		t.Errorf("no server: summary %+v\n%s", sum, log)
	}
}

// TestTakeImplicit: a consumer that asks for no acknowledgements would lose what a
// crash cuts short.
func TestTakeImplicit(t *testing.T) {
	s := brokertest.Start(t, nil)
	stream := s.Stream(jetstream.StreamConfig{Name: "TODO", Subjects: []string{"todo"}})
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "semel_shop", AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Fatal(err)
	}
	put(t, s, ids(2)...)
	src := source(t, 0)
	src.Targets = intake.Spec{Kind: intake.Queue, Path: "TODO"}
	sum, log := loggedOnce(t, queueOptions(t, s, allProducts(), src))
	if sum.BadFiles != 1 || sum.New != 0 || !strings.Contains(log, "does not ask for explicit acknowledgements") {
		t.Errorf("summary %+v\n%s", sum, log)
	}
}

// daemon runs an engine until stop is called, which gives Run's error.
func daemon(t *testing.T, opts Options) (e *Engine, stop func() error) {
	t.Helper()
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := e.Run(ctx)
		ended <- err
	}()
	t.Cleanup(e.Close)
	return e, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// until asks again and again, a hundred times a second so that what it waits for
// has the processor, and for a minute at the longest.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never came")
		}
	}
}

// TestTakeDaemon: a daemon takes messages as they come, also after its server was
// away.
func TestTakeDaemon(t *testing.T) {
	s, stream, src := newQueue(t)
	pages := make(chan string, 100)
	opts := queueOptions(t, s, newSite(func(req *http.Request, _ int) (*http.Response, error) {
		pages <- req.URL.Path
		return product(req.URL.Path), nil
	}), src)
	_, stop := daemon(t, opts)
	var got []string
	for i := range 3 {
		put(t, s, fmt.Sprintf(`{"id":%d}`, i))
		got = append(got, <-pages)
	}
	until(t, func() bool { return left(t, stream) == 0 })
	s.Stop()
	s.Begin()
	put(t, s, `{"id":3}`)
	got = append(got, <-pages)
	stream, err := s.JetStream().Stream(t.Context(), "TODO")
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return left(t, stream) == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/p/0", "/p/1", "/p/2", "/p/3"}; !slices.Equal(got, want) {
		t.Errorf("pages %q, want %q", got, want)
	}
}

// holdFull has a daemon hold a message that it finds no room for on the disk. The
// consumer gives it to nobody else before ackWait.
func holdFull(t *testing.T, ackWait time.Duration) (pull jetstream.Consumer, stop func() error) {
	t.Helper()
	s, stream, src := newQueue(t)
	pull, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: "semel_shop", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	full := fullDisk(t)
	e, end := daemon(t, queueOptions(t, s, allProducts(), src))
	put(t, s, `{"id":1}`)
	until(t, func() bool { return e.Summary().Completed == 1 && left(t, stream) == 0 })
	full.Store(true)
	put(t, s, `{"id":2}`)
	until(t, func() bool { return !e.FullSince().IsZero() })
	return pull, func() error {
		defer full.Store(false)
		return end()
	}
}

// TestTakeFull: a message is held for as long as the disk is full.
func TestTakeFull(t *testing.T) {
	const ackWait = 3 * time.Second
	pull, stop := holdFull(t, ackWait)
	if _, err := pull.Next(jetstream.FetchMaxWait(ackWait * 3 / 2)); err == nil {
		t.Error("another got what is held")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestTakeGivenBack: a message that a run ends without having committed is there
// for others at once.
func TestTakeGivenBack(t *testing.T) {
	pull, stop := holdFull(t, time.Hour)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if m, err := pull.Next(jetstream.FetchMaxWait(20 * time.Second)); err != nil || string(m.Data()) != `{"id":2}` {
		t.Errorf("the message did not come back: %v", err)
	}
}

// TestTakeLogin: a login that is refused is told without it.
func TestTakeLogin(t *testing.T) {
	s := brokertest.Start(t, func(o *server.Options) { o.Authorization = "hunter2" })
	src := source(t, 0)
	src.Targets = intake.Spec{Kind: intake.Queue, Path: "TODO"}
	opts := queueOptions(t, s, allProducts(), src)
	opts.NATS = broker.NewServer(broker.Login{Token: "hunter3"}).At(s.URL())
	sum, log := loggedOnce(t, opts)
	if sum.BadFiles != 1 || !strings.Contains(log, "Authorization Violation") || strings.Contains(log, "hunter") {
		t.Errorf("summary %+v\n%s", sum, log)
	}
}
