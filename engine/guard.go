package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"semel/parser"
	"semel/storage"
)

// ErrGuard: a source is no longer what its jobs were made as.
var ErrGuard = errors.New("a source is no longer what its jobs were made as")

// GuardError names every source that must not go on unless somebody means it.
// It is an ErrGuard.
type GuardError struct{ Guards []Guard }

// Guard is one change that stops a source.
type Guard struct {
	Source string
	What   string // has changed, for people
}

func (g Guard) String() string { return "source " + g.Source + ": " + g.What }

func (e *GuardError) Error() string {
	texts := make([]string, len(e.Guards))
	for i, g := range e.Guards {
		texts[i] = g.String()
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives ErrGuard.
func (e *GuardError) Unwrap() error { return ErrGuard }

// StoredSource is what the store should remember of a source. identity says in
// canonical words what makes its job keys.
func StoredSource(name, identity string, rules *parser.Rules) storage.Source {
	sum := sha256.Sum256([]byte(identity))
	return storage.Source{
		Name: name, Identity: hex.EncodeToString(sum[:]), IdentityText: identity,
		Rules: rules.Fingerprint(), Parts: rules.Parts(), Version: rules.Version(),
	}
}

func (s *Source) stored() storage.Source { return StoredSource(s.Name, s.IdentityText, s.Rules) }

// OldRulesAdvice is what a person can do about complete jobs that keep the records of
// older rules.
func OldRulesAdvice(source string) string {
	return "semel reparse " + source + " reads the pages that are kept again, without a request; semel retry --source " + source + " --recollect collects all of them again"
}

// Register remembers under which identity and rules sources work. It must come
// before any of their jobs is made or claimed. A raised version takes its rules
// along. Error: *GuardError, with all that stops any of them; then the caller's
// transaction must not commit.
func Register(tx *storage.Tx, sources ...storage.Source) error {
	var guards []Guard
	for _, now := range sources {
		was, err := tx.Source(now.Name)
		switch {
		case err == nil:
			for _, what := range Guarded(was, now) {
				guards = append(guards, Guard{now.Name, what})
			}
		case !errors.Is(err, storage.ErrNotFound):
			return err
		}
		if err := tx.PutSource(now); err != nil {
			return err
		}
	}
	if len(guards) > 0 {
		return &GuardError{guards}
	}
	return nil
}

// Accept remembers a source as it is now whatever it was, takes its pages as they are
// where they have drifted, and says what has changed; nil: nothing has. Error:
// storage.ErrNotFound where the store has no job of it yet.
func Accept(tx *storage.Tx, now storage.Source) ([]string, error) {
	was, err := tx.Source(now.Name)
	if err != nil {
		return nil, err
	}
	changes := Guarded(was, now)
	if now.Version > was.Version {
		changes = append(changes, fmt.Sprintf("parser.version has been raised from %d to %d", was.Version, now.Version))
	}
	drifts, err := acceptDrift(tx, now, len(changes) > 0)
	if err != nil {
		return nil, err
	}
	return append(changes, drifts...), tx.PutSource(now)
}

// Guarded are the changes of a source that stop it (nil: none): they would make observations a second
// time, leave some out, or mix those of different rules.
func Guarded(was, now storage.Source) []string {
	var changes []string
	if was.Identity != now.Identity {
		changes = append(changes, "what makes its job keys has changed"+fromTo(was.IdentityText, now.IdentityText)+": targets collected before would be collected again, under new keys")
	}
	past := was.Past[now.Version]
	switch {
	case now.Version < was.Version:
		changes = append(changes, fmt.Sprintf("parser.version has been lowered from %d to %d: of two jobs that give one row, that of the higher version would win", was.Version, now.Version))
	case now.Version > was.Version && past != "" && past != now.Rules:
		newest := slices.Max(append(slices.Collect(maps.Keys(was.Past)), was.Version))
		changes = append(changes, fmt.Sprintf("parser.version %d had other rules before: what these have read would pass for read by today's; raise it to %d", now.Version, newest+1))
	case now.Version == was.Version && was.Rules != now.Rules:
		changes = append(changes, fmt.Sprintf("the rules have changed under the same parser.version %d%s", now.Version, changedParts(was.Parts, now.Parts)))
	}
	return changes
}

func fromTo(was, now string) string {
	if was == "" { // recorded before schema 4
		return ""
	}
	return fmt.Sprintf(", from (%s) to (%s)", was, now)
}

// changedParts names the parts of rules that differ.
func changedParts(was, now map[string]string) string {
	if was == nil { // recorded before schema 4
		return ""
	}
	all := maps.Clone(was)
	maps.Copy(all, now)
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch before, after := was[name], now[name]; {
		case before == "":
			texts = append(texts, name+" is new")
		case after == "":
			texts = append(texts, name+" is gone")
		case before != after:
			texts = append(texts, name+" differs")
		}
	}
	if len(texts) == 0 {
		return ": the fields have another order"
	}
	return ": " + strings.Join(texts, ", ")
}
