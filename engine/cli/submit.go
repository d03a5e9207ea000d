package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) submitCommand() *cobra.Command {
	var target targetFlags
	var s api.Submission
	const keyFlag = "idempotency-key"
	var cmd *cobra.Command
	cmd = a.command(&cobra.Command{
		Use:   "submit SOURCE {--url URL | --var NAME=VALUE...} [--window WINDOW] [--idempotency-key KEY]",
		Short: "Make one job, and say whether it is new",
		Long: `Make the job of one target, which is named by its URL or by variables, and print
it: "new", or "known" where there was a job of its key already, which is not
queued again. The run that holds the store works it at once, else the next one.

With --idempotency-key the first answer is given again for 24 hours, whatever
happened to the job meanwhile; the same key for another target is refused.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		ValidArgsFunction: a.completeSource,
		Example:           "  semel submit catalog --var sku=42\n  semel submit pages --url https://example.com/page --json",
		Args:              exactArgs("SOURCE"),
	}, func(ctx context.Context, args []string) (err error) {
		if cmd.Flags().Changed(keyFlag) && !storage.ValidIdempotencyKey(s.IdempotencyKey) {
			return usage("", "--%s must be 1 to %d printable ASCII characters", keyFlag, storage.MaxIdempotencyKey)
		}
		if s.Vars, err = target.submitted(); err != nil {
			return err
		}
		s.Source, s.URL = args[0], target.url
		return a.submit(ctx, s, &target)
	})
	target.register(cmd)
	cmd.Flags().StringVar(&s.Window, "window", "", "the `WINDOW` that the observation stands for: an instant in it, or a date")
	cmd.Flags().StringVar(&s.IdempotencyKey, keyFlag, "", "a `KEY` of this call's own, so that the same call again gives the same answer")
	return cmd
}

// submitted are the variables of a target that is named by them, nil for one
// that is named by its URL.
func (t *targetFlags) submitted() (map[string]string, error) {
	vars, err := parseVars(t.vars)
	switch {
	case err != nil:
		return nil, err
	case (t.url == "") == (len(vars) == 0):
		return nil, usage("--url URL, or --var NAME=VALUE for each variable", "name one target, by its URL or by variables")
	case len(vars) == 0:
		return nil, nil
	}
	return vars.Map(), nil
}

func (a *app) submit(ctx context.Context, s api.Submission, target *targetFlags) error {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return err
	}
	src, err := findSource(c, s.Source)
	if err != nil {
		return err
	}
	window, err := oneWindow(src, s.Window) // here, so that a mistake makes no store
	if err != nil {
		return err
	}
	if _, err := target.job(src, window); err != nil {
		return err
	}
	return a.withService(ctx, c, true, storage.Options{}, func(c *config.Config, service api.Service) error {
		done, err := service.Submit(ctx, s)
		if errors.Is(err, api.ErrUnknownSource) {
			return sourceFault(c, s.Source)
		}
		if err != nil {
			return err
		}
		return a.tellSubmitted(done)
	})
}

func (a *app) tellSubmitted(done api.Submitted) error {
	if done.Replayed {
		a.notef("this key came before: its first answer, with the job as it is now")
	}
	if a.json {
		return a.line(done)
	}
	word := "known"
	if done.New {
		word = "new"
	}
	a.printf("%s %d %s %s\n", word, done.ID, done.State, done.Key)
	return nil
}
