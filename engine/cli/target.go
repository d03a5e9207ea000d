package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"semel/engine/config"
	"semel/engine/intake"
)

// targetFlags name one target by hand.
type targetFlags struct {
	url  string
	vars []string
}

func (t *targetFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.url, "url", "", "the target's `URL`, in place of the source's template")
	cmd.Flags().StringArrayVar(&t.vars, "var", nil, "a variable of the target as `NAME=VALUE`; may be given several times")
}

// target is the one that the flags name, or the source's first.
func (t *targetFlags) target(s *config.Source) (intake.Target, error) {
	if t.url == "" && len(t.vars) == 0 {
		return firstTarget(s)
	}
	vars, err := parseVars(t.vars)
	if err != nil {
		return intake.Target{}, err
	}
	return s.ByHand(t.url, vars), nil
}

func parseVars(texts []string) (intake.Vars, error) {
	var vars intake.Vars
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if !found || !intake.ValidName(name) {
			return nil, usage(`a variable is given as --var NAME=VALUE`, "--var %q is not NAME=VALUE", text)
		}
		if _, twice := vars.Get(name); twice {
			return nil, usage("", "--var %s is given twice", name)
		}
		vars = append(vars, intake.Var{Name: name, Value: value})
	}
	return vars, nil
}

// firstTarget reads the first of a source's targets.
func firstTarget(s *config.Source) (intake.Target, error) {
	switch s.Targets.Kind {
	case intake.Sitemap:
		return intake.Target{}, usage("name one with --url URL", "the targets of source %s stand in a sitemap, which only a run fetches", s.Name)
	case intake.Queue:
		return intake.Target{}, usage("name one with --url URL or --var NAME=VALUE", "the targets of source %s are in a queue, which only a run takes from", s.Name)
	}
	targets, err := intake.Open(s.Targets)
	if err != nil {
		return intake.Target{}, err
	}
	defer targets.Close()
	target, err := targets.Next()
	if errors.Is(err, io.EOF) {
		return target, usage("name one with --url URL or --var NAME=VALUE", "source %s has no targets", s.Name)
	}
	return target, err
}

// job makes the job of the target that the flags name, in a window.
func (t *targetFlags) job(s *config.Source, window time.Time) (intake.Job, error) {
	target, err := t.target(s)
	if err != nil {
		return intake.Job{}, err
	}
	job, err := s.Job(target, window)
	if err != nil {
		return intake.Job{}, targetFault(s, target, err)
	}
	return job, nil
}

// targetFault is the fault of a target that cannot become a job.
func targetFault(s *config.Source, target intake.Target, err error) error {
	var bad *intake.RowError
	if !errors.As(err, &bad) {
		return err
	}
	hint := "give what is missing with --var NAME=VALUE"
	if target.URL != "" {
		hint = "give another --url URL, or the target by --var NAME=VALUE"
	}
	return &fault{exitFailed, fmt.Errorf("target of source %s: %w", s.Name, err), hint}
}
