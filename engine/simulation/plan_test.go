package simulation

import (
	"errors"
	"io/fs"
	"net/http"
	"slices"
	"syscall"
	"time"

	"semel/failpoint"
	"semel/storage"
)

// event is something that befalls a life. Its name stands in the table of
// coverage, where it counts when it has really happened.
type event struct {
	name   string
	befall func(l *life, name string)
}

// endings are how a life may be made to end. One that waits for a moment which
// does not come lets the life end on its own.
var endings = slices.Concat(slices.Repeat(crashes, 6), []event{
	{"failing fsync, nothing was written", cutAt(before, syscall.EIO)},
	{"failing fsync, all was written", cutAt(after, syscall.EIO)},
	{"failing write", failWrite},
	{"crash before pages are appended", failPages(failpoint.AppendPages, errPowerOff)},
	{"crash before pages are synced", failPages(failpoint.SyncPages, errPowerOff)},
	{"failing fsync of pages", failPages(failpoint.SyncPages, &fs.PathError{Op: "sync", Err: syscall.EIO})},
	{"crash between commits", crash},
	{"clean stop", stop},
	{"a second engine takes over", takeOver},
})

// crashes come more often than other endings: there are many boundaries.
var crashes = []event{
	{"crash before a commit", cutAt(before, errPowerOff)},
	{"crash after a commit", cutAt(after, errPowerOff)},
}

// disturbances do not end a life.
var disturbances = []event{
	{"clock jumps ahead", jump(time.Second, 6*time.Hour)},
	// Further back would show nothing more: a process waits a jump out, since
	// here also what it has in memory is wall clock.
	{"clock jumps back", jump(-20*time.Minute, -time.Second)},
	{"full disk", spell(40*time.Second, (*disk).setFull)},
	{"slow commits", spell(40*time.Second, (*disk).setSlow)},
	{"gateway refuses every login (407)", refuse(http.StatusProxyAuthRequired)},
	{"gateway: account used up (402)", refuse(http.StatusPaymentRequired)},
	{sinkDown, sinkFails},
	{"a second process is refused the store", secondProcess},
}

// plan draws what befalls a life. After a few lives nothing does any more, so
// that a world comes to its end.
func (l *life) plan() {
	lives := 5 + l.w.seed.draw("lives with an ending").below(4)
	if l.w.calm || l.n > lives {
		return
	}
	l.disturbed = true
	e := oneOf(l.draw("ending"), endings)
	e.befall(l, e.name)
	for i := range l.draw("disturbances").below(4) {
		d := oneOf(l.draw("disturbance", i), disturbances)
		d.befall(l, d.name)
	}
}

// later does something at a time of a life's first 20 seconds, unless the
// engine has ended before.
func (l *life) later(what string, do func()) {
	at := l.draw("time of", what).between(0, 20*time.Second)
	l.group.Go(func() {
		if l.rest(at, what, l.n) {
			do()
		}
	})
}

// often are the kinds that one life has many of.
var often = []kind{enqueue, claimed, renew, complete, retry, promote, take, acknowledge, putOff}

// targets are the kinds that a crash looks for; those that would come too seldom
// stand here again.
var targets = slices.Concat(kinds, []kind{
	enqueue, enqueue, enqueue, enqueue, enqueue, enqueue, complete, complete, renew, renew, retry, promote, stale,
	fail, fail, fail, release, release, release, rescue, rescue, stale, stale, forget, forget, forget,
	take, giveUp, giveUp, giveBack, giveBack, salvage, salvage, salvage, salvage, salvage, salvage, salvage, requeue, requeue, halt, resume,
})

// cutAt ends the disk at a boundary: of any transaction or, so that the rare
// ones have their share, of one of a kind.
func cutAt(s side, err error) func(*life, string) {
	return func(l *life, name string) {
		c := &cut{fault: name, side: s, err: err, skip: l.draw("skip").below(60)}
		if !l.draw("any kind").oneIn(10) {
			c.kind, c.skip = oneOf(l.draw("kind"), targets), 0
		}
		if l.n == 1 && l.draw("first").oneIn(5) {
			c.kind, c.skip = register, 0 // there will be no other
		}
		if slices.Contains(often, c.kind) {
			c.skip = l.draw("skip").below(4)
		}
		switch c.kind { // some need help to come
		case release, giveBack:
			stop(l, "clean stop")
		case stale:
			takeOver(l, "a second engine takes over")
		}
		l.w.disk.set(func(d *disk) { d.cut = c })
	}
}

func crash(l *life, name string) {
	l.later(name, func() { l.w.disk.crash(name) })
}

func failWrite(l *life, name string) {
	l.later(name, func() { l.w.disk.set(func(d *disk) { d.badWrite = name }) })
}

func stop(l *life, name string) {
	l.later(name, func() {
		l.w.met(name)
		l.stop()
	})
}

// takeOver is a successor that begins while the process before it, told to go,
// still has attempts under way: those must not be able to write any more.
func takeOver(l *life, name string) {
	l.later(name, func() {
		l.w.met(name)
		l.succeeded.Store(true)
		l.stop()
		l.work(l.ctx, "successor")
	})
}

func jump(low, high time.Duration) func(*life, string) {
	return func(l *life, name string) {
		l.later(name, func() {
			l.w.met(name)
			l.w.clock.jump(l.draw(name, "by").between(low, high).Truncate(time.Second))
		})
	}
}

// spell is a state of the disk that passes.
func spell(most time.Duration, set func(*disk, bool)) func(*life, string) {
	return func(l *life, name string) {
		l.later(name, func() {
			set(l.w.disk, true)
			l.wait(l.ctx, l.draw(name, "for").between(time.Second, most), name, "over", l.n)
			set(l.w.disk, false)
		})
	}
}

// refuse is a spell of the gateway's.
func refuse(status int) func(*life, string) {
	return func(l *life, name string) {
		l.later(name, func() {
			l.w.site.refuse(status, name)
			l.wait(l.ctx, l.draw(name, "for").between(time.Second, 30*time.Second), name, "over", l.n)
			l.w.site.refuse(0, "")
		})
	}
}

// secondProcess is one that wants the store while it is in use.
func secondProcess(l *life, name string) {
	l.later(name, func() {
		s, err := storage.Open(l.w.disk.path, storage.Options{NoSync: true})
		if !errors.Is(err, storage.ErrInUse) {
			l.w.failf("a second process opened the store: %v", errors.Join(err, s.Close()))
			return
		}
		l.w.met(name)
	})
}
