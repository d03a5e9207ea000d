package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"semel/engine/api"
	"semel/engine/config"
	"semel/storage"
)

func (a *app) quarantineCommand() *cobra.Command {
	var f api.QuarantineFilter
	cmd := a.command(&cobra.Command{
		Use:   "quarantine [list | show JOB | release JOB... | discard JOB...]",
		Short: "List pages that did not fit the rules; read them again, or drop them",
		Long: `List the pages that did not fit the rules of their source: their jobs have failed
for it, and nothing of them is committed. With rows_bad = "quarantine" the rows of a
page that do fit are committed, and the page is here for the others.

Mend the rules (and raise parser.version), try them on the page, and then

  release JOB  reads the page again by the rules as they are now: what fits is
               committed as if it had just been collected, without a request
  discard JOB  drops the page: its job stays as it is

A page stays here until then, or until its job completes by another one (semel
retry), however short store.retain is. It is kept unless store.bodies is "none".
JOB is a job's number or its key.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable),
		Example: "  semel quarantine\n  semel quarantine show 12 --page > page.html\n  semel try catalog --file page.html\n  semel quarantine release --source catalog",
		Args:    exactArgs(),
	}, func(ctx context.Context, _ []string) error { return a.listQuarantine(ctx, f) })
	cmd.AddCommand(a.listQuarantineCommand(&f), a.showQuarantineCommand(), a.releasePagesCommand(), a.discardPagesCommand())
	return cmd
}

func (a *app) listQuarantineCommand(f *api.QuarantineFilter) *cobra.Command {
	var summary bool
	cmd := a.command(&cobra.Command{
		Use:   "list [--source SOURCE] [--field FIELD] [--limit N | --summary]",
		Short: "List pages that did not fit the rules, by their jobs",
		Long: `List pages that did not fit the rules, by their jobs. With --summary each thing
that is wrong is one line instead, with the pages it is wrong on, most first, and one of
them to look at. Of a page its first 100 problems count.

` + exits(exitDone, exitUsage, exitConfig, exitStore, exitUnreadable),
		Args: exactArgs(),
	}, func(ctx context.Context, _ []string) error {
		switch {
		case summary && f.Limit != 0:
			return usage("", "give --limit or --summary, not both")
		case summary:
			return a.quarantineSummary(ctx, *f)
		}
		return a.listQuarantine(ctx, *f)
	})
	cmd.Flags().BoolVar(&summary, "summary", false, "count pages by what is wrong with them")
	cmd.Flags().StringVar(&f.Source, "source", "", "only pages of this `SOURCE`")
	cmd.Flags().StringVar(&f.Field, "field", "", "only pages with a problem of this `FIELD`")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "at most `N` pages (default no limit)")
	return cmd
}

func (a *app) listQuarantine(ctx context.Context, f api.QuarantineFilter) error {
	if f.Limit < 0 {
		return usage("leave it out for no limit", "--limit must be at least 0 (got %d)", f.Limit)
	}
	return a.reading(ctx, func(c *config.Config, service api.Service) error {
		found := false
		err := list(a, "ID\tSTATE\tVERSION\tPROBLEMS\tKEY\tFIRST PROBLEM", quarantineRow, func(show func(api.Quarantined) error) error {
			return service.Quarantine(ctx, f, func(q api.Quarantined) error {
				found = true
				return show(q)
			})
		})
		switch {
		case errors.Is(err, api.ErrUnknownSource):
			return sourceFault(c, f.Source)
		case err == nil && !found:
			return checkField(c, f)
		}
		return err
	})
}

// checkField refuses a field that no rules have. Pages of older rules can have problems
// with one that today's lack: it must come after the search.
func checkField(c *config.Config, f api.QuarantineFilter) error {
	var known []string
	for i := range c.Sources {
		if src := &c.Sources[i]; src.Rules != nil && (f.Source == "" || f.Source == src.Name) {
			known = append(known, src.Rules.FieldNames()...)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	_, err := parseWord("--field", f.Field, slices.Compact(known))
	return err
}

func quarantineRow(q api.Quarantined) string {
	return fmt.Sprintf("%d\t%s\t%d\t%d\t%s\t%s", q.ID, q.State, q.ParserVersion, len(q.Problems)+q.More, q.Job, problemText(q.Problems[0]))
}

// wrong is one thing that is wrong with pages.
type wrong struct {
	Source        string `json:"source"`
	ParserVersion int    `json:"parser_version"`
	Field         string `json:"field"`
	Reason        string `json:"reason"`
}

// wrongPages are the pages that it is wrong with.
type wrongPages struct {
	wrong
	Pages   int    `json:"pages"`
	Example uint64 `json:"example"` // the first of their jobs
}

func (a *app) quarantineSummary(ctx context.Context, f api.QuarantineFilter) error {
	return a.reading(ctx, func(c *config.Config, service api.Service) error {
		all := map[wrong]*wrongPages{}
		err := service.Quarantine(ctx, f, func(q api.Quarantined) error {
			countWrong(all, q, f.Field)
			return nil
		})
		if errors.Is(err, api.ErrUnknownSource) {
			return sourceFault(c, f.Source)
		}
		if err == nil && len(all) == 0 {
			err = checkField(c, f)
		}
		if err != nil {
			return err
		}
		sorted := slices.SortedFunc(maps.Values(all), func(x, y *wrongPages) int {
			return cmp.Or(cmp.Compare(y.Pages, x.Pages), cmp.Compare(x.Example, y.Example), cmp.Compare(x.Field, y.Field), cmp.Compare(x.Reason, y.Reason))
		})
		return list(a, "PAGES\tSOURCE\tVERSION\tFIELD\tREASON\tEXAMPLE", (*wrongPages).row, func(show func(*wrongPages) error) error {
			for _, w := range sorted {
				if err := show(w); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// countWrong counts a page once for each thing that is wrong with it; field "": in
// any field.
func countWrong(all map[wrong]*wrongPages, q api.Quarantined, field string) {
	seen := map[wrong]bool{}
	for _, p := range q.Problems {
		reason := strings.ReplaceAll(p.Reason, strconv.Quote(p.Value), `"…"`) // else each page has its own
		w := wrong{q.Source, q.ParserVersion, p.Field, reason}
		if seen[w] || field != "" && field != p.Field {
			continue
		}
		seen[w] = true
		if all[w] == nil {
			all[w] = &wrongPages{wrong: w, Example: q.ID}
		}
		all[w].Pages++
	}
}

func (w *wrongPages) row() string {
	return fmt.Sprintf("%d\t%s\t%d\t%s\t%s\tsemel quarantine show %d", w.Pages, w.Source, w.ParserVersion, dash(w.Field), plain(w.Reason), w.Example)
}

// problemText is where a page does not fit, and what stands there.
func problemText(p api.Problem) string {
	text := ""
	if p.Row != nil {
		text = fmt.Sprintf("row %d: ", *p.Row)
	}
	if p.Field != "" {
		text += "field " + p.Field + ": "
	}
	text += p.Reason
	if p.Value != "" {
		text += fmt.Sprintf(" (got %q)", p.Value)
	}
	return plain(text)
}

func (a *app) showQuarantineCommand() *cobra.Command {
	var page bool
	cmd := a.command(&cobra.Command{
		Use:   "show JOB [--page]",
		Short: "Show why a page did not fit the rules, or the page itself",
		Long: `Show why a page did not fit the rules. With --page its bytes go to stdout, as the
rules see them: semel try SOURCE --file reads them. Rows are counted from 0.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
		Args: exactArgs("JOB"),
	}, func(ctx context.Context, args []string) error {
		return a.reading(ctx, func(_ *config.Config, service api.Service) error {
			if page {
				return quarantineFault(service.QuarantinedPage(ctx, args[0], a.stdout))
			}
			q, err := service.QuarantinedJob(ctx, args[0])
			switch {
			case err != nil:
				return quarantineFault(err)
			case a.json:
				return a.line(q)
			}
			a.quarantinedText(q)
			return nil
		})
	})
	cmd.Flags().BoolVar(&page, "page", false, "print the page's bytes")
	return cmd
}

