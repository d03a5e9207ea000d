package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"semel/storage"
)

const (
	barPeriod  = 300 * time.Millisecond // fast enough for an eye
	linePeriod = 30 * time.Second       // a log of a day stays readable
)

// console is stderr with a progress bar on its last line: what else is written
// takes the bar away first; the next drawing puts it back.
type console struct {
	terminal bool   // else there is never a bar
	unit     string // of what is counted, for its rate; "": none is shown

	mu  sync.Mutex
	w   io.Writer
	bar *progressbar.ProgressBar // nil: none is shown
}

func newConsole(w io.Writer) *console { return &console{w: w, terminal: isTerminal(w)} }

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	return c.w.Write(p)
}

// hide takes the bar away until it is drawn again.
func (c *console) hide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

func (c *console) clear() {
	if c.bar != nil {
		_ = c.bar.Clear()
	}
}

// draw shows a bar of done out of total with a text before it.
func (c *console) draw(done, total int64, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A bar that has reached its end stays there for ever, and more targets may
	// still come: the end is shown by finish.
	total = max(total, done+1)
	if c.bar == nil {
		options := []progressbar.Option{
			progressbar.OptionSetWriter(c.w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetRenderBlankState(false),
		}
		if c.unit != "" {
			options = append(options, progressbar.OptionShowIts(), progressbar.OptionSetItsString(c.unit))
		}
		c.bar = progressbar.NewOptions64(total, options...)
	}
	c.bar.Describe(text)
	c.bar.ChangeMax64(total)
	_ = c.bar.Set64(done)
}

// finish takes the bar away for good.
func (c *console) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.bar = nil
}

// progress tells how far the jobs of some sources are.
type progress struct {
	store   *storage.Store
	sources []string
	out     *console

	started time.Time
	first   tally // when it began
}

// tally are the counters that progress shows, summed over the sources.
type tally struct {
	complete, failed, waiting, retries, bytes int64
	events                                    int64 // that wait for sinks
}

func (t tally) done() int64  { return t.complete + t.failed }
func (t tally) total() int64 { return t.done() + t.waiting }

// begin reads what was there before. Call it before the work begins.
func (p *progress) begin(now time.Time) {
	p.started = now
	p.first, _ = p.read() // a store that cannot be read ends the run anyway
}

// watch tells the progress until ctx ends: as a bar on a terminal, else as a
// line now and then and one at the end.
func (p *progress) watch(ctx context.Context) {
	period := linePeriod
	if p.out.terminal {
		period = barPeriod
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			p.out.finish()
			if !p.out.terminal {
				p.tell(time.Now())
			}
			return
		case now := <-ticker.C:
			p.tell(now)
		}
	}
}

// tell shows the progress. A store that cannot be read has stopped, and the
// run ends with the reason.
func (p *progress) tell(now time.Time) {
	t, err := p.read()
	if err != nil {
		return
	}
	if p.out.terminal {
		p.out.draw(t.done(), t.total(), p.barText(t))
		return
	}
	fmt.Fprintf(p.out, "semel: %s\n", p.lineText(t, now.Sub(p.started)))
}

func (p *progress) read() (t tally, err error) {
	err = p.store.View(func(tx *storage.Tx) error {
		t = tally{}
		for _, sink := range tx.SinkCounts() {
			t.events += sink.Pending
		}
		for _, name := range p.sources {
			c := tx.Counters(name)
			t.complete += c.State(storage.StateComplete)
			t.failed += c.State(storage.StateFailed)
			t.waiting += c.State(storage.StatePending) + c.State(storage.StateRunning) + c.State(storage.StateRetryable)
			t.bytes += c[storage.MetricBytesUp] + c[storage.MetricBytesDown]
			for _, n := range c.By(storage.MetricRetries) {
				t.retries += n
			}
		}
		return nil
	})
	return t, err
}

func (p *progress) barText(t tally) string {
	return fmt.Sprintf("%d failed, %d retries, %s%s", t.failed, t.retries-p.first.retries, bytesText(t.bytes-p.first.bytes), t.eventsText())
}

// lineText tells states as they are, and the work as that of this run.
func (p *progress) lineText(t tally, elapsed time.Duration) string {
	percent, rate := int64(0), 0.0
	if t.total() > 0 {
		percent = t.done() * 100 / t.total()
	}
	if elapsed > 0 {
		rate = float64(max(0, t.done()-p.first.done())) / elapsed.Seconds()
	}
	return fmt.Sprintf("%d%% of %s: %d complete, %d failed, %d waiting; %d retried, %s, %.1f jobs/s%s",
		percent, count(t.total(), "job"), t.complete, t.failed, t.waiting,
		t.retries-p.first.retries, bytesText(t.bytes-p.first.bytes), rate, t.eventsText())
}

// eventsText ends a line where events wait.
func (t tally) eventsText() string {
	if t.events == 0 {
		return ""
	}
	return "; " + count(t.events, "event") + " to deliver"
}
