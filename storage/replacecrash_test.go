package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"semel/failpoint"
	"semel/storage"
)

const (
	// crashReplace names the store in the environment of a child process, and
	// crashAt the commit, from 0, at which it dies.
	crashReplace = "SEMEL_TEST_CRASH_REPLACE"
	crashAt      = "SEMEL_TEST_CRASH_AT"

	crashRounds = 4
	crashJobs   = 5
)

// replaceChild collects one window in several rounds, until all is done or it
// dies.
func replaceChild(path string) {
	at, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		panic(err)
	}
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		panic(err)
	}
	dieAt(at)
	for more := true; more; {
		err := s.Update(context.Background(), func(tx *storage.Tx) (err error) {
			more, err = replaceStep(tx)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	failpoint.Set(nil)
	if err := s.Close(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// dieAt kills the process in its nth commit, before or after it is written.
func dieAt(n int) {
	point := failpoint.BeforeCommit
	if n%2 == 1 {
		point = failpoint.AfterCommit
	}
	failpoint.Set(func(p failpoint.Point, _ string) error {
		if p == point {
			if n--; n < 0 {
				if self, err := os.FindProcess(os.Getpid()); err == nil {
					_ = self.Kill()
				}
				select {} // Kill returns before the process is gone
			}
		}
		return nil
	})
}

// replaceStep does the next thing there is to do, by what the store says.
func replaceStep(tx *storage.Tx) (more bool, err error) {
	_, err = tx.RescueExpired(storage.AllLeases, 1, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
	if err != nil {
		return false, err
	}
	claimed, err := tx.ClaimJobs("child", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
	if err != nil {
		return false, err
	}
	if len(claimed[0]) == 1 {
		return true, completeRound(tx, claimed[0][0])
	}
	run, err := tx.Run(1)
	if errors.Is(err, storage.ErrNotFound) {
		return true, beginRounds(tx)
	}
	if err != nil {
		return false, err
	}
	for id := range run.Jobs {
		round, err := roundOf(tx, id+1)
		if err != nil || round > crashRounds {
			return false, err
		}
		if _, err := tx.RecollectJob(id + 1); err != nil {
			return false, err
		}
	}
	return true, nil
}

func beginRounds(tx *storage.Tx) error {
	r, err := tx.OpenRun(storage.RunKey{Source: "s", Window: replaceWindow}, storage.RunTick)
	if err != nil {
		return err
	}
	tx.BeginListing(r)
	for i := range crashJobs {
		if _, err := tx.EnqueueJob(jobsIn(replaceWindow, fmt.Sprint(i))[0]); err != nil {
			return err
		}
	}
	if r, err = tx.Run(r.ID); err != nil {
		return err
	}
	return tx.EndListing(r, nil)
}

// roundOf is the round that a job is in, from 1.
func roundOf(tx *storage.Tx, id uint64) (int, error) {
	attempts, err := tx.Attempts(id)
	round := 1
	for _, a := range attempts {
		if a.Outcome == storage.OutcomeComplete {
			round++
		}
	}
	return round, err
}

// completeRound brings two rows that each round changes, and one that stands for
// the round.
func completeRound(tx *storage.Tx, j *storage.Job) error {
	round, err := roundOf(tx, j.ID)
	if err != nil {
		return err
	}
	c := storage.Completion{Attempt: storage.Attempt{ParserVersion: 1}, Mode: storage.WriteReplace}
	for _, key := range crashRows(j.Key.Target, round) {
		c.Records = append(c.Records, storage.NewObservation{Key: key, Data: fmt.Appendf(nil, `{"v":"%d"}`, round)})
	}
	_, err = tx.CompleteJob(j.Lease(), c)
	return err
}

func crashRows(target string, round int) []string {
	return []string{target + " a", target + " b", fmt.Sprint(target, " r", round)}
}

// TestReplaceCrash kills a process again and again in the commits around each
// step: the window always has the rows of one whole round, and in the end those of
// the last.
func TestReplaceCrash(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "semel.db")
	kills := 0
	for done := false; !done; kills++ {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), crashReplace+"="+path, fmt.Sprintf("%s=%d", crashAt, random.IntN(4)))
		out, err := child.CombinedOutput()
		killed, died := errors.AsType[*exec.ExitError](err)
		if done = err == nil; !done && (!died || killed.Exited()) {
			t.Fatalf("the child ended with %v: %s", err, out)
		}
		wantOneRound(t, path, done)
	}
	t.Logf("%d kills", kills-1)
	if kills < 5 {
		t.Errorf("%d kills: too few to meet anything", kills-1)
	}
}

func wantOneRound(t *testing.T, path string, last bool) {
	t.Helper()
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	breaches, err := s.Check()
	if err != nil || len(breaches) > 0 {
		t.Fatalf("check: %v, %v", breaches, err)
	}
	rows := observations(t, s, "s")
	if len(rows) == 0 && !last {
		return
	}
	round, err := strconv.Atoi(strings.Trim(string(rows[0].Data), `{":v}`))
	if err != nil || last && round != crashRounds {
		t.Fatalf("round %s stands (%v)", rows[0].Data, err)
	}
	var want []string
	for i := range crashJobs {
		for _, key := range crashRows(fmt.Sprint(i), round) {
			want = append(want, fmt.Sprintf(`%s={"v":"%d"}`, key, round))
		}
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows of round %d, want %d", len(rows), round, len(want))
	}
	for i, o := range rows {
		if got := o.Key.Target + "=" + string(o.Data); got != want[i] {
			t.Fatalf("row %d of round %d is %s, want %v", i, round, got, want)
		}
	}
}
