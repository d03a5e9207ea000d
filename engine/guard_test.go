package engine

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"semel/parser"
	"semel/storage"
)

func registered(t *testing.T, s *storage.Store, sources ...storage.Source) error {
	t.Helper()
	return s.Update(t.Context(), func(tx *storage.Tx) error { return Register(tx, sources...) })
}

func storedSource(t *testing.T, s *storage.Store, name string) (src storage.Source) {
	t.Helper()
	if err := s.View(func(tx *storage.Tx) (err error) {
		src, err = tx.Source(name)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return src
}

// rulesOf compiles fields, each of its own name, of a version.
func rulesOf(t *testing.T, version int, css ...string) *parser.Rules {
	t.Helper()
	spec := parser.Spec{Version: version}
	for i, text := range css {
		spec.Fields = append(spec.Fields, parser.Field{Name: string(rune('a' + i)), Rule: parser.Rule{CSS: text}})
	}
	rules, err := parser.Compile(spec)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestGuards: what changes a source's keys or its records without a word stops
// it; each is told as what it is.
func TestGuards(t *testing.T) {
	was := StoredSource("shop", "identity: target", rulesOf(t, 3, "h1", "h2"))
	bare := was
	bare.IdentityText, bare.Parts = "", nil // as schema 3 recorded it
	back := was
	back.Past = map[int]string{4: rulesOf(t, 4, "h1").Fingerprint(), 5: "others"} // it was lowered, and accepted
	for name, c := range map[string]struct {
		was, now storage.Source
		want     string // "": no guard
	}{
		"nothing":                 {was, was, ""},
		"the details of an older": {bare, was, ""},
		"another rule":            {was, StoredSource("shop", "identity: target", rulesOf(t, 3, "h1", "h3")), "source shop: the rules have changed under the same parser.version 3: fields.b differs"},
		"one more and one less":   {was, StoredSource("shop", "identity: target", rulesOf(t, 3, "h1")), "source shop: the rules have changed under the same parser.version 3: fields.b is gone"},
		"rules of an older":       {bare, StoredSource("shop", "identity: target", rulesOf(t, 3, "h1")), "source shop: the rules have changed under the same parser.version 3"},
		"a raised version":        {was, StoredSource("shop", "identity: target", rulesOf(t, 4, "h1")), ""},
		"a version used before": {
			back, StoredSource("shop", "identity: target", rulesOf(t, 4, "h2")),
			"source shop: parser.version 4 had other rules before: what these have read would pass for read by today's; raise it to 6",
		},
		"a version used before for the same": {back, StoredSource("shop", "identity: target", rulesOf(t, 4, "h1")), ""},
		"a raised version alone":             {was, StoredSource("shop", "identity: target", rulesOf(t, 4, "h1", "h2")), ""},
		"a lowered version":                  {was, StoredSource("shop", "identity: target", rulesOf(t, 2, "h1")), "source shop: parser.version has been lowered from 3 to 2: of two jobs that give one row, that of the higher version would win"},
		"another identity": {
			was, StoredSource("shop", "identity: target, scope", rulesOf(t, 4, "h1")),
			"source shop: what makes its job keys has changed, from (identity: target) to (identity: target, scope): targets collected before would be collected again, under new keys",
		},
		"identity of an older": {
			bare, StoredSource("shop", "identity: scope", rulesOf(t, 3, "h1", "h2")),
			"source shop: what makes its job keys has changed: targets collected before would be collected again, under new keys",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			for version, rules := range c.was.Past {
				before := c.was
				before.Version, before.Rules = version, rules
				if err := s.Update(t.Context(), func(tx *storage.Tx) error { return tx.PutSource(before) }); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Update(t.Context(), func(tx *storage.Tx) error { return tx.PutSource(c.was) }); err != nil {
				t.Fatal(err)
			}
			err := registered(t, s, StoredSource("other", "x", rulesOf(t, 1, "h1")), c.now)
			var guard *GuardError
			switch {
			case c.want == "" && err != nil:
				t.Errorf("it is stopped: %v", err)
			case c.want != "" && (!errors.Is(err, ErrGuard) || !errors.As(err, &guard) || err.Error() != c.want):
				t.Errorf("error %v, want %s", err, c.want)
			}
			got, want := storedSource(t, s, "shop"), c.now
			if c.want != "" {
				want = c.was
			}
			if got.Rules != want.Rules || got.Identity != want.Identity || got.Version != want.Version || got.IdentityText != want.IdentityText || len(got.Parts) != len(want.Parts) {
				t.Errorf("the store has %+v, want %+v", got, want)
			}
			if c.want == "" {
				return
			}
			var changes []string
			if err := s.Update(t.Context(), func(tx *storage.Tx) (err error) {
				changes, err = Accept(tx, c.now)
				return err
			}); err != nil || "source shop: "+strings.Join(changes, "; ") != c.want && c.now.Version <= c.was.Version {
				t.Errorf("accepted %q, %v", changes, err)
			}
			if err := registered(t, s, c.now); err != nil {
				t.Errorf("after accept: %v", err)
			}
		})
	}
}

// All guarded sources are named at once, and before anything is done.
func TestGuardStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		web := newSite(products)
		more := source(t, 2)
		more.Name = "more"
		opts := options(s, web, source(t, 2), more)
		runOnce(t, opts)
		asked := web.total()
		opts.Sources[0] = source(t, 3)
		opts.Sources[0].IdentityText = "y"
		opts.Sources[1].Rules = fieldRules(t, "h2")
		e, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		sum, err := e.RunOnce(t.Context())
		var guard *GuardError
		if !errors.As(err, &guard) || len(guard.Guards) != 2 || guard.Guards[0].Source != "more" || guard.Guards[1].Source != "shop" {
			t.Fatalf("it ended with %v", err)
		}
		if web.total() != asked || sum.New != 0 || sum.Rescued != 0 {
			t.Errorf("%d requests, %+v", web.total()-asked, sum)
		}
	})
}

// Complete jobs that keep the records of older rules are told, unless versions
// stand side by side.
func TestOlderRulesAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		parser bool
		want   string
	}{
		"one version counts": {false, `level=WARN msg="complete jobs keep the records of older rules: semel reparse shop reads the pages that are kept again, without a request; semel retry --source shop --recollect collects all of them again" source=shop jobs=3 version=2`},
		"both stay":          {true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				src := source(t, 3)
				src.Identity.Parser = c.parser
				runOnce(t, options(s, newSite(products), src))
				src.ParserVersion, src.Rules = 2, rulesOf(t, 2, "h1")
				opts := options(s, newSite(func(*http.Request, int) (*http.Response, error) { return respond(500, ""), nil }), src)
				opts.Sources[0].Limits.Attempts = 1
				var log strings.Builder
				opts.Log = slog.New(slog.NewTextHandler(&log, nil))
				runOnce(t, opts)
				if told := strings.Contains(log.String(), "older rules"); told != (c.want != "") || !strings.Contains(log.String(), c.want) {
					t.Errorf("the log says\n%s", log.String())
				}
			})
		})
	}
}
