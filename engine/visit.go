package engine

import (
	"context"
	"net/url"

	"semel/engine/fetch"
	"semel/engine/intake"
	"semel/storage"
)

// visit answers for each hop of an attempt whether it may be made: robots.txt
// of its origin, fetched through the same session, and the pace of a host that
// the job was not claimed for.
type visit struct {
	attempt *attempt
	session *fetch.Session
	record  *storage.Attempt // is charged with every byte
	pace    *pacer
	lane    string // host that the claim took a place at; "": none did

	owed bool   // the step's first hop waits for its host's turn: no claim has
	once string // name of the step to be marked as sent before its first hop; "": none

	loginOK          bool  // the gateway took the login during this visit
	lateUp, lateDown int64 // the session's late bytes before this visit

	at string // host that it has a place at; "": at none
}

func newVisit(a *attempt, s *fetch.Session, record *storage.Attempt) *visit {
	v := &visit{attempt: a, session: s, record: record, pace: a.engine.pace, lane: a.lane}
	if host := a.engine.guestOf; host != nil {
		v.pace, v.lane = host.pace, ""
	}
	v.at = v.lane
	v.lateUp, v.lateDown = s.LateBytes()
	return v
}

// begin comes before the n-th step: the first one was paced by the claim, where
// there was one.
func (v *visit) begin(n int, step *Step) {
	v.owed, v.once = n > 0 || v.lane == "", ""
	if step.Once {
		v.once = step.mark()
	}
}

// do makes a request and charges the attempt with it.
func (v *visit) do(ctx context.Context, req fetch.Request) (*fetch.Page, fetch.Trace, error) {
	page, trace, err := v.session.Do(ctx, req)
	v.book(trace)
	return page, trace, err
}

// allow answers for one hop. Its last word before a step that must not be
// repeated is that step's mark: then waiting and robots.txt are over.
func (v *visit) allow(ctx context.Context, u *url.URL) error {
	if err := v.admit(ctx, u); err != nil || v.once == "" {
		return err
	}
	step := v.once
	v.once = "" // redirects lead elsewhere
	return v.attempt.markSent(ctx, step)
}

func (v *visit) admit(ctx context.Context, u *url.URL) error {
	e := v.attempt.engine
	host := intake.HostOf(u)
	if err := v.move(ctx, host); err != nil {
		return err
	}
	if !e.opts.Robots {
		return nil
	}
	delay, err := e.robots.check(ctx, v, u)
	if err != nil || delay == 0 || !v.pace.slow(host, delay, v.attempt.started) {
		return err
	}
	return v.pace.wait(ctx, host)
}

// move takes a place at the host of the next hop, and the next start there. The
// claim has taken both at the job's own host.
func (v *visit) move(ctx context.Context, host string) error {
	if host != v.at {
		v.leave()
		if err := v.pace.enter(ctx, host, host == v.lane); err != nil {
			return err
		}
		v.at = host
	}
	if !v.owed && host == v.attempt.host() {
		return nil
	}
	v.owed = false
	return v.pace.wait(ctx, host)
}

func (v *visit) leave() {
	if v.at != "" {
		v.pace.leave(v.at, v.at == v.lane)
		v.at = ""
	}
}

// end gives up what the visit has but for the claim's own place.
func (v *visit) end() {
	if v.at == v.lane {
		return
	}
	v.leave()
	if v.lane != "" {
		v.pace.comeHome(v.lane)
	}
}

// bytesLeft is what the job's byte limit leaves for the next exchange, at least
// 1 since 0 means no limit. It is looked at before a page's own robots.txt is
// fetched, so a page may go over by as much as that took.
func (v *visit) bytesLeft() int64 {
	return max(1, v.attempt.src.Limits.Bytes-v.attempt.job.Spent-v.record.BytesUp-v.record.BytesDown)
}

// book charges the attempt with what an exchange cost, and notes its login.
func (v *visit) book(t fetch.Trace) {
	v.loginOK = v.loginOK || t.ProxyLoginOK
	v.record.BytesUp += t.BytesUp
	v.record.BytesDown += t.BytesDown
}

// bookLate charges the attempt with what its session sent outside of any
// exchange, such as TLS's goodbye when it was closed: that is paid for, too.
// The direct session is shared, so there such bytes may be another's.
func (v *visit) bookLate() {
	if v.session.Direct() {
		return
	}
	up, down := v.session.LateBytes()
	v.record.BytesUp += up - v.lateUp
	v.record.BytesDown += down - v.lateDown
}
