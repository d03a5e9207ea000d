package cli

import (
	"context"
	"errors"
	"syscall"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/storage"
)

func (a *app) compactCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "compact",
		Short: "Give room that deleted records left back to the disk",
		Long: `Write the store anew without the room that deleted records have left. Semel uses
that room again by itself, so this is only worth its while after a large part was
deleted: store.retain was shortened, or a large source has ended.

Nothing else may use the store meanwhile, and the disk needs room for a copy. The
copy takes the store's place when it is whole and compared with the store; until
then nothing has changed. The room of kept pages that nothing names any more is
given back as well.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel compact\n  semel compact --json",
		Args:    exactArgs(),
	}, a.compact)
}

// compacted is what compact prints with --json.
type compacted struct {
	Store       string `json:"store"`
	BeforeBytes int64  `json:"before_bytes"`
	AfterBytes  int64  `json:"after_bytes"`

	PagesBeforeBytes int64 `json:"pages_before_bytes"`
	PagesAfterBytes  int64 `json:"pages_after_bytes"`
}

func (a *app) compact(ctx context.Context, _ []string) error {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	if client, owner, err := api.Dial(ctx, c.Store.Path); err == nil {
		return errors.Join(heldBy(c, owner, "stop it first: compact needs the store for itself"), client.Close())
	}
	size, err := storage.Compact(c.Store.Path)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return &fault{exitFailed, err, "make room for a copy beside the store; nothing was changed"}
	case err != nil:
		return storeFault(err)
	case a.json:
		return a.line(compacted{c.Store.Path, size.Before, size.After, size.PagesBefore, size.PagesAfter})
	}
	a.printf("%s: %s before, %s after\n", c.Store.Path, bytesText(size.Before), bytesText(size.After))
	if size.PagesBefore > 0 {
		a.printf("kept pages: %s before, %s after\n", bytesText(size.PagesBefore), bytesText(size.PagesAfter))
	}
	return nil
}