// quarantineFault says where to look for what there is.
func quarantineFault(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return &fault{exitFailed, err, "semel quarantine lists the pages and which of them are kept"}
	}
	return err
}

func (a *app) quarantinedText(q api.Quarantined) {
	a.printf("job %d %s, %s\n", q.ID, q.Job, q.State)
	a.row("url", "%s", plain(q.URL))
	a.row("since", "%s, by rules of version %d", timeText(&q.Since), q.ParserVersion)
	if q.Step != "" {
		a.row("step", "%s", q.Step)
	}
	if q.Rows > 0 {
		a.row("rows", "%d did fit", q.Rows)
	}
	for _, p := range q.Problems {
		a.row("problem", "%s", problemText(p))
	}
	if q.More > 0 {
		a.row("", "and %d more", q.More)
	}
	if q.Page == "" {
		a.row("page", "it was not kept: semel retry %d collects it again", q.ID)
		return
	}
	a.row("page", "SHA-256 %s: semel quarantine show %d --page prints it", q.Page, q.ID)
}

// selection reads which pages a command means.
func selection(refs []string, source string) (api.PageSelection, error) {
	s := api.PageSelection{Refs: refs, Source: source}
	switch {
	case len(refs) > 0 && source != "":
		return s, usage("", "give jobs or --source, not both")
	case len(refs) == 0 && source == "":
		return s, usage("semel quarantine lists the pages", "say which jobs, or --source SOURCE for all of it")
	}
	return s, nil
}

