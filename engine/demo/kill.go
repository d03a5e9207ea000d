package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// kills is how often the working child is killed, its moments spread evenly
// over the pages.
const kills = 5

// kill is one death of the child, and what the next one made of it.
type kill struct {
	served    int // pages that the site had answered, over all children
	committed int // of them in the store
	held      int // attempts that this death cut off: their jobs' leases
	resumed   int // leases that the next child took back, of earlier deaths, too
}

// untaken is how many leases of dead children nobody has taken back: a child
// may be killed before it has come to that.
func untaken(kills []kill) int {
	n := 0
	for _, k := range kills {
		n += k.held - k.resumed
	}
	return n
}

// workKilled lets children do the work: each is killed when so many pages were
// served, the last one may finish.
func (r *run) workKilled(ctx context.Context) error {
	open, last := r.before.open(r.Pages), 0
	for i := range kills {
		mark := open * (i + 1) / (kills + 1)
		if mark == last { // too few pages for so many deaths
			continue
		}
		last = mark
		killed, err := r.child(ctx, r.shop.awaitServed(mark))
		if err != nil || !killed {
			return err
		}
		if err := r.bury(mark); err != nil {
			return err
		}
	}
	_, err := r.child(ctx, nil)
	return err
}

// bury looks at what a killed child left.
func (r *run) bury(served int) error {
	now, err := readState(r.folder.store())
	if err != nil {
		return err
	}
	r.resume(now)
	k := kill{served: served, committed: len(now.complete) - len(r.before.complete), held: now.held - untaken(r.kills)}
	r.kills = append(r.kills, k)
	r.shop.seal(now.complete)
	r.tell("killed the working process: %d pages served, %d committed, %d cut off; starting it again", k.served, k.committed, k.held)
	return nil
}

// resume books what was taken back since the last death.
func (r *run) resume(now state) {
	if len(r.kills) == 0 {
		return
	}
	taken := now.recovered() - r.before.recovered()
	for _, k := range r.kills {
		taken -= k.resumed
	}
	r.kills[len(r.kills)-1].resumed = taken
}

// child runs the command in a process of its own until it ends, or is killed
// when the mark is reached. A child that ended before the kill arrived counts
// as not killed.
func (r *run) child(ctx context.Context, mark <-chan struct{}) (killed bool, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, r.Executable, "run", "--once", "-c", r.folder.config())
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting the working process: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-mark:
		_ = cmd.Process.Kill() // one that has ended already says so through Wait
		killed = <-ended != nil
	}
	if ctx.Err() != nil {
		return killed, context.Cause(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("the working process: %w\n%s", err, bytes.TrimSpace(said.Bytes()))
	}
	return killed, nil
}
