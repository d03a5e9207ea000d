package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"semel/engine/broker"
	"semel/engine/intake"
	"semel/storage"
)

const (
	// takeBatch is how many messages are taken at once: a transaction's worth,
	// of which even the largest that a server lets through by default (1 MB) fit
	// into memory.
	takeBatch = 100
	// minAhead is how many open jobs a source with a queue may have at least.
	minAhead = 100
	// roomLook is how often a full source looks whether there is room again.
	roomLook = 100 * time.Millisecond
	// longWait is how long a server is asked to wait for a message, and lastWait
	// the same where the run ends when there is none.
	longWait = 30 * time.Second
	lastWait = 250 * time.Millisecond
	// A queue that cannot be reached is tried again after firstReach, then after
	// twice as long each time, up to lastReach.
	firstReach = time.Second
	lastReach  = time.Minute
	// A message that does not fit this source is kept from all who share its queue
	// for unfitDelay, once more for each time that it was taken, up to maxUnfitDelay.
	unfitDelay    = time.Minute
	maxUnfitDelay = time.Hour
	// lateness is how much later than it should a server may give a message again.
	lateness = time.Second
)

var (
	// errHeld is of a source that has jobs enough which the run cannot do now.
	errHeld = errors.New("the source's jobs are held back")
	// errUnfit is of messages of which none could become a job of the source.
	errUnfit = errors.New("no message fits the source")
)

// taker makes jobs of the messages of a source's queue. Each is acknowledged
// after its job is committed, so none is lost; one that comes again finds its job
// there. No more are taken than the source can soon work, so that all who share
// the queue get their part.
type taker struct {
	e     *Engine
	src   *Source
	queue *broker.Queue
	tally tally
	once  bool      // end when nothing is left
	unfit int       // messages that were postponed
	idle  time.Time // since when nothing has come; zero: something has just now
}

// takeTargets takes from the queue of a source until ctx ends, or with once until
// nothing is left in it. A queue that cannot be reached is told, and tried again
// unless that ends it; so is one whose messages do not fit, which others may use.
func (e *Engine) takeTargets(ctx context.Context, src *Source, once bool) error {
	t := &taker{
		e: e, src: src, once: once, tally: e.tally(src),
		queue: broker.NewQueue(e.opts.NATS, src.Targets.Path, "semel_"+src.Name),
	}
	defer t.queue.Close()
	var wait time.Duration
	for {
		more, err := t.next(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && more:
			wait = 0
			continue
		case errors.Is(err, errUnreadable):
			e.badFile(src, err)
		case !errors.Is(err, errUnfit):
			return err
		}
		if once {
			return nil
		}
		wait = min(max(2*wait, firstReach), lastReach)
		now := e.now()
		if err := sleepUntil(ctx, now.Add(wait), now); err != nil {
			return err
		}
	}
}

// next takes some messages and makes their jobs. false: the run should take no
// more. Errors: errUnreadable, errUnfit.
func (t *taker) next(ctx context.Context) (more bool, err error) {
	room, err := t.room(ctx)
	if errors.Is(err, errHeld) {
		t.e.opts.Log.Warn("the rest is left in the queue: the source has jobs enough that are held back", "source", t.src.Name)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	wait := longWait
	if t.once {
		wait = lastWait
	}
	messages, err := t.queue.Take(ctx, min(room, takeBatch), wait)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if len(messages) == 0 {
		return t.expects(ctx)
	}
	t.idle = time.Time{}
	return true, t.makeJobs(ctx, messages)
}

// room waits until the source has room for messages, and gives for how many.
// Error: errHeld, where the run would wait in vain.
func (t *taker) room(ctx context.Context) (int, error) {
	most := max(4*t.e.opts.Workers, minAhead)
	for {
		open, workable := 0, true
		err := t.e.opts.Store.View(func(tx *storage.Tx) (err error) {
			open = int(tx.Counters(t.src.Name).Open())
			if t.once {
				workable, err = t.e.workable(tx)
			}
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case open <= most*3/4: // not for each job that ends: a transaction is made for several
			return most - open, nil
		case !workable:
			return 0, errHeld
		}
		now := t.e.now()
		if err := sleepUntil(ctx, now.Add(roomLook), now); err != nil {
			return 0, err
		}
	}
}

// expects reports whether messages may still come, after none was there: without
// once always, else while some are on their way, or out with others who may have
// died. What was postponed is left to others.
func (t *taker) expects(ctx context.Context) (bool, error) {
	if !t.once {
		return true, nil
	}
	left, err := t.queue.Left(ctx)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	now := t.e.now()
	if t.idle.IsZero() {
		t.idle = now
	}
	return left > t.unfit && now.Sub(t.idle) <= t.queue.AckWait()+lateness, nil
}

// makeJobs makes jobs of messages, and answers for them once that is durable.
func (t *taker) makeJobs(ctx context.Context, messages []broker.Message) error {
	release := t.queue.Hold(messages) // also while the disk is full
	good, jobs, unfit := t.jobs(messages)
	unknown, err := t.e.unknown(jobs)
	if err == nil {
		err = t.e.makeJobs(ctx, jobs, unknown, t.tally, nil)
	}
	release()
	t.postpone(unfit)
	if err != nil {
		t.queue.GiveBack(good)
		return err
	}
	if err := t.queue.Done(ctx, good); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if len(good) == 0 && len(unfit) > 0 {
		return errUnfit
	}
	return nil
}

// jobs are those of messages, each with its message. Messages that cannot become
// jobs are told: what nobody can read is refused, and what does not fit this source
// as it is configured here is given.
func (t *taker) jobs(messages []broker.Message) (good []broker.Message, jobs []storage.NewJob, unfit []broker.Message) {
	for _, m := range messages {
		target, err := intake.Message(t.src.Targets.Path, m.Sequence, m.Data)
		if bad, ok := errors.AsType[*intake.RowError](err); ok {
			t.tally.bad(bad)
			m.Refuse(bad.Reason)
			continue
		}
		job, err := t.src.NewJob(target, time.Time{})
		if bad, ok := errors.AsType[*intake.RowError](err); ok {
			t.tally.bad(bad)
			unfit = append(unfit, m)
			continue
		}
		good, jobs = append(good, m), append(jobs, job)
	}
	return good, jobs, unfit
}

// postpone leaves messages to others who share the queue, whose config may be the
// right one, or to this one's when it is mended. The stream's limits, and those of
// its consumer, say for how long.
func (t *taker) postpone(messages []broker.Message) {
	if len(messages) == 0 {
		return
	}
	for _, m := range messages {
		m.Postpone(min(time.Duration(m.Taken)*unfitDelay, maxUnfitDelay))
	}
	t.unfit += len(messages)
	t.e.opts.Log.Warn("messages do not fit the source as it is configured here: they are left in the queue for other boxes, and come again later; compare the configs",
		"source", t.src.Name, "messages", len(messages))
}
