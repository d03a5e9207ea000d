package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"semel/engine/gateway"
	"semel/storage"
)

// The login of the scripts' gateway. Both stand nowhere else.
const (
	gatewayUser = "customer-4711"
	gatewayPass = "correct-horse"
	wrongPass   = "wrong-donkey"
)

// TestScript runs the real program: one script for each command and exit code.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               setUpScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": scriptExitCode,
			"await":    scriptAwait,
			"requests": scriptRequests,
			"only":     scriptOnly,
			"nosecret": scriptNoSecret,
			"serving":  scriptServing,
			"until":    scriptUntil,
			"private":  scriptPrivate,
			"release":  scriptRelease,
			"change":   scriptChange,
			"damage":   scriptDamage,
			"heldrun":  scriptHeldRun,
			"outbox":   scriptOutbox,
		},
	})
}

type siteKey struct{}

// setUpScript starts a site and a gateway, and completes the script's files: a
// config and targets where it brings none, addresses put into all of them.
func setUpScript(env *testscript.Env) error {
	s := newSite()
	env.Defer(s.close)
	env.Values[siteKey{}] = s
	g, err := gateway.Start(gateway.Options{Username: gatewayUser, Password: gatewayPass})
	if err != nil {
		return err
	}
	env.Defer(g.Close)
	address := strings.TrimPrefix(s.URL, "http://")
	env.Setenv("SITE", s.URL)
	env.Setenv("ADDRESS", address)
	env.Setenv("GATEWAY", g.URL())
	env.Setenv("GW_USER", gatewayUser)
	env.Setenv("GW_PASS", gatewayPass)
	env.Setenv("GW_WRONG", wrongPass)
	for name, text := range map[string]string{"semel.toml": configText, "targets.csv": "n\n1\n2\n3\n"} {
		path := filepath.Join(env.WorkDir, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return fillFiles(env.WorkDir, strings.NewReplacer("$SITE", s.URL, "$ADDRESS", address, "$GATEWAY", g.URL()))
}

// fillFiles puts addresses into the configs and targets of a script.
func fillFiles(dir string, addresses *strings.Replacer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if ext := filepath.Ext(path); ext != ".toml" && ext != ".csv" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(addresses.Replace(string(text))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// scriptExitCode is "exitcode N PROGRAM ARG...": runs it, and wants exactly N.
func scriptExitCode(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptAwait is "await PATH": waits until the site was asked for it.
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	select {
	case <-ts.Value(siteKey{}).(*site).arrival(args[0]):
	case <-time.After(20 * time.Second):
		ts.Fatalf("nobody asked for %s", args[0])
	}
}

// scriptRequests is "requests N": so many did the site get until now.
func scriptRequests(ts *testscript.TestScript, _ bool, args []string) {
	if got := strconv.Itoa(ts.Value(siteKey{}).(*site).count()); got != args[0] {
		ts.Fatalf("the site got %s requests, want %s", got, args[0])
	}
}

// scriptOnly is "only DIR FILE...": the folder holds these files and no others.
func scriptOnly(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := slices.Sorted(slices.Values(args[1:])); !slices.Equal(names, want) {
		ts.Fatalf("%s holds %q, want %q", args[0], names, want)
	}
}

// scriptHeldRun is "heldrun STORE SOURCE": a run of one window of which one job is
// complete and one has failed.
func scriptHeldRun(ts *testscript.TestScript, _ bool, args []string) {
	s, err := storage.Open(ts.MkAbs(args[0]), storage.Options{})
	ts.Check(err)
	ts.Check(s.Update(context.Background(), func(tx *storage.Tx) error { return holdRun(tx, args[1]) }))
	ts.Check(s.Close())
}

func holdRun(tx *storage.Tx, source string) error {
	key := storage.RunKey{Source: source, Window: time.Date(2026, 4, 23, 0, 0, 0, 0, time.UTC)}
	r, err := tx.OpenRun(key, storage.RunWindow)
	if err != nil {
		return err
	}
	if err := tx.EndListing(r, nil); err != nil {
		return err
	}
	for _, name := range []string{"a", "b"} {
		n := storage.NewJob{Key: storage.JobKey{Source: source, Target: name, Window: key.Window}, Window: key.Window, Host: "h", URL: "http://h/"}
		if _, err := tx.EnqueueJob(n); err != nil {
			return err
		}
	}
	claimed, err := tx.ClaimJobs("test", time.Minute, []storage.ClaimGroup{{Lanes: tx.ReadyLanes(), Max: 2}})
	if err != nil {
		return err
	}
	_, err = tx.CompleteJob(claimed[0][0].Lease(), storage.Completion{
		Mode: storage.WriteReplace, Records: []storage.NewObservation{{Key: "a", Data: []byte(`{"title":"new"}`)}},
	})
	if err != nil {
		return err
	}
	return tx.FailJob(claimed[0][1].Lease(), storage.Attempt{Category: storage.CategoryNotFound}, storage.Failure{Category: storage.CategoryNotFound})
}

// scriptOutbox is "outbox STORE SINK": three failed jobs whose events the sink
// wants. The first is delivered, the second was given up, the third waits, since
// the sink is stopped.
func scriptOutbox(ts *testscript.TestScript, _ bool, args []string) {
	s, err := storage.Open(ts.MkAbs(args[0]), storage.Options{})
	ts.Check(err)
	ts.Check(s.Update(context.Background(), func(tx *storage.Tx) error { return fillOutbox(tx, args[1]) }))
	ts.Check(s.Close())
}

func fillOutbox(tx *storage.Tx, sink string) error {
	for _, name := range []string{"a", "b", "c"} {
		made, err := tx.EnqueueJob(storage.NewJob{Key: storage.JobKey{Source: "pages", Target: name}, Host: "h", URL: "http://h/"})
		if err != nil {
			return err
		}
		if _, err := tx.CancelJob(made.ID, []storage.Subscription{{Sink: sink}}); err != nil {
			return err
		}
	}
	return errors.Join(tx.EndDeliveries(sink, []storage.Delivery{
		{Event: 1, Outcome: storage.OutcomeDeduplicated},
		{Event: 2, Outcome: storage.OutcomeAmbiguous, Reason: "no answer within 10s", Counts: true, Dead: true},
	}), tx.StopSink(sink, "status 410"))
}

// scriptDamage is "damage DIR": changes one byte in the middle of each file there.
func scriptDamage(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		path := filepath.Join(ts.MkAbs(args[0]), e.Name())
		data, err := os.ReadFile(path)
		ts.Check(err)
		data[len(data)/2] ^= 1
		ts.Check(os.WriteFile(path, data, 0o600))
	}
}

// scriptServing is "serving STORE": waits until a semel run answers for the
// store, and sets $PID to its pid.
func scriptServing(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	owner, err := awaitOwner(ctx, ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Setenv("PID", strconv.Itoa(owner.PID))
}

// scriptUntil is "until REGEXP PROGRAM ARG...": runs it again and again until
// its output matches.
func scriptUntil(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	deadline := time.After(20 * time.Second)
	for {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if want.MatchString(ts.ReadFile("stdout")) {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("the output never matches %s", want)
		default:
		}
	}
}

// scriptPrivate is "private SOCKET": it is the user's alone, and so is the one
// elsewhere where it is a file that names one.
func scriptPrivate(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	info, err := os.Lstat(path)
	ts.Check(err)
	if info.Mode().Perm() != 0o600 {
		ts.Fatalf("%s has mode %s", args[0], info.Mode())
	}
	if info.Mode().IsRegular() {
		path, _, _ = strings.Cut(ts.ReadFile(path), "\n")
		if info, err = os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
			ts.Fatalf("the folder of %s has mode %v, %v", path, info.Mode(), err)
		}
		info, err = os.Lstat(path)
		ts.Check(err)
	}
	if info.Mode() != fs.ModeSocket|0o600 {
		ts.Fatalf("%s has mode %s", path, info.Mode())
	}
}

// scriptRelease is "release": the site lets the pages go that it holds.
func scriptRelease(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(siteKey{}).(*site).release()
}

// scriptChange is "change": from now on the site's shelf has other items.
func scriptChange(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Value(siteKey{}).(*site).changed.Store(true)
}

// scriptNoSecret is "nosecret": the gateway's logins are neither in the last
// output nor in any file.
func scriptNoSecret(ts *testscript.TestScript, _ bool, _ []string) {
	texts := map[string]string{"stdout": ts.ReadFile("stdout"), "stderr": ts.ReadFile("stderr")}
	ts.Check(filepath.WalkDir(ts.Getenv("WORK"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		texts[path] = string(content)
		return err
	}))
	secrets := []string{gatewayUser, gatewayPass, wrongPass}
	for _, pass := range []string{gatewayPass, wrongPass} {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(gatewayUser+":"+pass)))
	}
	for place, text := range texts {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				ts.Fatalf("%s holds the secret %q", place, secret)
			}
		}
	}
}
