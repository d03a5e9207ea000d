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
	// lateness is how much later than it should a server may give a message again.
	lateness = time.Second
)

// errHeld is of a source that has jobs enough which the run cannot do now.
var errHeld = errors.New("the source's jobs are held back")

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
	idle  time.Time // since when nothing has come; zero: something has just now
}

// takeTargets takes from the queue of a source until ctx ends, or with once until
// nothing is left in it. A queue that cannot be reached is told, and tried again
// unless that ends it.
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
		case errors.Is(err, errUnreadable):
			e.badFile(src, err)
			if once {
				return nil
			}
			wait = min(max(2*wait, firstReach), lastReach)
			now := e.now()
			if err := sleepUntil(ctx, now.Add(wait), now); err != nil {
				return err
			}
		case err != nil:
			return err
		case !more:
			return nil
		default:
			wait = 0
		}
	}
}

// next takes some messages and makes their jobs. false: the run should take no
// more.
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
// died.
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
	return left > 0 && now.Sub(t.idle) <= t.queue.AckWait()+lateness, nil
}

// makeJobs makes jobs of messages, and answers for them once that is durable.
func (t *taker) makeJobs(ctx context.Context, messages []broker.Message) error {
	release := t.queue.Hold(messages) // also while the disk is full
	good, jobs := t.jobs(messages)
	unknown, err := t.e.unknown(jobs)
	if err == nil {
		err = t.e.makeJobs(ctx, jobs, unknown, t.tally, nil)
	}
	release()
	if err != nil {
		t.queue.GiveBack(good)
		return err
	}
	if err := t.queue.Done(ctx, good); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// jobs are those of messages, each with its message. Messages that cannot become
// jobs are told and refused.
func (t *taker) jobs(messages []broker.Message) (good []broker.Message, jobs []storage.NewJob) {
	for _, m := range messages {
		job, err := t.job(m)
		if bad, ok := errors.AsType[*intake.RowError](err); ok {
			t.tally.bad(bad)
			m.Refuse(bad.Reason)
			continue
		}
		good, jobs = append(good, m), append(jobs, job)
	}
	return good, jobs
}

// job is that of a message. Its error is a *intake.RowError.
func (t *taker) job(m broker.Message) (storage.NewJob, error) {
	target, err := intake.Message(t.src.Targets.Path, m.Sequence, m.Data)
	if err != nil {
		return storage.NewJob{}, err
	}
	return t.src.NewJob(target, time.Time{})
}
