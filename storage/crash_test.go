package storage_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"semel/storage"
)

// crashStore names the store in the environment of a child process.
const crashStore = "SEMEL_TEST_CRASH"

const crashWorkers = 8

// crashChild works on a store until it is killed. It prints a line after each
// update that was acknowledged: "enqueued NAME", "completed NAME GENERATION".
func crashChild(path string) {
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		fmt.Println("opening:", err)
		os.Exit(1)
	}
	var stdout sync.Mutex
	say := func(format string, args ...any) {
		stdout.Lock()
		defer stdout.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	// This process holds the lock, so whoever had a lease is dead.
	err = s.Update(context.Background(), func(tx *storage.Tx) error {
		_, err := tx.RescueExpired(tx.Now.Add(time.Hour), 1<<30, func(string) storage.RescuePolicy { return storage.RescuePolicy{} })
		return err
	})
	if err != nil {
		fmt.Println("rescuing:", err)
		os.Exit(1)
	}
	var workers sync.WaitGroup
	for w := range crashWorkers {
		workers.Go(func() { crashWorker(s, w, say) })
	}
	workers.Wait()
	os.Exit(1) // only an error ends a worker
}

func crashWorker(s *storage.Store, w int, say func(string, ...any)) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
		if err := s.Update(context.Background(), func(tx *storage.Tx) error { _, err := tx.EnqueueJob(target(name)); return err }); err != nil {
			say("enqueueing: %v", err)
			return
		}
		say("enqueued %s", name)
		var j *storage.Job
		err := s.Update(context.Background(), func(tx *storage.Tx) error {
			groups, err := tx.ClaimJobs("w", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 1}})
			if err == nil && len(groups[0]) == 1 {
				j = groups[0][0]
			}
			return err
		})
		if err != nil {
			say("claiming: %v", err)
			return
		}
		if j == nil {
			continue
		}
		c := record(storage.WriteInsert, 1, j.Key.Target, "x")
		c.Sinks = []storage.Subscription{{Sink: "a"}}
		if err := s.Update(context.Background(), func(tx *storage.Tx) error { _, err := tx.CompleteJob(j.Lease(), c); return err }); err != nil {
			say("completing: %v", err)
			return
		}
		say("completed %s %d", j.Key.Target, j.Generation)
	}
}

// TestCrash kills a working process at random moments: each time every
// acknowledged outcome is there, the store agrees with itself, and no
// observation or event is there twice.
func TestCrash(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 3
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "semel.db")
	enqueued, completed := map[string]bool{}, map[string]string{}
	for range kills {
		for _, line := range runAndKill(t, path, random.IntN(150)) {
			verb, rest, _ := strings.Cut(line, " ")
			name, generation, _ := strings.Cut(rest, " ")
			switch verb {
			case "enqueued":
				enqueued[name] = true
			case "completed":
				if before, twice := completed[name]; twice {
					t.Errorf("job %s completed under generation %s and under %s", name, before, generation)
				}
				completed[name] = generation
			default:
				t.Fatalf("the child says %q", line)
			}
		}
		wantAcknowledged(t, path, enqueued, completed)
	}
	if len(completed) == 0 {
		t.Error("no child came to complete a job")
	}
	t.Logf("%d jobs enqueued and %d completed over %d kills", len(enqueued), len(completed), kills)
}

// runAndKill runs a child until it has printed some lines and gives all it
// printed before it died.
func runAndKill(t *testing.T, path string, after int) (lines []string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), crashStore+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	whole := bufio.NewReader(out)
	for {
		line, err := whole.ReadString('\n')
		if err != nil {
			break // a cut line was not acknowledged
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		if len(lines) == after+1 {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var killed *exec.ExitError
	if err := child.Wait(); !errors.As(err, &killed) || killed.Exited() {
		t.Fatalf("the child ended by itself (%v), saying %q", err, lines)
	}
	return lines
}

func wantAcknowledged(t *testing.T, path string, enqueued map[string]bool, completed map[string]string) {
	t.Helper()
	s, err := storage.Open(path, storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	breaches, err := s.Check()
	if err != nil || len(breaches) > 0 {
		t.Fatalf("check: %v, %v", breaches, err)
	}
	view(t, s, func(tx *storage.Tx) error {
		for name := range enqueued {
			if _, err := tx.JobByKey(target(name).Key); err != nil {
				t.Errorf("enqueued: %v", err)
			}
		}
		for name, generation := range completed {
			j, err := tx.JobByKey(target(name).Key)
			if err != nil || j.State != storage.StateComplete || fmt.Sprint(j.Generation) != generation {
				t.Errorf("job %s, completed under generation %s: %+v, %v", name, generation, j, err)
			}
		}
		return nil
	})
	done := counters(t, s, "s").State(storage.StateComplete)
	events := map[string]bool{}
	for _, e := range pending(t, s, "a") {
		events[e.ID] = true
	}
	if rows := len(observations(t, s, "s")); int64(rows) != done || len(events) != rows || len(pending(t, s, "a")) != rows {
		t.Errorf("%d observations and %d events of %d complete jobs", rows, len(events), done)
	}
}
