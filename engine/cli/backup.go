package cli

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
)

func (a *app) backupCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the store, also while it is worked on",
		Long: `Write a copy of the store as it stands now to FILE, and its kept pages, where there
are any, to the folder FILE.pages. A run that goes on does not wait; where there is
none, nothing else may use the store meanwhile. The copy is
checked before it takes its name; a backup that has the name until then is replaced
as a whole or not at all.

To restore, stop the run and put both in place: FILE as the store, FILE.pages as
the folder with the store's name and .pages behind it.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Example: "  semel backup /mnt/backup/semel.db",
		Args:    exactArgs("FILE"),
	}, func(ctx context.Context, args []string) error {
		return a.writing(ctx, func(c *config.Config, service api.Service) error {
			if err := refuseOwnFiles(c, args[0]); err != nil {
				return err
			}
			return a.backup(ctx, service, args[0])
		})
	})
}

func (a *app) backup(ctx context.Context, service api.Service, path string) error {
	path, err := filepath.Abs(followed(path))
	if err != nil {
		return err
	}
	result, err := service.Backup(ctx, path)
	switch {
	case err != nil:
		return err
	case a.json:
		return a.line(result)
	}
	a.printf("%s: %s", result.Path, bytesText(result.Bytes))
	if result.Segments > 0 {
		a.printf(", and %s of kept pages in %s", bytesText(result.PagesBytes), filepath.Base(result.Path)+".pages")
	}
	a.printf("\n")
	return nil
}