func (a *app) releasePagesCommand() *cobra.Command {
	var source string
	cmd := a.command(&cobra.Command{
		Use:   "release {JOB... | --source SOURCE}",
		Short: "Read pages again by the rules as they are now, and commit what fits",
		Long: `Read pages again by the rules as they are now, without a request. Where all fits,
the job is complete as if the page had just been collected; what does not fit stays,
with its new problems, and so does a page that was not kept (store.bodies = "none"):
then the exit code is 3.

` + exits(exitDone, exitFailed, exitUsage, exitJobs, exitConfig, exitStore, exitUnreadable),
	}, func(ctx context.Context, args []string) error {
		s, err := selection(args, source)
		if err != nil {
			return err
		}
		return a.writing(ctx, func(c *config.Config, service api.Service) error {
			s.Rules = api.RulesOf(c)
			var n releaseCounts
			err := service.ReleasePages(ctx, s, func(r api.Released) error {
				n.add(r)
				return a.released(r)
			})
			switch {
			case errors.Is(err, api.ErrUnknownSource) && source != "":
				return sourceFault(c, source)
			case err != nil:
				return rulesFault(quarantineFault(err))
			case n == (releaseCounts{}):
				a.notef("nothing of source %s is in quarantine", source)
			}
			return n.fault()
		})
	})
	cmd.Flags().StringVar(&source, "source", "", "all pages of this `SOURCE`")
	return cmd
}

// releaseCounts are how many pages were released, do not fit, and could not be read.
type releaseCounts struct{ released, unfit, unread int64 }

func (n *releaseCounts) add(r api.Released) {
	switch {
	case r.Released:
		n.released++
	case r.Unread != "":
		n.unread++
	default:
		n.unfit++
	}
}

// fault says why pages stay; nil: none does.
func (n releaseCounts) fault() error {
	var why []string
	hint := `semel retry JOB asks for a page again; it is kept unless store.bodies is "none"`
	if n.unfit > 0 {
		why = append(why, does(n.unfit)+" not fit")
		hint = "semel quarantine show JOB tells what is left"
	}
	if n.unread > 0 {
		why = append(why, count(n.unread, "page")+" could not be read again")
	}
	if len(why) == 0 {
		return nil
	}
	return &fault{exitJobs, errors.New(strings.Join(why, ", ")), hint}
}

// rulesFault is of a run that works by other rules than the config has now.
func rulesFault(err error) error {
	if errors.Is(err, api.ErrOtherConfig) {
		return &fault{exitStore, err, "start it again: then it works by the rules as they are now"}
	}
	return err
}

func (a *app) released(r api.Released) error {
	switch {
	case a.json:
		return a.line(r)
	case r.Released:
		a.printf("released %d %s\n", r.ID, r.Job)
	case r.Unread != "":
		a.printf("stays %d %s: %s\n", r.ID, r.Job, plain(r.Unread))
	default:
		texts := make([]string, min(len(r.Problems), 3))
		for i := range texts {
			texts[i] = problemText(r.Problems[i])
		}
		a.printf("stays %d %s: %s\n", r.ID, r.Job, strings.Join(texts, "; "))
	}
	return nil
}

func (a *app) discardPagesCommand() *cobra.Command {
	var source string
	cmd := a.command(&cobra.Command{
		Use:   "discard {JOB... | --source SOURCE}",
		Short: "Drop pages from the quarantine: their jobs stay as they are",
		Long: `Drop pages from the quarantine: their jobs stay as they are.

` + exits(exitDone, exitFailed, exitUsage, exitConfig, exitStore, exitUnreadable),
	}, func(ctx context.Context, args []string) error {
		s, err := selection(args, source)
		if err != nil {
			return err
		}
		return a.writing(ctx, func(c *config.Config, service api.Service) error {
			err := service.DiscardPages(ctx, s, func(q api.Quarantined) error {
				if a.json {
					return a.line(q)
				}
				a.printf("discarded %d %s\n", q.ID, q.Job)
				return nil
			})
			if errors.Is(err, api.ErrUnknownSource) {
				return sourceFault(c, source)
			}
			return quarantineFault(err)
		})
	})
	cmd.Flags().StringVar(&source, "source", "", "all pages of this `SOURCE`")
	return cmd
}
