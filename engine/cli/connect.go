package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"semel/engine"
	"semel/engine/api"
	"semel/engine/config"
	"semel/engine/intake"
	"semel/storage"
)

// connectRounds is how often a store that somebody holds is tried again: the
// holder may be a command that is ending, or a run that is just beginning or
// ending. Each round waits a second for the store's lock.
const connectRounds = 3

// reading calls use with the commands on the store, which must only look at it.
func (a *app) reading(ctx context.Context, use func(*config.Config, api.Service) error) error {
	return a.withStore(ctx, storage.Options{ReadOnly: true}, use)
}

// writing calls use with the commands on the store.
func (a *app) writing(ctx context.Context, use func(*config.Config, api.Service) error) error {
	return a.withStore(ctx, storage.Options{}, use)
}

func (a *app) withStore(ctx context.Context, opts storage.Options, use func(*config.Config, api.Service) error) error {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	return a.withService(ctx, c, false, opts, use)
}

// withService calls use with the commands on a config's store: those of the run
// that holds it, else those of this process, which opens it so. The store must
// be there already unless create is set.
func (a *app) withService(ctx context.Context, c *config.Config, create bool, opts storage.Options, use func(*config.Config, api.Service) error) error {
	at, err := reach(ctx, c, create, opts)
	if err != nil {
		return err
	}
	if at.store != nil {
		here := idle{c, at.store}
		at.client = api.InProcess(api.NewHandler(&api.Local{Store: at.store, Config: c, Replay: here.replay, CompareIn: here.compare, Release: here.release, Reread: here.reread, Offer: here.offer}, ""), a.log())
	}
	return errors.Join(use(c, at.client), at.close())
}

// idle is an engine that runs no jobs, made for one call.
type idle struct {
	config *config.Config
	store  *storage.Store
}

func (i idle) use(source string, fn func(*engine.Engine) error) error {
	sources, err := allSources(i.config, []string{source})
	if err != nil {
		return err
	}
	opts := engineOptions(i.config, sources, slog.New(slog.DiscardHandler))
	opts.Store, opts.Owner = i.store, ownerName(time.Now())
	e, err := engine.New(opts)
	if err != nil {
		return err
	}
	defer e.Close()
	return fn(e)
}

func (i idle) replay(ctx context.Context, source string, scratch *storage.Store) (done engine.Replay, err error) {
	err = i.use(source, func(e *engine.Engine) error {
		done, err = e.Replay(ctx, source, scratch)
		return err
	})
	return done, err
}

func (i idle) offer(ctx context.Context, source string, from, to time.Time, bad func(*intake.RowError)) (done engine.Backfilled, err error) {
	err = i.use(source, func(e *engine.Engine) error {
		done, err = e.Backfill(ctx, source, from, to, bad)
		return err
	})
	return done, err
}

func (i idle) compare(ctx context.Context, past engine.Past, scratch *storage.Store, fn func(engine.Difference) error) (done engine.Comparison, err error) {
	err = i.use(past.Source, func(e *engine.Engine) error {
		done, err = e.Compare(ctx, past, scratch, fn)
		return err
	})
	return done, err
}

func (i idle) release(ctx context.Context, source string, job uint64) (left []storage.Problem, err error) {
	err = i.use(source, func(e *engine.Engine) error {
		left, err = e.Release(ctx, source, job)
		return err
	})
	return left, err
}

func (i idle) reread(ctx context.Context, past engine.Past, dry bool, fn func(engine.ReparseNews) error) (done engine.Reparsing, err error) {
	err = i.use(past.Source, func(e *engine.Engine) error {
		done, err = e.Reparse(ctx, past, dry, fn)
		return err
	})
	return done, err
}

// access is a way to a store: a client of its owner, or the store itself.
type access struct {
	client *api.Client
	owner  api.Owner // of client, where store is nil
	store  *storage.Store
}

// reach finds the owner of a config's store, or opens the store, which must be
// there already unless create is set.
func reach(ctx context.Context, c *config.Config, create bool, opts storage.Options) (access, error) {
	var inUse error
	for range connectRounds {
		client, owner, err := api.Dial(ctx, c.Store.Path)
		if err == nil {
			return access{client: client, owner: owner}, nil
		}
		if err = fmt.Errorf("opening store %s: %w", c.Store.Path, err); !errors.Is(err, api.ErrNoOwner) {
			if errors.Is(err, fs.ErrPermission) {
				err = &fault{exitStore, err, "it works for its own user, and for root"}
			}
			return access{}, err
		}
		store, err := openStore(c, create, opts)
		if !errors.Is(err, storage.ErrInUse) {
			return access{store: store}, err
		}
		inUse = err
	}
	return access{}, inUse
}

// close ends the client before the store that it may use.
func (at access) close() error {
	var err error
	if at.client != nil {
		err = at.client.Close()
	}
	if at.store != nil {
		if closeErr := at.store.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
		}
	}
	return err
}

// own opens a config's store for a run, which must be its only one.
func own(ctx context.Context, c *config.Config) (*storage.Store, error) {
	at, err := reach(ctx, c, true, runStore)
	if err != nil || at.store != nil {
		return at.store, err
	}
	return nil, errors.Join(heldBy(c, at.owner, "it goes on collecting, and semel status and the other commands work through it"), at.close())
}

// heldBy is the fault of a store that must not be anybody's.
func heldBy(c *config.Config, owner api.Owner, hint string) error {
	return &fault{exitStore, fmt.Errorf("store %s is in use by semel run, pid %d", c.Store.Path, owner.PID), hint}
}
