package api

import (
	"context"
	"errors"
	"fmt"

	"semel/engine"
	"semel/engine/config"
	"semel/storage"
)

// AcceptRequest says what to accept: the source as the caller's config has it.
type AcceptRequest struct {
	Source   string `json:"-"`
	Identity string `json:"identity"` // as storage.Source has these
	Rules    string `json:"rules"`
	Version  int    `json:"version"`
}

// NewAcceptRequest asks for a source as a config has it.
func NewAcceptRequest(src *config.Source) AcceptRequest {
	s := stored(src)
	return AcceptRequest{s.Name, s.Identity, s.Rules, s.Version}
}

// AcceptResult is what has been accepted.
type AcceptResult struct {
	Source   string   `json:"source"`
	Accepted []string `json:"accepted"` // each change, for people; none: there was nothing to accept
	Version  int      `json:"parser_version"`
}

// Bodies says of which attempts a config has pages kept.
func Bodies(c *config.Config) engine.Bodies {
	switch c.Store.Bodies {
	case config.BodiesFailed:
		return engine.BodiesFailed
	case config.BodiesAll:
		return engine.BodiesAll
	}
	return engine.BodiesNone
}

// stored is what the store should remember of a source.
func stored(src *config.Source) storage.Source {
	return engine.StoredSource(src.Name, src.IdentityText, src.Rules)
}

// guard comes before jobs of a source are made, in the same transaction. Error:
// *engine.GuardError.
func guard(tx *storage.Tx, src *config.Source) error { return engine.Register(tx, stored(src)) }

// guardWarnings are for a source that run would not work as the config has it.
func (l *Local) guardWarnings(was storage.Source) (list []string) {
	src := l.Config.Source(was.Name)
	if src == nil {
		return nil
	}
	for _, what := range engine.Guarded(was, stored(src)) {
		list = append(list, fmt.Sprintf("source %s: %s; semel run stops until it is taken back or accepted: semel accept %s", was.Name, what, was.Name))
	}
	return list
}

// Accept implements Service.
func (l *Local) Accept(ctx context.Context, r AcceptRequest) (AcceptResult, error) {
	src := l.Config.Source(r.Source)
	if src == nil {
		return AcceptResult{}, fmt.Errorf("%w %q", ErrUnknownSource, r.Source)
	}
	if r != NewAcceptRequest(src) {
		return AcceptResult{}, fmt.Errorf("accepting source %s: %w", r.Source, ErrOtherConfig)
	}
	result := AcceptResult{Source: r.Source, Accepted: []string{}, Version: r.Version}
	err := l.Store.Update(ctx, func(tx *storage.Tx) error {
		changes, err := engine.Accept(tx, stored(src))
		if errors.Is(err, storage.ErrNotFound) {
			return nil // its first run takes it as it is
		}
		result.Accepted = append(result.Accepted, changes...)
		return err
	})
	return result, err
}
